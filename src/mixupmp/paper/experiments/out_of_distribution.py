"""Foreign inputs and selective answers: does the uncertainty show what the network was not trained for, or gets wrong?

Trained on Fashion-MNIST; foreign are MNIST, notMNIST and the embedded digits, enlarged. The paper has no such table.
The measures are AUROC, AUPR and FPR95 for foreign inputs, and AURC for mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.data import load
from mixupmp.decide.abstain import rejection
from mixupmp.metrics import detection, gini, mutual_information, predictive_entropy
from mixupmp.metrics.comparison import summary_of
from mixupmp.paper.figures import bars_of, color_of, curve, explain, panels, save
from mixupmp.paper.lines import Line, comparison_lines, open_choices
from mixupmp.paper.report import Evaluated, report_lines, table_of, write_table
from mixupmp.paper.settings import Setting, comparable, setting_named, subset_indices
from mixupmp.paper.study import Evaluation, Study
from mixupmp.plots.style import styled

TITLE = "foreign inputs (AUROC, AUPR, FPR95) and selective prediction (AURC), FMNIST against MNIST, notMNIST and digits"
IN_PAPER = False
UNCERTAINTIES: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": predictive_entropy,
    "mutual information": mutual_information,
    "1 - confidence": lambda members: 1 - members.mean(0).amax(1),
    "1 - sum p^2": gini,
}
MEASURES = ("auroc", "aupr_out", "aupr_in", "fpr95", "aurc", "acc_at_80")
ROWS = 1000
STEPS = 20  # of the accuracy-rejection curve
CURVES = ("NN", "DE", "MixupMP r=0.1", "MixupMP r=1", "Mixup Ensemble", "MC Dropout")


@dataclass(frozen=True, eq=False)
class OtherInputs:
    """Detection of foreign inputs by each uncertainty, and the accuracy-rejection curve by entropy."""

    inside: Rows
    outside: dict[str, Tensor]

    @property
    def key(self) -> str:
        return f"foreign {self.inside.fingerprint()} {','.join(self.outside)}"

    def __call__(self, posterior: Posterior) -> Evaluation:
        familiar = posterior.member_probabilities(self.inside.inputs).cpu()
        found = {}
        for name, inputs in self.outside.items():
            members = posterior.member_probabilities(inputs).cpu()
            for kind, uncertainty in UNCERTAINTIES.items():
                found[f"{name}: {kind}"] = asdict(detection(uncertainty(familiar), uncertainty(members)))
        correct = familiar.mean(0).argmax(1) == self.inside.labels
        kept = rejection(predictive_entropy(familiar), correct, STEPS)
        return {
            **found[f"{next(iter(self.outside))}: entropy"],
            "aurc": kept.aurc,
            "acc": float(correct.float().mean()),
            "acc_at_80": kept.accuracy[min(range(len(kept.kept)), key=lambda k: abs(kept.kept[k] - 0.8))],
            "curve": {"kept": kept.kept, "accuracy": kept.accuracy},
            "detection": found,
        }


def foreign_inputs(setting: Setting, scale: str) -> dict[str, Tensor]:
    """Inputs of other datasets in the shape of this one's."""
    if scale == "smoke":
        return {"negatives": 255 - setting.test.inputs}
    size = setting.test.inputs.shape[2:]
    enlarged = torch.nn.functional.interpolate(load("digits").test.inputs.float(), size, mode="bilinear")
    others = {name: load(name.lower()).test for name in ("MNIST", "notMNIST")}
    some = {name: rows.inputs[subset_indices(rows, ROWS)] for name, rows in others.items()}
    return some | {"digits": enlarged.round().to(torch.uint8)}


def work(dataset: str, scale: str) -> tuple[Setting, list[Line]]:
    setting = setting_named("fmnist-cnn", scale)
    return setting, comparison_lines(setting, (2.0,))


def run(study: Study) -> None:
    setting = study.setting(setting_named("fmnist-cnn", study.scale))
    inside = setting.full.test.take(subset_indices(setting.full.test, ROWS))
    outside = foreign_inputs(setting, study.scale)
    evaluator = OtherInputs(inside, outside)
    evaluated = report_lines(
        study,
        setting,
        comparison_lines(setting, (2.0,)),
        "Foreign inputs and selective answers",
        MEASURES,
        evaluator=lambda seed: evaluator,
        caption=f"Foreign: {next(iter(outside))}, by predictive entropy; AURC and accuracy at 80% coverage too.",
        differences=[
            *open_choices(setting),
            "an extension: the paper has no such table",
            f"at most {ROWS} rows of each test set",
        ],
    )
    for name in outside:
        for kind in UNCERTAINTIES:
            each = [(line, [one | one["detection"][f"{name}: {kind}"] for one in many]) for line, many in evaluated]
            file = f"{name}-{kind}".lower().replace(" ", "-").replace("^", "")
            title = f"{setting.name} against {name} by {kind}"
            write_table(study.quietly(), file, table_of(each, title, MEASURES[:4]))
    draw(study, evaluated, setting.name)


def draw(study: Study, evaluated: Evaluated, name: str) -> None:
    """Accuracy of the answers that are given, when the least sure are withheld; lines outside the regime are hollow."""
    drawn = [(line, many) for line, many in evaluated if line.label.startswith(CURVES)]
    with styled():
        figure, ((axis,),) = panels(1, 1, 6.4, 4.4)
        for line, many in drawn:
            at = [summary_of(values) for values in zip(*(one["curve"]["accuracy"] for one in many), strict=True)]
            rejected = [100 * (1 - share) for share in many[0]["curve"]["kept"]]
            means = [100 * summary.mean for summary in at]
            errors = [100 * (summary.standard_error or 0.0) for summary in at]
            label, hollow = line.label.replace("alpha", "α"), [not comparable(many)] * len(means)
            curve(axis, rejected, means, errors, label, color_of(line.label), hollow)
        axis.set(xlabel="rejected, least sure first (%)", ylabel="accuracy of the rest (%)")
        axis.set_title(f"{name}: who gains most by withholding unsure answers?")
        explain(axis, bars_of(many for _, many in drawn), not all(comparable(many) for _, many in drawn))
        axis.legend(fontsize=7)
    save(figure, study.folder, "rejection")
