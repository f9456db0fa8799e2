"""The catalog of metrics: every table, option, help text, report and claim reads what a metric is from here.

To add a metric, write its function (in a file of its own, or here) and one line of `_LISTED`. A metric with `per_row`
or `binned` is then evaluated wherever predictions of a classifier are, streamed and in any table or report; one with
neither is computed elsewhere (detection, regression, training) and listed so that it is shown in one way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixupmp.core.errors import UnknownName
from mixupmp.metrics.checks import TINY
from mixupmp.metrics.uncertainty import entropy, impurity, information_gain

PerRow = Callable[[Tensor, Tensor], Tensor]
Binned = Callable[[Tensor], Tensor]
CALIBRATED = "_calibrated"  # the ending of a metric of calibrated probabilities


@dataclass(frozen=True)
class Metric:
    """What a metric is called, how it is shown, which way is better, and how it is computed.

    Parameters
    ----------
    name
        The key in JSON, in `Result.values` and on the command line.
    heading
        The heading of a table's column, without the unit.
    title
        The name in a sentence.
    higher_is_better
        None for a description of the predictions, of which neither end is better.
    scale
        The factor between the value and what is shown: 100 for percent.
    digits
        Decimals shown.
    per_row
        ``(probabilities, labels) -> (rows,)``; the metric is the mean over rows. The probabilities are the mean over
        members, (rows, classes), or with ``needs_members`` those of all members, (members, rows, classes).
    of_mean
        ``(..., cells) -> (...)``: where `per_row` returns (rows, cells), the metric as a function of the mean over
        rows, for what is no mean itself, such as a calibration error of each class.
    binned
        ``(..., bins) -> (...)``: the metric as a function of |B_m|/n (Conf(B_m) - Acc(B_m)) in the bins B_m of equal
        width of the top confidence.
    standard
        Whether a table of classifiers shows it unless it says otherwise.
    """

    name: str
    heading: str
    title: str
    higher_is_better: bool | None = None
    scale: float = 1
    digits: int = 3
    per_row: PerRow | None = None
    of_mean: Callable[[Tensor], Tensor] | None = None
    binned: Binned | None = None
    needs_members: bool = False
    standard: bool = False

    def calibrated(self) -> Metric:
        """The same metric of calibrated probabilities."""
        return replace(self, name=self.name + CALIBRATED, heading=f"{self.heading} cal.")

    @property
    def percent(self) -> bool:
        """Whether it is shown in percent."""
        return self.scale == 100

    @property
    def column(self) -> str:
        """The heading with its unit: "ECE (%)"."""
        unit = "" if self.scale == 1 else " (%)" if self.percent else f" (x{self.scale:g})"
        return self.heading + unit

    @property
    def arrow(self) -> str:
        """Which way is better: "↑", "↓" or nothing."""
        return "" if self.higher_is_better is None else "↑" if self.higher_is_better else "↓"

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is, 0 where neither is."""
        return 0 if self.higher_is_better is None else 1 if self.higher_is_better else -1

    def format(self, value: float, digits: int | None = None) -> str:
        """The value as a table shows it: "4.67" for an ECE of .0467."""
        return f"{self.scale * value:.{self.digits if digits is None else digits}f}"

    def format_change(self, value: float) -> str:
        """A difference with its sign: "+1.20 points" for shares, "−0.013" for the others."""
        sign = "+" if value >= 0 else "−"
        return f"{sign}{self.format(abs(value))}{' points' if self.percent else ''}"


def _accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    return (probabilities.argmax(1) == labels).to(probabilities.dtype)


def _nll(probabilities: Tensor, labels: Tensor) -> Tensor:
    return -probabilities.gather(1, labels[:, None]).squeeze(1).clamp_min(TINY).log()


def _brier(probabilities: Tensor, labels: Tensor) -> Tensor:
    true = probabilities.gather(1, labels[:, None]).squeeze(1)
    return (probabilities.square().sum(1) - 2 * true + 1).clamp_min(0)


def _over(gaps: Tensor) -> Tensor:
    return gaps.clamp_min(0).sum(-1)


_LISTED = (
    Metric("acc", "ACC", "accuracy", True, 100, 2, per_row=_accuracy, standard=True),
    Metric("nll", "NLL", "NLL", False, per_row=_nll, standard=True),
    Metric("brier", "Brier", "Brier score", False, per_row=_brier, standard=True),
    Metric(
        "ece", "ECE", "calibration error", False, 100, 2, binned=lambda gaps: _over(gaps) + _over(-gaps), standard=True
    ),
    Metric("oe", "OE", "over-confidence error", False, 100, 2, binned=_over, standard=True),
    Metric("ue", "UE", "under-confidence error", False, 100, 2, binned=lambda gaps: _over(-gaps), standard=True),
    Metric("adaptive_ece", "Adaptive ECE", "adaptive calibration error", False, 100, 2),
    Metric("entropy", "Entropy", "entropy", per_row=lambda p, y: entropy(p)),
    Metric(
        "mutual_information",
        "Mutual information",
        "mutual information",
        per_row=lambda p, y: information_gain(p),
        needs_members=True,
    ),
    Metric("gini", "Gini", "Gini impurity", per_row=lambda p, y: impurity(p)),
    Metric("gini_rescaled", "Gini rescaled", "rescaled Gini impurity", per_row=lambda p, y: impurity(p, rescale=True)),
    Metric("training_accuracy", "train ACC", "training accuracy", None, 100, 2),
    Metric("auroc", "AUROC", "AUROC", True, 100, 2),
    Metric("aupr_out", "AUPR-out", "AUPR of the outside rows", True, 100, 2),
    Metric("aupr_in", "AUPR-in", "AUPR of the inside rows", True, 100, 2),
    Metric("fpr95", "FPR95", "FPR at 95% TPR", False, 100, 2),
    Metric("aurc", "AURC", "area under the risk-coverage curve", False, 1000, 2),
    Metric("acc_at_80", "ACC at 80%", "accuracy at 80% coverage", True, 100, 2),
    Metric("crps", "CRPS", "CRPS", False),
    Metric("rmse", "RMSE", "RMSE", False),
    Metric("mae", "MAE", "mean absolute error", False),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _LISTED}
"""Every metric by its name, in the order of tables."""


def standard_metrics() -> tuple[str, ...]:
    """The names of the metrics that a table of classifiers shows unless it says otherwise."""
    return tuple(name for name, metric in METRICS.items() if metric.standard)


def evaluated_metrics() -> tuple[str, ...]:
    """The names of the metrics that an evaluation of a classifier computes."""
    return tuple(name for name, metric in METRICS.items() if metric.per_row or metric.binned or name == "adaptive_ece")


def metric_named(name: str) -> Metric:
    """The metric of this name; with the ending `CALIBRATED`, as it is after calibration."""
    plain = name.removesuffix(CALIBRATED)
    if plain not in METRICS:
        raise UnknownName("metric", name, METRICS)
    return METRICS[plain] if plain == name else METRICS[plain].calibrated()


def confidence_gaps(confidence: Tensor, correct: Tensor, bins: int = 15) -> Tensor:
    """|B_m|/n (confidence - accuracy) of each bin of equal width (lower, upper], which `Metric.binned` takes.

    Parameters
    ----------
    confidence, correct
        The top probability of each row, and whether (0 or 1) its class is the label: (rows,).
    """
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64)
    return gaps.index_add_(0, place, confidence.double() - correct.double()) / max(1, len(confidence))
