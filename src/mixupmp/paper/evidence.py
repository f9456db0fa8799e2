"""What the ledger weighs: samples of our runs, paired by repeat, and what the paper's tables print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Protocol

from mixupmp.core.files import read_json
from mixupmp.core.foreign import Json
from mixupmp.paper.effects import Sample
from mixupmp.paper.reference import (
    CONCORDANCE_MEASURES,
    PERCENT,
    SINGLE,
    PaperTable,
    group_of,
    paper_figures,
    paper_value,
    ratio_of,
)
from mixupmp.paper.resampling import UNIT
from mixupmp.paper.settings import comparable, on_shared_repeats
from mixupmp.paper.study import results_folder

PAPER_TABLES: dict[str, PaperTable] = {
    "comparison": "in_distribution",
    "ablation": "in_distribution",
    "shift": "shift",
    "bb-vs-de": "bb_vs_de",
}
PAPER_NAMES = {
    "fmnist": "FMNIST",
    "fmnist-alphas": "FMNIST",
    "fmnist-long": "FMNIST",
    "fmnist-full": "FMNIST",
    "fmnist-cnn": "FMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "mnist": "MNIST",
}
LONGER = {"fmnist": "fmnist-long"}
"""Runs with the same rows and twice the epochs, in which more lines interpolate."""


class Evidence(Protocol):
    """Where samples come from."""

    by_sign: bool  # whether differences of single runs count, which have no error

    def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
        """A measure of a line, at an intensity of shift or over all; None where there is none."""
        ...

    def expects(self, experiment: str, dataset: str, line: str) -> bool:
        """Whether a line of which there is no sample was not run, rather than being none of theirs."""
        ...

    def longer(self, dataset: str) -> str | None:
        """Runs of this dataset with longer training, for cases of lines that do not interpolate in the shorter."""
        ...


class PaperEvidence:
    """The paper's tables. Ensembles are of 3 runs and single models of 6; shift and BB of one.

    With `by_sign`, single runs decide by the sign of their difference, which is less than a test.
    """

    def __init__(self, by_sign: bool = False) -> None:
        self.by_sign = by_sign

    def expects(self, experiment: str, dataset: str, line: str) -> bool:
        """No line: what the paper does not print is not counted."""
        return False

    def longer(self, dataset: str) -> str | None:
        """None: all lines of the paper count."""
        return None

    def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
        table = PAPER_TABLES.get(experiment)
        # The paper prints no table of the CNN: its figures for FMNIST are those of ResNet18.
        if table is None or level is not None or dataset == "fmnist-cnn" or dataset not in PAPER_NAMES:
            return None
        found = paper_value(table, _paper_name(table, dataset), line, measure.upper())
        if found is None:
            return None
        scale = 0.01 if measure.upper() in PERCENT else 1.0
        runs = (6 if group_of(line) == SINGLE else 3) if found[1] is not None else 1
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
            self._read[key] = read_json(path) if path.exists() else None
        return self._read[key]

    def records(self) -> dict[str, dict[str, Json]]:
        """The run.json of every experiment of this scale, by its folder, with its lines that do not interpolate."""
        found = {}
        scale = results_folder(self.folder, "any", self.scale, "", self.protocol).name
        for path in sorted(self.folder.glob(f"*/{scale}/**/run.json")):
            lines = path.parent / "evaluations.json"
            listed = read_json(lines) if lines.exists() else []
            below = [one["label"] for one in listed if not comparable(one["repeats"])]
            found[path.parent.relative_to(self.folder).as_posix()] = {**read_json(path), "not comparable": below}
        return found

    def means(
        self,
        experiment: str,
        part: str,
        comparable_only: bool = False,
        without: int | None = None,
        resample: int | None = None,
    ) -> dict[str, dict[str, float]]:
        """label -> measure -> mean, for all lines of an experiment or for those in the paper's regime.

        For its error: the same without the repeat of this seed, or on this resample of the test rows.
        """
        found: dict[str, dict[str, float]] = {}
        lines = self.read(experiment, part, "evaluations.json") or ()
        shared = on_shared_repeats([line["repeats"] for line in lines])
        for line, repeats in zip(lines, shared, strict=True):
            if comparable_only and not comparable(line["repeats"]):
                continue
            label = line["label"]
            kept = [one for one in repeats if without is None or one.get("seed") != without]
            for name in CONCORDANCE_MEASURES:
                values = [one[name] + _moved(one, name, resample) for one in kept if one.get(name) is not None]
                if values:
                    found.setdefault(label, {})[name] = fsum(values) / len(values)
        return found

    def shared_seeds(self, experiment: str, part: str) -> list[int]:
        """The repeats that all lines of an experiment have."""
        lines = self.read(experiment, part, "evaluations.json") or ()
        seeds = [{one.get("seed") for one in line["repeats"]} for line in lines]
        return sorted(set.intersection(*seeds) - {None}) if seeds else []

    def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
        dataset = part_of(dataset)
        if experiment.startswith("illustration"):
            return self._region(experiment, dataset, line, measure)
        first, _, other = line.partition(" against ")
        for one in self.read(experiment, dataset, "evaluations.json") or ():
            if one["label"] == first:
                runs = [
                    (run.get("seed", n), run if level is None else run.get("intensities", {}).get(str(level), {}))
                    for n, run in enumerate(one["repeats"])
                ]
                if measure.startswith("member"):
                    found = self._members(experiment, dataset, (first, other), measure)
                else:
                    found = Sample.of_runs(runs, measure)
                within = measure == "training_accuracy" or comparable(one["repeats"])
                return None if found is None else replace(found, comparable=within)
        return None

    def expects(self, experiment: str, dataset: str, line: str) -> bool:
        """All lines but those of an r that neither the paper's tables nor the experiment on this dataset have.

        The ablation has more values of r than the paper's tables; these are ours, and not for every dataset.
        """
        record = self.read(experiment, part_of(dataset), "run.json") or {}
        printed = {ratio_of(label) for lines in paper_figures()["in_distribution"].values() for label in lines}
        return ratio_of(line) in printed or "lines" not in record or line in record["lines"]

    def longer(self, dataset: str) -> str | None:
        """Those that `LONGER` names."""
        return LONGER.get(dataset)

    def _region(self, experiment: str, part: str, panel: str, region: str) -> Sample | None:
        """The mean uncertainty of a region of the 2-D example, by repeat."""
        for one in self.read(experiment, part, "regions.json") or ():
            if not re.match(re.escape(panel) + r"(?![\d.])", one["panel"]):  # "r = 1" is not "r = 10"
                continue
            return Sample.of({repeat["seed"]: repeat[region] for repeat in one["repeats"]})
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


def _paper_name(table: PaperTable, dataset: str) -> str:
    """What one of the paper's tables calls a dataset."""
    return PAPER_NAMES[dataset] + ("-C" if table == "shift" else "")


def _moved(one: Mapping[str, Json], name: str, resample: int | None) -> float:
    """How much a measure changes on a resample of the test rows."""
    changes = one.get("resampled", {}).get(name)
    return UNIT * changes[resample] if changes and resample is not None else 0.0


def _last_by_member(track: Sequence[dict[str, Json]], measure: str) -> dict[tuple[int, int], float]:
    """(seed, member) -> the measure after the last stage."""
    last = max(one["stage"] for one in track)
    return {
        (one["seed"], number): value
        for one in track
        if one["stage"] == last
        for number, value in zip(one["members"], one[measure], strict=True)
    }


def part_of(dataset: str) -> str:
    """The folder of a dataset among the results of an experiment: none where the experiment has but one."""
    return "" if dataset in ("clusters", "known margins") else dataset
