"""Under distribution shift: every measure over the intensity of 19 corruptions, and the full table of all methods."""

from __future__ import annotations

import time
from dataclasses import replace

from mixupmp.core.rows import Dataset
from mixupmp.data import corrupted
from mixupmp.data.corruptions import CORRUPTIONS, SEVERITIES, unchanged_for_gray
from mixupmp.metrics import Scores
from mixupmp.paper import Setting, Study, Wanted
from mixupmp.paper.figures import color_of, curve, pyplot, save
from mixupmp.paper.lines import ALPHAS, Line, comparison_lines, wanted_of
from mixupmp.paper.reporting import Evaluated, evaluate_lines, summaries_of, table_of, write_evaluations, write_table
from mixupmp.paper.settings import image_setting, subset
from mixupmp.paper.tables import MEASURES as SHOWN

TITLE = "distribution shift: curves over the intensity of corruptions, and the full table"
DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist", "cifar10"), "paper": ("cifar10", "cifar100", "fmnist")}
TEST_ROWS = {("smoke", "fmnist"): 60, ("cpu", "fmnist"): 1000, ("cpu", "cifar10"): 1000}
SMOKE_CORRUPTIONS = ("gaussian_noise", "gaussian_blur", "contrast", "brightness")
MEASURES = ("acc", "nll", "ece", "oe", "ue", "entropy")
CURVES = ("DE", "MixupMP r=0.1 alpha=2", "MixupMP r=1 alpha=2", "Mixup Ensemble alpha=2")


def lines(setting: Setting, scale: str) -> list[Line]:
    """All methods. The paper has a single run of each here; the curves' ensembles have all their repeats."""
    found = comparison_lines(setting, ALPHAS if scale == "paper" else (2.0,))
    return [line if line.label in CURVES else replace(line, repeats=line.repeats[:1]) for line in found]


def run(study: Study, dataset: str) -> None:
    started = time.time()
    setting = image_setting(dataset, study.scale)
    shifted = Shifted(setting.dataset, TEST_ROWS.get((study.scale, dataset)), study.scale)
    wanted = lines(setting, study.scale)
    study.train(wanted_of(wanted))
    # The curves first: with many rows the others take long, and what is done is kept.
    for line in [line for line in wanted if line.label in CURVES]:
        evaluate_lines(study, [line], lambda one: shifted.evaluate(study, one))
    evaluated, missing = evaluate_lines(study, wanted, lambda one: shifted.evaluate(study, one))
    reduced = f"{setting.reduced}; {len(shifted.dataset.test)} test rows under {len(shifted.names)} corruptions"
    caption = (
        f"{setting.describe()}. Reduced against the paper: {reduced}. The corruptions of one intensity are one test "
        "set; mean over intensities 1 to 5; in parentheses the standard error over repeats, where there are several."
    )
    if missing:
        caption += f" Not finished: {'; '.join(missing)}."
    title = f"Under distribution shift, {setting.name}-C"
    write_table(study, "table", table_of(evaluated, title, MEASURES, ("shift", f"{setting.name}-C"), caption))
    write_evaluations(study, "evaluations", evaluated)
    draw(study, evaluated, setting)
    study.record([reduced], setting.seeds, started, setting=setting.describe(), missing=missing)


class Shifted:
    """The corrupted copies of a test set, made when they are first needed and kept."""

    def __init__(self, dataset: Dataset, rows: int | None, scale: str) -> None:
        self.dataset = replace(dataset, test=subset(dataset.test, rows)) if rows else dataset
        gray = dataset.test.inputs.shape[1] == 1
        chosen = SMOKE_CORRUPTIONS if scale == "smoke" else CORRUPTIONS
        self.names = [name for name in chosen if not (gray and unchanged_for_gray(name))]
        self.made: dict[tuple[str, int], object] = {}

    def evaluate(self, study: Study, wanted: Wanted) -> dict:
        what = f"shift together {','.join(self.names)} {self.dataset.test.fingerprint()}"
        return study.kept(wanted, what, lambda: self._evaluate(study, wanted))

    def _evaluate(self, study: Study, wanted: Wanted) -> dict:
        """Every measure at each intensity, over all corruptions; and the mean over intensities 1 to 5."""
        posterior = study.cache.posterior(wanted)
        by_intensity = {"0": self._scores(posterior, [self.dataset.test])}
        for severity in SEVERITIES:
            by_intensity[str(severity)] = self._scores(posterior, [self._rows(name, severity) for name in self.names])
        shifted = [by_intensity[str(severity)] for severity in SEVERITIES]
        overall = {name: sum(one[name] for one in shifted) / len(shifted) for name in MEASURES}
        return {**overall, **study.training(wanted), "intensities": by_intensity}

    def _scores(self, posterior, many: list) -> dict[str, float]:
        """All corruptions of one intensity as one test set: bins of a few hundred rows would be mostly noise."""
        scores = Scores(len(self.dataset.classes))
        for rows in many:
            scores.update(posterior.member_probabilities(rows.inputs), rows.labels)
        found = scores.result().to_dict()
        return {name: found[name] for name in MEASURES}

    def _rows(self, name: str, severity: int):
        if (name, severity) not in self.made:
            self.made[name, severity] = corrupted(self.dataset, name, severity)
        return self.made[name, severity]


def draw(study: Study, evaluated: Evaluated, setting: Setting) -> None:
    """One panel for each measure: a curve over the intensity for each of the paper's four ensembles."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6))
    for axis, measure in zip(axes.flat, MEASURES, strict=True):
        heading, factor, _, _ = SHOWN[measure]
        for line, found in evaluated:
            if line.label not in CURVES:
                continue
            at = [summaries_of([one["intensities"][str(level)] for one in found])[measure] for level in range(6)]
            errors = [factor * (summary.standard_error or 0) for summary in at]
            label = line.label.replace("alpha", "α")
            curve(axis, range(6), [factor * s.mean for s in at], errors, label, color_of(line.label))
        axis.set_title(heading + (" (%)" if factor == 100 else ""))
        axis.set_xlabel("intensity of the shift")
    axes[0][0].legend(fontsize=7)
    figure.suptitle(f"{setting.name}: how each ensemble bears a growing shift", y=1.0)
    figure.tight_layout()
    save(figure, study.folder, "curves")
