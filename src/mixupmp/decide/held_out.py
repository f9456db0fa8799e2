"""Rows that no member was trained on: how they are split off, and the loss of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from mixupmp.core.errors import check
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.rows import Rows
from mixupmp.core.seeds import generator
from mixupmp.core.split import LabeledRows, split
from mixupmp.core.streams import DatasetRows
from mixupmp.decide.calibrators import VarianceFactor
from mixupmp.metrics.checks import TINY
from mixupmp.metrics.regression import mixture_crps, mixture_nll

CRITERIA = ("nll", "brier", "error", "crps")


def check_criterion(criterion: str, likelihood: Categorical | Gaussian) -> None:
    """Refuse a criterion that is not defined for this likelihood."""
    known = ("nll", "brier", "error") if likelihood.classes else ("nll", "crps")
    check(criterion in known, "criterion", criterion, f"one of {', '.join(known)} for this likelihood")


def folds(
    rows: LabeledRows, validation: float | int, classes: bool, seed: int, parts: int = 1
) -> Iterator[tuple[LabeledRows, LabeledRows]]:
    """(training, held-out) rows: `parts` pairs for a share, k for a whole number k; stratified by class."""
    if isinstance(validation, float) and classes:
        yield from disjoint_parts(rows, validation, parts, seed)
        return
    order = torch.randperm(len(rows), generator=generator(seed, "folds"))
    if isinstance(validation, float):
        held = max(1, round(validation * len(rows)))
        for start in range(0, min(parts, len(rows) // held) * held, held):
            others = torch.cat([order[:start], order[start + held :]])
            yield rows.take(others.sort().values), rows.take(order[start : start + held].sort().values)
        return
    check(validation <= len(rows), "validation", validation, f"at most the {len(rows)} rows")
    if classes and rows.labels is not None:
        # Sorted by class, every k-th row goes to the same fold: each fold gets its share of every class.
        order = order[torch.argsort(rows.labels[order], stable=True)]
    fold = torch.empty(len(rows), dtype=torch.int64)
    fold[order] = torch.arange(len(rows)) % validation
    for number in range(validation):
        yield rows.take((fold != number).nonzero().squeeze(1)), rows.take((fold == number).nonzero().squeeze(1))


def disjoint_parts(rows: LabeledRows, share: float, parts: int, seed: int) -> Iterator[tuple[LabeledRows, LabeledRows]]:
    """(All other rows, a part with this share of the rows), for at most so many disjoint stratified parts."""
    assert rows.labels is not None  # see `streams.has_labels`
    yield split(rows, share, seed)
    count = round(share * len(rows))
    left, _ = split(Rows(torch.arange(len(rows)), rows.labels), share, seed)
    for _ in range(parts - 1):
        if count > len(left) - len(rows.labels.unique()):
            return
        left, part = split(left, count / len(left), seed)
        others = torch.ones(len(rows), dtype=torch.bool)
        others[part.inputs] = False
        yield rows.take(others.nonzero().squeeze(1)), rows.take(part.inputs)


def effective_weights(parts: Sequence[Rows]) -> Tensor:
    """The weights of these rows, which have no scale of their own, such that they sum to the effective number of rows,
    (sum w)^2 / sum w^2 (Kish 1965): rows of weights near zero are as good as left out.
    """
    weights = [torch.ones(len(rows)) if rows.weights is None else rows.weights for rows in parts]
    together = torch.cat(weights).cpu().double()
    return together * together.sum() / together.square().sum()


def class_losses(probabilities: Tensor, labels: Tensor, criterion: str) -> Tensor:
    """The loss of each row, for probabilities (rows, classes)."""
    if criterion == "error":
        return (probabilities.argmax(1) != labels).double()
    if criterion == "brier":
        return (probabilities - functional.one_hot(labels, probabilities.shape[1])).square().sum(1)
    return -probabilities.gather(1, labels[:, None]).squeeze(1).clamp(min=TINY).log()


def regression_losses(outputs: Tensor, labels: Tensor, criterion: str, variance: VarianceFactor) -> Tensor:
    """The loss of each row under the scaled mixture of the members' Gaussians, for outputs (members, rows, 2)."""
    measure = mixture_crps if criterion == "crps" else mixture_nll
    return measure(*variance(*Gaussian().moments(outputs.double())), labels.double())


def constant_losses(train: Rows | DatasetRows, held: Rows) -> Tensor:
    """The NLL of each held-out row under one Gaussian for all rows: mean and variance of the training rows' targets."""
    assert train.labels is not None  # see `streams.has_labels`
    targets = train.labels.double()
    share = torch.ones_like(targets) if train.weights is None else train.weights.double()
    share = share / share.sum()
    mean = share @ targets
    log_variance = (share @ (targets - mean).square()).log()
    return Gaussian().row_losses(torch.stack([mean, log_variance]), held.labels.double()[:, None])
