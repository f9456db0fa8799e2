"""Does a posterior doubt where people doubt? Predictions against the labels that many people gave each test image.

Fashion-MNIST-H (Ishida et al. 2023) has about 67 labels of each Fashion-MNIST test image, CIFAR-10H (Peterson et al.
2019) about 51 of each CIFAR-10 one. The measures are the cross-entropy of the human distribution h under the
prediction p, -sum_k h_k log p_k, raw and after calibration on the usual labels, and the rank correlation of the two
entropies over images. The paper has no such table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from mixupmp.core.errors import DataNotFound
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.data.files import roots
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.metrics import evaluate
from mixupmp.paper.lines import Line, comparison_lines, open_choices
from mixupmp.paper.report import report_lines
from mixupmp.paper.settings import Setting, setting_named
from mixupmp.paper.study import Evaluation, Study

TITLE = "does it doubt where people doubt? Fashion-MNIST-H and CIFAR-10H"
IN_PAPER = False
DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist", "cifar10"), "paper": ("fmnist", "cifar10")}
FILES = {"fmnist": "fashion-mnist-h.npz", "cifar10": "cifar-10h.npz"}
MEASURES = ("human_cross_entropy", "human_cross_entropy_calibrated", "entropy_rank", "nll", "acc")


@dataclass(frozen=True, eq=False)
class AgainstPeople:
    """Cross-entropy of human labels and rank correlation of entropies."""

    rows: Rows
    people: Tensor  # (rows, classes): the share of people who chose each class
    calibration: Rows | None

    @property
    def key(self) -> str:
        people = Rows(self.people, self.rows.labels).fingerprint()
        held_out = "" if self.calibration is None else self.calibration.fingerprint()
        return f"people {self.rows.fingerprint()} {people} {held_out}"

    def __call__(self, posterior: Posterior) -> Evaluation:
        pooled = posterior.probabilities(self.rows.inputs).cpu()
        usual = evaluate(pooled, self.rows.labels)
        found = {
            "acc": usual["acc"],
            "nll": usual["nll"],
            "human_cross_entropy": cross_entropy(self.people, pooled),
            "entropy_rank": float(spearmanr(entropy(self.people), entropy(pooled)).statistic),
        }
        if self.calibration is not None:
            held_out = posterior.probabilities(self.calibration.inputs).cpu()
            calibrated = fit_temperature(held_out, self.calibration.labels, standard_errors=None)(pooled)
            found["human_cross_entropy_calibrated"] = cross_entropy(self.people, calibrated)
        return found


def cross_entropy(people: Tensor, predicted: Tensor) -> float:
    """-sum_k h_k log p_k, mean over rows."""
    return float(-(people * predicted.double().clamp_min(1e-12).log()).sum(1).mean())


def entropy(probabilities: Tensor) -> Tensor:
    """-sum_k p_k log p_k of each row."""
    values = probabilities.double()
    return -torch.xlogy(values, values).sum(1)


def human_shares(dataset: str, setting: Setting, scale: str) -> Tensor:
    """The share of people who chose each class, for the test rows of a setting."""
    if scale == "smoke":  # no people: from half of them to all choose the label, the others any class
        sure = torch.linspace(0.5, 1, len(setting.test), dtype=torch.float64)[:, None]
        return torch.nn.functional.one_hot(setting.test.labels, 10) * sure + (1 - sure) / 10
    places = [root / "human" / FILES[dataset] for root in roots()]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        listed = ", ".join(map(str, places))
        raise DataNotFound(f"there are no human labels of {dataset}: looked for {listed}. Put the file into one.")
    counts = torch.from_numpy(np.load(found)["counts"].astype("float64"))[setting.test_indices]
    return counts / counts.sum(1, keepdim=True)


def work(dataset: str, scale: str) -> tuple[Setting, list[Line]]:
    setting = setting_named(dataset, scale)
    return setting, comparison_lines(setting, (2.0,))


def run(study: Study, dataset: str) -> None:
    setting = study.setting(setting_named(dataset, study.scale))
    people = human_shares(dataset, setting, study.scale)
    report_lines(
        study,
        setting,
        comparison_lines(setting, (2.0,)),
        f"Against what people said, {setting.name}",
        MEASURES,
        evaluator=lambda seed: AgainstPeople(setting.test, people, setting.calibration(seed)),
        caption="Human CE: cross-entropy of the labels that people gave; its least value is their own entropy.",
        differences=[*open_choices(setting), "an extension: the paper has no such table"],
    )
