"""Under distribution shift: every measure over the intensity of 19 corruptions, and the full table of all methods."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset, Rows
from mixupmp.data import corrupted
from mixupmp.data.corrupted_sets import PUBLISHED, find_corrupted
from mixupmp.data.corruptions import CORRUPTIONS, SEVERITIES, unchanged_for_gray
from mixupmp.decide.calibrators import Temperature
from mixupmp.metrics import Scores, evaluate
from mixupmp.metrics.catalog import CALIBRATED
from mixupmp.metrics.text_tables import markdown_table
from mixupmp.paper.figures import bars_of, color_of, curve, explain, panels, save
from mixupmp.paper.lines import ALPHAS, Line, comparison_lines, open_choices
from mixupmp.paper.report import CALIBRATED_MEASURES, Evaluated, fitted_temperature, report_lines, summaries_of
from mixupmp.paper.resampling import deviations
from mixupmp.paper.settings import Setting, comparable, setting_named
from mixupmp.paper.study import Evaluation, Study
from mixupmp.paper.table import shown_metric
from mixupmp.plots.style import styled

TITLE = "distribution shift: curves over the intensity of corruptions, and the full table"
DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist", "cifar10"), "paper": ("cifar10", "cifar100", "fmnist")}
TEST_ROWS = {("smoke", "fmnist"): 60, ("cpu", "fmnist"): 1000, ("cpu", "cifar10"): 1000}
SETTINGS = {("cpu", "fmnist"): "fmnist-long"}  # whose networks without dropout interpolate on blends alone, too
SMOKE_CORRUPTIONS = ("gaussian_noise", "gaussian_blur", "contrast", "brightness")
MEASURES = ("acc", "nll", "ece", "oe", "ue", "entropy")
AFTER = tuple(f"{name}{CALIBRATED}" for name in CALIBRATED_MEASURES)
AT_ONCE = 128  # rows of a forward pass, whose images stay in a core's cache: a fifth faster than 512
CURVES = ("DE", "MixupMP r=0.1 alpha=2", "MixupMP r=1 alpha=2", "Mixup Ensemble alpha=2")


def lines(setting: Setting, scale: str) -> list[Line]:
    """All methods; at paper scale with all four alphas and, as in the paper, a single run of each."""
    if scale != "paper":
        return comparison_lines(setting, (2.0,))
    return [
        replace(line, repeats=1, runs=None if line.runs is None else line.runs[:1])
        for line in comparison_lines(setting, ALPHAS)
    ]


def work(dataset: str, scale: str) -> tuple[Setting, list[Line]]:
    place = (scale, dataset)
    setting = replace(setting_named(SETTINGS.get(place, dataset), scale), test_rows=TEST_ROWS.get(place))
    return setting, lines(setting, scale)


def run(study: Study, dataset: str) -> None:
    setting = study.setting(work(dataset, study.scale)[0])
    places, test = setting.test_indices, replace(setting.full, test=setting.test)
    chosen = SMOKE_CORRUPTIONS if study.scale == "smoke" else CORRUPTIONS
    gray = test.test.inputs.shape[1] == 1
    names = tuple(name for name in chosen if not (gray and unchanged_for_gray(name)))
    evaluated = report_lines(
        study,
        setting,
        lines(setting, study.scale),
        f"Under distribution shift, {setting.name}-C",
        (*MEASURES, *AFTER, "ece_by_corruption"),
        evaluator=lambda seed: Shifted(test, places, names, setting.calibration(seed)),
        paper=("shift", f"{setting.name}-C"),
        caption="The corruptions of one intensity are one test set; mean over intensities 1 to 5. ECE by corruption: "
        "of each corruption at each intensity by itself, then the mean; of so few rows it is largely noise, which a "
        "calibrated predictor would have too. Calibrated: by one temperature from clean rows not trained on.",
        differences=[*open_choices(setting), *differences(study.scale, test, names)],
    )
    study.write("corruptions.md", by_corruption(evaluated, names))
    draw(study, evaluated, setting.name)


def differences(scale: str, dataset: Dataset, names: tuple[str, ...]) -> list[str]:
    """From section 5.4 and appendix E.4."""
    found = [f"{len(names)} corruptions of each test row"]
    if scale != "paper":
        found.append("alpha = 2 alone, and every repeat, not a single run")
    if dataset.name not in PUBLISHED:
        found.append(f"the paper has no corrupted {dataset.name}: an extension")
    elif dataset.name == "cifar100":
        found.append("the paper counts 21 corruptions of CIFAR100-C, of which 19 are published")
    if not _published(dataset):
        found.append(
            "corruptions are computed by the published parameters, but for the textures of frost, which are not "
            "photographs, and the shading of spatter"
        )
    return found


def _published(dataset: Dataset) -> bool:
    """Whether the published corrupted images are there."""
    return dataset.name in PUBLISHED and find_corrupted(dataset.name) is not None


def by_corruption(evaluated: Evaluated, names: tuple[str, ...]) -> str:
    """ECE in percent of each line under each corruption, mean over intensities and runs."""
    rows = []
    for line, found in evaluated:
        means = [sum(one["corruptions"][name] for one in found) / len(found) for name in names]
        rows.append([line.label, *(f"{100 * mean:.2f}" for mean in means)])
    return f"## ECE (%) by corruption\n\n{markdown_table(['', *names], rows)}\n"


@dataclass(frozen=True, eq=False)
class Shifted:
    """Every measure at each intensity of shift, over all corruptions together and by corruption."""

    dataset: Dataset
    places: Tensor  # of its test rows in the publisher's test set
    names: tuple[str, ...]
    calibration: Rows | None = None  # clean rows that were not trained on, for one temperature

    @property
    def key(self) -> str:
        held_out = "" if self.calibration is None else f" calibrated {self.calibration.fingerprint()}"
        source = "published" if _published(self.dataset) else "computed"
        rows = f"{self.dataset.test.fingerprint()}{held_out}"
        return f"shift by corruption, each intensity resampled, {source} {','.join(self.names)} {rows}"

    def __call__(self, posterior: Posterior) -> Evaluation:
        temperature = fitted_temperature(posterior, self.calibration)
        clean, _ = self._scores(posterior, [self.dataset.test], temperature)
        shifted: list[Evaluation] = []
        by_corruption = dict.fromkeys(self.names, 0.0)
        for severity in SEVERITIES:
            # All corruptions of one intensity as one test set: bins of a few hundred rows would be mostly noise.
            many = [_corrupted(self.dataset, self.places, name, severity) for name in self.names]
            together, each = self._scores(posterior, many, temperature)
            shifted.append(together)
            for name, ece in zip(self.names, each, strict=True):
                by_corruption[name] += ece / len(SEVERITIES)
        return {
            **_mean_over_intensities(shifted),
            "ece_by_corruption": sum(by_corruption.values()) / len(by_corruption),
            "corruptions": by_corruption,
            "intensities": {str(level): one for level, one in enumerate((clean, *shifted))},
        }

    def _scores(
        self, posterior: Posterior, many: list[Rows], temperature: Temperature | None
    ) -> tuple[Evaluation, list[float]]:
        """The measures of all these rows together, also on resampled rows, and the ECE of each by itself."""
        scores, each, pooled = Scores(len(self.dataset.classes)), [], []
        for rows in many:
            members = posterior.member_probabilities(rows.inputs, AT_ONCE).cpu()
            scores.update(members, rows.labels)
            pooled.append(members.mean(0))
            each.append(float(evaluate(members, rows.labels)["ece"] or 0.0))
        found = scores.result().to_dict()
        labels = torch.cat([rows.labels for rows in many])
        moved = deviations(torch.cat(pooled), labels, MEASURES, copies=len(many))
        values = {name: float(found[name] or 0.0) for name in MEASURES}
        if temperature is not None:
            scaled = temperature(torch.cat(pooled))
            after, also = evaluate(scaled, labels), deviations(scaled, labels, CALIBRATED_MEASURES, copies=len(many))
            for name in CALIBRATED_MEASURES:
                values[f"{name}{CALIBRATED}"], moved[f"{name}{CALIBRATED}"] = float(after[name] or 0.0), also[name]
        return {**values, "resampled": moved}, each


def _mean_over_intensities(shifted: list[Evaluation]) -> Evaluation:
    """Of every measure, and of how much it changes on each resample."""
    moved: list[dict[str, list[int]]] = [one["resampled"] for one in shifted]
    columns = {name: zip(*(one[name] for one in moved), strict=True) for name in moved[0]}
    return {
        **{name: sum(one[name] for one in shifted) / len(shifted) for name in moved[0]},
        "resampled": {name: [round(sum(k) / len(k)) for k in each] for name, each in columns.items()},
    }


_MADE: dict[tuple[str, str, int], Rows] = {}


def _corrupted(dataset: Dataset, places: Tensor, name: str, severity: int) -> Rows:
    """A corrupted copy of the test rows, made once in each process; published files have the whole test set."""
    key = (dataset.test.fingerprint(), name, severity)
    if key not in _MADE:
        rows = corrupted(dataset, name, severity)
        _MADE[key] = rows if len(rows) == len(places) else rows.take(places)
    return _MADE[key]


def draw(study: Study, evaluated: Evaluated, name: str) -> None:
    """One panel for each measure: a curve over the intensity for each of the paper's four ensembles."""
    drawn = [(line, found) for line, found in evaluated if line.label in CURVES]
    with styled():
        figure, axes = panels(2, 3, 10, 5.6)
        for axis, measure in zip([axis for row in axes for axis in row], MEASURES, strict=True):
            metric = shown_metric(measure)
            # Binned measures of the clean rows alone have more noise, which adds to them, than those of 19 copies.
            pieces = ([0], range(1, 6)) if metric.binned is not None else (range(6),)
            for line, found in drawn:
                at = [summaries_of([one["intensities"][str(level)] for one in found])[measure] for level in range(6)]
                label, outside = line.label.replace("alpha", "α"), not comparable(found)
                for piece in pieces:
                    means = [metric.scale * at[level].mean for level in piece]
                    errors = [metric.scale * (at[level].standard_error or 0) for level in piece]
                    curve(axis, piece, means, errors, label, color_of(line.label), [outside] * len(piece))
                    label = "_"  # one entry of the legend
            axis.set_title(metric.column)
            axis.set_xlabel("intensity of the shift")
        explain(axes[0][0], bars_of(found for _, found in drawn), not all(comparable(found) for _, found in drawn))
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
        figure.suptitle(f"{name}-C: how each ensemble bears a growing shift")
    save(figure, study.folder, "curves")
