"""Foreign inputs and selective answers: can the uncertainty tell what the network was not trained for, or gets wrong?

Trained on Fashion-MNIST; foreign are MNIST and, where sizes are matched, the embedded digits. The paper has no such
table; the measures are AUROC, AUPR and FPR95 for foreign inputs, and AURC for mistakes.
"""

from __future__ import annotations

import time
from dataclasses import asdict

import torch
from torch import Tensor

from mixupmp.data import load
from mixupmp.decide.abstain import rejection
from mixupmp.metrics import detection, gini, mutual_information, predictive_entropy
from mixupmp.paper import Setting, Study, Wanted
from mixupmp.paper.figures import color_of, pyplot, save
from mixupmp.paper.lines import Line, comparison_lines, wanted_of
from mixupmp.paper.reporting import Evaluated, evaluate_lines, table_of, write_evaluations, write_table
from mixupmp.paper.settings import fashion_mnist, subset

TITLE = "foreign inputs (AUROC, AUPR, FPR95) and selective prediction (AURC), FMNIST against MNIST and digits"
UNCERTAINTIES = {
    "entropy": predictive_entropy,
    "mutual information": mutual_information,
    "1 - confidence": lambda members: 1 - members.mean(0).amax(1),
    "1 - sum p^2": gini,
}
ROWS = 1000
KEPT = tuple(k / 20 for k in range(1, 21))


def foreign(setting: Setting, scale: str) -> dict[str, Tensor]:
    """Inputs of other datasets in the shape of this one's."""
    if scale == "smoke":
        return {"negatives": 255 - setting.dataset.test.inputs}
    digits = torch.nn.functional.interpolate(load("digits").test.inputs.float(), setting.shape[1:], mode="bilinear")
    return {"MNIST": subset(load("mnist").test, ROWS).inputs, "digits": digits.round().to(torch.uint8)}


def lines(setting: Setting) -> list[Line]:
    return comparison_lines(setting, (2.0,))


def run(study: Study) -> None:
    started = time.time()
    setting = fashion_mnist(study.scale, "cnn")
    inside = subset(setting.dataset.test, ROWS)
    outside = foreign(setting, study.scale)
    wanted = lines(setting)
    study.train(wanted_of(wanted))
    tag = f"foreign {inside.fingerprint()} {','.join(outside)}"
    evaluated, missing = evaluate_lines(
        study, wanted, lambda one: study.kept(one, tag, lambda: look(study, one, inside, outside))
    )
    report(study, setting, evaluated, tuple(outside), missing)
    study.record([setting.reduced], setting.seeds, started, setting=setting.describe(), missing=missing)


def look(study: Study, wanted: Wanted, inside, outside: dict[str, Tensor]) -> dict:
    """Detection by each uncertainty, and the accuracy-rejection curve by entropy."""
    posterior = study.cache.posterior(wanted)
    familiar = posterior.member_probabilities(inside.inputs)
    found = {}
    for name, inputs in outside.items():
        members = posterior.member_probabilities(inputs)
        for kind, uncertainty in UNCERTAINTIES.items():
            found[f"{name}: {kind}"] = asdict(detection(uncertainty(familiar), uncertainty(members)))
    correct = familiar.mean(0).argmax(1) == inside.labels
    kept = rejection(predictive_entropy(familiar), correct, len(KEPT))
    first = next(iter(outside))
    return {
        **found[f"{first}: entropy"],
        "aurc": kept.aurc,
        "acc": float(correct.float().mean()),
        "acc_at_80": kept.accuracy[min(range(len(kept.kept)), key=lambda k: abs(kept.kept[k] - 0.8))],
        "curve": {"kept": kept.kept, "accuracy": kept.accuracy},
        "detection": found,
        **study.training(wanted),
    }


def report(study: Study, setting: Setting, evaluated: Evaluated, outside: tuple[str, ...], missing: list) -> None:
    note = f"{setting.describe()}. Reduced: {setting.reduced}; {ROWS} rows of each test set at most."
    if missing:
        note += f" Not finished: {'; '.join(missing)}."
    measures = ("auroc", "aupr_out", "aupr_in", "fpr95", "aurc", "acc_at_80")
    caption = f"{note} Foreign: {outside[0]}, by predictive entropy; AURC and accuracy at 80% coverage by entropy too."
    write_table(study, "table", table_of(evaluated, "Foreign inputs and selective answers", measures, None, caption))
    for name in outside:
        for kind in UNCERTAINTIES:
            each = [
                (line, [{**one, **one["detection"][f"{name}: {kind}"]} for one in many]) for line, many in evaluated
            ]
            title = f"{setting.name} against {name} by {kind}"
            made = table_of(each, title, measures[:4], None, note)
            file = f"{name}-{kind}".lower().replace(" ", "-").replace("^", "")
            quiet = study.on(study.part)
            quiet.say = lambda text: None
            write_table(quiet, file, made)
    write_evaluations(study, "evaluations", evaluated)
    draw(study, evaluated)


def draw(study: Study, evaluated: Evaluated) -> None:
    """Accuracy of the answers that are given, when the least sure are withheld."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.6, 3.8))
    shown = ("NN", "DE", "MixupMP r=0.1", "MixupMP r=1", "Mixup Ensemble", "MC Dropout")
    for line, many in evaluated:
        if not line.label.startswith(shown):
            continue
        accuracy = torch.tensor([one["curve"]["accuracy"] for one in many]).mean(0) * 100
        rejected = [100 * (1 - share) for share in many[0]["curve"]["kept"]]
        label = line.label.replace("alpha", "α")
        axis.plot(rejected, accuracy.tolist(), label=label, color=color_of(line.label), linewidth=1.5)
    axis.set(xlabel="rejected, least sure first (%)", ylabel="accuracy of the rest (%)")
    axis.set_title("Withholding the unsure answers: who gains most?")
    axis.legend(fontsize=7)
    save(figure, study.folder, "rejection")
