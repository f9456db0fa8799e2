"""How unsure a posterior is about each row (larger is less sure), how well that tells rows from outside the training
distribution, and the margin of the paper's appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.metrics.checks import TINY, as_floats, checked_labels, checked_probabilities, pooled


def entropy(probabilities: Tensor) -> Tensor:
    """-sum_k p_k log p_k over the last dimension, of probabilities that were checked before."""
    # Three times faster than torch.special.entr, which has no vectorized kernel.
    return (-probabilities.clamp_min(TINY).log_().mul_(probabilities).sum(-1)).clamp_min_(0)


def information_gain(members: Tensor) -> Tensor:
    """`mutual_information` of (members, rows, classes) that were checked before; a member at a time, to save memory."""
    each = torch.stack([entropy(member) for member in members]).mean(0)
    return entropy(members.mean(0)).sub_(each).clamp_min_(0)


def impurity(probabilities: Tensor, rescale: bool = False) -> Tensor:
    """`gini` of (rows, classes) that were checked before."""
    classes = probabilities.shape[-1]
    found = (1 - probabilities.square().sum(-1)).clamp_min_(0)
    return found * (classes / (classes - 1)) if rescale else found


@torch.no_grad()
def predictive_entropy(probabilities: Tensor) -> Tensor:
    """The entropy -sum_k p_k log p_k of each row, in nats: total uncertainty.

    Parameters
    ----------
    probabilities
        (rows, classes), or (members, rows, classes), whose mean over members is taken.
    """
    return entropy(pooled(checked_probabilities(probabilities, members=None)))


@torch.no_grad()
def mutual_information(member_probabilities: Tensor) -> Tensor:
    """H(mean_b p_b) - mean_b H(p_b) of each row, in nats: epistemic uncertainty (Houlsby et al., 2011, BALD).

    Zero where all members agree, at most log(members).

    Parameters
    ----------
    member_probabilities
        (members, rows, classes).
    """
    return information_gain(checked_probabilities(member_probabilities, members=True, name="member_probabilities"))


@torch.no_grad()
def variation_ratio(member_probabilities: Tensor) -> Tensor:
    """1 - (votes for the most voted class)/B of each row (Freeman, 1965), from (members, rows, classes)."""
    values = checked_probabilities(member_probabilities, members=True, name="member_probabilities")
    members, rows, classes = values.shape
    votes = torch.zeros(rows, classes, dtype=values.dtype, device=values.device)
    for member in values:
        votes.scatter_add_(1, member.argmax(1, keepdim=True), votes.new_ones(rows, 1))
    return 1 - votes.amax(1) / members


@torch.no_grad()
def gini(probabilities: Tensor, rescale: bool = False) -> Tensor:
    """The Gini impurity 1 - sum_k p_k^2 of each row, the uncertainty of the paper's 2-D figures.

    Parameters
    ----------
    probabilities
        (rows, classes), or (members, rows, classes), whose mean over members is taken.
    rescale
        Multiply by K/(K-1), so that it runs from 0 to 1 as the paper shows it.
    """
    return impurity(pooled(checked_probabilities(probabilities, members=None)), rescale)


@torch.no_grad()
def normalized_margin(logits: Tensor, labels: Tensor, parameters: Iterable[Tensor], order: float) -> float:
    """min_i (f_y(x_i) - max_{k != y} f_k(x_i)) / ||theta||_2^L, the margin that DE and stabilized BB both maximize.

    The multi-class form of the paper's appendix A (after Lyu & Li, 2020). It does not change when all weights are
    multiplied by one number, and is negative while any row is misclassified.

    Parameters
    ----------
    order
        L with f_{c theta}(x) = c^L f_theta(x): for a ReLU network without biases, its number of layers with weights.
    """
    check(order > 0, "order", order, "positive: the number of layers of a network without biases")
    values = as_floats(logits, "logits").double()
    check(values.ndim == 2 and values.shape[1] >= 2, "logits", tuple(values.shape), "of shape (rows, classes)")
    if values.shape[0] == 0 or not bool(torch.isfinite(values).all()):
        raise BadData("logits must be finite and of at least one row.")
    places = checked_labels(labels, *values.shape).to(values.device)[:, None]
    true = values.gather(1, places)
    rival = values.scatter(1, places, -torch.inf).amax(1, keepdim=True)
    squares = math.fsum(float(tensor.detach().double().square().sum()) for tensor in parameters)
    check(squares > 0, "parameters", squares, "the network's weights, not all zero (this is their squared norm)")
    return float((true - rival).min()) / math.pow(squares, order / 2)


@dataclass(frozen=True)
class Detection:
    """Metrics of detection; with equal uncertainties everywhere AUROC is .5 and FPR95 is 1."""

    auroc: float  # P(an outside row is less sure than an inside one), ties counted half
    aupr_out: float  # average precision with the outside rows as the positives
    aupr_in: float  # average precision with the inside rows as the positives
    fpr95: float  # the share of outside rows accepted as inside when 95% of the inside rows are


def detection(inside: Tensor, outside: Tensor) -> Detection:
    """AUROC, AUPR and FPR95 from the uncertainties of inside and outside rows (Hendrycks & Gimpel, 2017).

    FPR95 takes the inside rows as the positives: the threshold is the lowest uncertainty that accepts at least 95% of
    them, and rows of equal uncertainty are accepted together (Liang et al., 2018).

    Parameters
    ----------
    inside, outside
        (rows,); larger means less sure: entropy, mutual information, 1 - confidence.

    Returns
    -------
    Detection
        `auroc`, `aupr_in`, `aupr_out` and `fpr95`.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve  # takes a second to import

    within, beyond = _scores(inside, "inside"), _scores(outside, "outside")
    uncertainty = np.concatenate([within, beyond])
    uncertainty = np.unique(uncertainty, return_inverse=True)[1]  # ranks: scikit-learn takes no infinity
    is_inside = np.repeat((True, False), (len(within), len(beyond)))
    accepted_outside, accepted_inside, _ = roc_curve(is_inside, -uncertainty, drop_intermediate=False)
    enough = np.rint(accepted_inside * len(within)) * 100 >= 95 * len(within)  # in whole rows, free of rounding
    return Detection(
        auroc=float(roc_auc_score(~is_inside, uncertainty)),
        aupr_out=float(average_precision_score(~is_inside, uncertainty)),
        aupr_in=float(average_precision_score(is_inside, -uncertainty)),
        fpr95=float(accepted_outside[enough].min()),
    )


def _scores(values: Tensor, name: str) -> NDArray[np.float64]:
    scores = as_floats(values, name).double().cpu()
    check(scores.ndim == 1, name, tuple(scores.shape), "of shape (rows,), one uncertainty for each row")
    if len(scores) == 0 or bool(scores.isnan().any()):
        raise BadData(f"{name} must hold at least one uncertainty and no NaN.")
    return scores.numpy()
