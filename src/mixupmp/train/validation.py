"""Evaluation on the validation rows after each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.given_network import in_eval_mode
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import some_rows
from mixupmp.metrics.scores import Scores


def over_confidence(network: nn.Module, plan: Plan) -> Tensor:
    """Mean confidence minus accuracy on the validation rows of each class; zero where a class has none.

    Computed on the posterior of this network, with its dropout masks: that is what is to be calibrated.
    """
    assert plan.validation is not None
    classes, validation = plan.task.require_classes("for over-confidence"), plan.validation.to(plan.device)
    with _restored(network):
        posterior = plan.method.sampler.posterior([network], plan.task, plan.training_data(), plan.seed)
        members = posterior.member_probabilities(validation.inputs, check_finite=False)
        confidence, predicted = members.mean(0).cpu().max(1)
    labels = plan.validation.labels
    gap = confidence - (predicted == labels).float()
    total = torch.zeros(classes).index_add_(0, labels, gap)
    count = torch.bincount(labels, minlength=classes)
    return total / count.clamp(min=1)


def validation_record(network: nn.Module, plan: Plan) -> dict[str, object]:
    """Validation loss and accuracy of this network by itself, for its history."""
    assert plan.validation is not None
    if plan.task.likelihood.classes is None:
        return {}
    with _restored(network):
        inputs = plan.validation.to(plan.device).inputs
        outputs = EnsemblePosterior([network], plan.task, 1).member_outputs(inputs, check_finite=False)[0]
    return validation_scores(outputs.cpu(), plan.validation.labels)


VOTES = 500  # validation rows on which members' predictions are compared while they train


def validation_scores(outputs: Tensor, labels: Tensor) -> dict[str, object]:
    """Scores for the history, and `votes`: the predicted classes of the first rows, for callbacks only."""
    return {
        "votes": outputs[:VOTES].argmax(1).tolist(),
        "validation_nll": float(functional.cross_entropy(outputs, labels)),
        "validation_accuracy": float((outputs.argmax(1) == labels).float().mean()),
        "validation_ece": Scores(outputs.shape[1]).update(outputs.softmax(1), labels).result().ece,
    }


def take_votes(record: dict[str, object], step: int) -> dict[str, object]:
    """A copy of an epoch's record for callbacks, with its step; the votes are removed from the record itself."""
    reported = {**record, "step": step}
    record.pop("votes", None)
    return reported


PROBED_ROWS = 256  # training rows on which outputs are compared with each other


def probed_inputs(plan: Plan) -> Tensor:
    """Standardized inputs of evenly spaced training rows, on which `outputs_constant` is decided."""
    rows = plan.training_data().rows
    (probed,) = rows.batches([some_rows(rows, PROBED_ROWS)])
    return plan.task.standardize(probed.inputs)


def outputs_constant(inputs: Tensor, outputs: Tensor) -> tuple[bool, bool]:
    """Whether outputs do not depend on inputs but for rounding error, and whether their largest is always the same."""
    if len(inputs) < 2 or bool((inputs == inputs[0]).all()):
        return False, False
    largest = outputs.flatten(1).argmax(1)
    constant = outputs.amax(0) - outputs.amin(0) <= 1e-6 * outputs.abs().amax(0)
    return bool(constant.all()), bool((largest == largest[0]).all())


@contextmanager
def _restored(network: nn.Module) -> Iterator[None]:
    """Restore training mode and gradients afterwards: a posterior freezes its networks, and this one is in training."""
    needed = [parameter.requires_grad for parameter in network.parameters()]
    try:
        with in_eval_mode(network):
            yield
    finally:
        for parameter, need in zip(network.parameters(), needed, strict=True):
            parameter.requires_grad_(need)
