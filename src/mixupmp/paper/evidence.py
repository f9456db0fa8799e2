"""What the ledger weighs: samples of our runs, paired by repeat, and what the paper's tables print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import fsum, sqrt
from pathlib import Path
from typing import Protocol

from scipy.stats import t as student

from mixupmp.core.errors import BadRun
from mixupmp.core.files import read_json
from mixupmp.core.foreign import Json
from mixupmp.metrics.comparison import summary_of
from mixupmp.paper.reference import CONCORDANCE_MEASURES, PERCENT, PaperTable, paper_value
from mixupmp.paper.resampling import RESAMPLES, UNIT
from mixupmp.paper.settings import comparable
from mixupmp.paper.study import results_folder

LEVEL = 0.05  # of each one-sided test
PAPER_TABLES: dict[str, PaperTable] = {
    "comparison": "in_distribution",
    "ablation": "in_distribution",
    "shift": "shift",
    "bb-vs-de": "bb_vs_de",
}
PAPER_NAMES = {
    "fmnist": "FMNIST",
    "fmnist-long": "FMNIST",
    "fmnist-cnn": "FMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "mnist": "MNIST",
}


@dataclass(frozen=True)
class Sample:
    """A measure of one line over its runs; `values` by repeat, where they can be paired.

    `resampled` has, by repeat, how much the value changes on each resample of the test rows: the resamples are the
    same for all lines. `comparable` says whether the networks of the line are in the paper's regime.
    """

    mean: float
    error: float | None
    count: int
    values: dict[int, float] | None = None
    resampled: dict[int, list[float]] = field(default_factory=dict)
    comparable: bool = True

    @classmethod
    def of(cls, values: dict[int, float], resampled: dict[int, list[float]] | None = None) -> Sample:
        found = summary_of(list(values.values()))
        return cls(found.mean, found.standard_error, found.repeats, values, resampled or {})


@dataclass(frozen=True)
class Effect:
    """An estimate with its standard error and degrees of freedom; neither from a single run."""

    mean: float
    error: float | None
    freedom: float = 0.0
    what: str = ""

    @property
    def reach(self) -> float:
        """Half the width of the two one-sided intervals: the t quantile times the standard error."""
        return 0.0 if not self.error else float(student.ppf(1 - LEVEL, self.freedom)) * self.error


Term = tuple[float, Sample]


def combine(terms: Sequence[Term], what: str = "") -> Effect:
    """sum_k c_k x_k: over the repeats that all samples share, or else as of independent samples (Welch).

    Repeats share their test rows, so their spread does not show how much depends on these. The paired bootstrap over
    test rows does, and its variance is added where the samples have it, with degrees of freedom after Satterthwaite.
    """
    paired = [sample.values for _, sample in terms]
    if all(values is not None for values in paired):
        shared = set.intersection(*(set(values) for values in paired if values is not None))
        if shared:
            sums = [fsum(c * (s.values or {})[key] for c, s in terms) for key in sorted(shared)]
            found, tested = summary_of(sums), _variance_over_test_rows(terms, sorted(shared))
            mean, error = found.mean, found.standard_error
            if error is None or not tested:
                return Effect(mean, error, len(sums) - 1, what)
            fitted = error**2
            freedom = (fitted + tested) ** 2 / (fitted**2 / (len(sums) - 1) + tested**2 / (RESAMPLES - 1))
            return Effect(mean, sqrt(fitted + tested), freedom, what)
    mean = fsum(c * sample.mean for c, sample in terms)
    variances = [(c * (sample.error or 0.0)) ** 2 for c, sample in terms]
    if any(sample.error is None for _, sample in terms) or not sum(variances):
        return Effect(mean, None, 0.0, what)
    weights = [v * v / max(1, sample.count - 1) for v, (_, sample) in zip(variances, terms, strict=True)]
    return Effect(mean, sqrt(sum(variances)), sum(variances) ** 2 / sum(weights), what)


def _variance_over_test_rows(terms: Sequence[Term], repeats: Sequence[int]) -> float:
    """Of the mean over repeats of sum_k c_k x_k, by the resamples; 0 where a sample has none."""
    if not all(repeat in sample.resampled for _, sample in terms for repeat in repeats):
        return 0.0
    columns = [(c / len(repeats), sample.resampled[repeat]) for c, sample in terms for repeat in repeats]
    moved = [fsum(c * values[k] for c, values in columns) for k in range(RESAMPLES)]
    center = fsum(moved) / RESAMPLES
    return fsum((value - center) ** 2 for value in moved) / (RESAMPLES - 1)


class Evidence(Protocol):
    """Where samples come from."""

    by_sign: bool  # whether differences of single runs count, which have no error

    def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
        """A measure of a line, at an intensity of shift or over all; None where there is none."""
        ...


class PaperEvidence:
    """The paper's tables. Ensembles are of 3 runs and single models of 6; shift and BB of one."""

    by_sign = True

    def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
        table = PAPER_TABLES.get(experiment)
        # The paper prints no table of the CNN: its figures for FMNIST are those of ResNet18.
        if table is None or level is not None or dataset == "fmnist-cnn" or dataset not in PAPER_NAMES:
            return None
        name = PAPER_NAMES[dataset] + ("-C" if table == "shift" else "")
        found = paper_value(table, name, line, measure.upper())
        if found is None:
            return None
        scale = 0.01 if measure.upper() in PERCENT else 1.0
        single = line.startswith(("NN", "MixupMP-single", "Mixup alpha", "Laplace"))
        runs = (6 if single else 3) if found[1] is not None else 1
        return Sample(scale * found[0], None if found[1] is None else scale * found[1], runs)


class RunEvidence:
    """What the experiments of one scale have written."""

    by_sign = False

    def __init__(self, folder: Path, scale: str, protocol: str = "text") -> None:
        self.folder, self.scale, self.protocol = folder, scale, protocol
        self._read: dict[tuple[str, str, str], Json] = {}

    def read(self, experiment: str, part: str, file: str) -> Json:
        """A results file, or None where it is not there."""
        key = (experiment, part, file)
        if key not in self._read:
            path = results_folder(self.folder, experiment, self.scale, part, self.protocol) / file
            try:
                self._read[key] = read_json(path) if path.exists() else None
            except BadRun:
                self._read[key] = None
        return self._read[key]

    def records(self) -> dict[str, dict[str, Json]]:
        """The run.json of every experiment of this scale, by its folder, with its lines that do not interpolate."""
        found = {}
        for path in sorted(self.folder.glob(f"*/{self.scale}/**/run.json")):
            lines = path.parent / "evaluations.json"
            listed = read_json(lines) if lines.exists() else []
            below = [one["label"] for one in listed if not comparable(one["repeats"])]
            found[path.parent.relative_to(self.folder).as_posix()] = {**read_json(path), "not comparable": below}
        return found

    def means(self, experiment: str, part: str, comparable_only: bool = False) -> dict[str, dict[str, float]]:
        """label -> measure -> mean, for all lines of an experiment or for those in the paper's regime."""
        found: dict[str, dict[str, float]] = {}
        for line in self.read(experiment, part, "evaluations.json") or ():
            if comparable_only and not comparable(line["repeats"]):
                continue
            label = canonical_label(line["group"], line["label"])
            for name in CONCORDANCE_MEASURES:
                values = [one[name] for one in line["repeats"] if one.get(name) is not None]
                if values:
                    found.setdefault(label, {})[name] = fsum(values) / len(values)
        return found

    def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
        dataset = part_of(dataset)
        if experiment.startswith("illustration"):
            return self._region(experiment, dataset, line, measure)
        first, _, other = line.partition(" against ")
        for one in self.read(experiment, dataset, "evaluations.json") or ():
            if canonical_label(one["group"], one["label"]) == first:
                runs = [
                    (run.get("seed", n), run if level is None else run.get("intensities", {}).get(str(level), {}))
                    for n, run in enumerate(one["repeats"])
                ]
                if measure.startswith("member"):
                    found = self._members(experiment, dataset, (first, other), measure)
                else:
                    found = _by_seed(runs, measure)
                within = measure == "training_accuracy" or comparable(one["repeats"])
                return None if found is None else replace(found, comparable=within)
        return None

    def _region(self, experiment: str, part: str, panel: str, region: str) -> Sample | None:
        """The mean uncertainty of a region of the 2-D example, by repeat; of one repeat with the jackknife's error."""
        for one in self.read(experiment, part, "regions.json") or ():
            if one["panel"].startswith(panel) and "repeats" in one:
                return Sample.of({repeat["seed"]: repeat[region] for repeat in one["repeats"]})
            if one["panel"].startswith(panel) and "standard_error" in one[region]:
                return Sample(
                    one[region]["mean"],
                    one[region]["standard_error"],
                    one["networks"] - one["diverged"] - one.get("collapsed", 0),
                )
        return None

    def _members(self, experiment: str, dataset: str, lines: tuple[str, str], measure: str) -> Sample | None:
        """By repeat, the mean over members of a measure at the end of training, or of |difference| to those of another.

        Members of one repeat share their training rows, so they are no replicates. A member that one of the lines has
        lost is left out of all of them: members are compared with those of the same start.
        """
        tracks = self.read(experiment, dataset, "members.json")
        if not tracks:
            return None
        ended = {name: _last_by_member(track, measure) for name, track in tracks.items()}
        shared = set.intersection(*(set(one) for one in ended.values()))
        one, other = lines
        values: dict[int, list[float]] = {}
        for key in sorted(shared):
            value = abs(ended[one][key] - ended[other][key]) if other else ended[one][key]
            values.setdefault(key[0], []).append(value)
        return Sample.of({seed: fsum(many) / len(many) for seed, many in values.items()}) if values else None


def _last_by_member(track: Sequence[dict[str, Json]], measure: str) -> dict[tuple[int, int], float]:
    """(seed, member) -> the measure after the last stage. Runs of version 0.1 have no prefix, seed or numbers."""
    last = max(one["stage"] for one in track)
    found = {}
    for repeat, one in enumerate(one for one in track if one["stage"] == last):
        values = one[measure] if measure in one else one.get(measure.removeprefix("member_"), ())
        numbers = one.get("members", range(len(values)))
        found.update({(one.get("seed", repeat), k): value for k, value in zip(numbers, values, strict=True)})
    return found


def part_of(dataset: str) -> str:
    """The folder of a dataset among the results of an experiment: none where the experiment has but one."""
    return "" if dataset in ("clusters", "known margins") else dataset


def canonical_label(group: str, label: str) -> str:
    """A line's label as the paper's tables have it; the ablation once wrote r and alpha apart."""
    if not group.startswith("alpha=") or not label.startswith("r="):
        return label
    if label == "r=0":
        return "DE"
    return f"Mixup Ensemble {group}" if label == "r=inf" else f"MixupMP {label} {group}"


def _by_seed(runs: Sequence[tuple[int, dict[str, Json]]], measure: str) -> Sample | None:
    """Runs of one seed, as two single models of a repeat are, count as their mean."""
    values: dict[int, list[float]] = {}
    moved: dict[int, list[list[int]]] = {}
    for seed, run in runs:
        if run.get(measure) is not None:
            values.setdefault(seed, []).append(run[measure])
            moved.setdefault(seed, []).append(run.get("resampled", {}).get(measure, []))
    means = {seed: fsum(many) / len(many) for seed, many in values.items()}
    resampled = {
        seed: [UNIT * sum(column) / len(many) for column in zip(*many, strict=True)]
        for seed, many in moved.items()
        if all(many)
    }
    return Sample.of(means, resampled) if means else None
