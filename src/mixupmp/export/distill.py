"""Distill a posterior of B members into one network that predicts their mean and their disagreement.

The student has K + 1 outputs for K classes: logits of the mean, and a logit of the share u of the predictive entropy H
that is mutual information, so that I = u H lies in [0, H]. It minimizes

    KL(mean of the posterior || mean of the student)  +  H * cross-entropy(u of the posterior, u of the student)

over the given inputs and Mixup blends of them: blends lie between the classes, where members disagree.
Compare Hinton et al. (2015) and Malinin et al. (2020), ensemble distribution distillation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core import seeds
from mixupmp.core.base_measures import Mixup, choose
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import check
from mixupmp.core.given_network import logits_of
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.recipe import Recipe, batches_of
from mixupmp.metrics import evaluate, mutual_information, predictive_entropy
from mixupmp.networks import Network, NetworkFactory, named

T = TypeVar("T")


@dataclass
class Distilled:
    """One network in place of a posterior, at the cost of one member."""

    network: nn.Module
    task: Task

    @torch.inference_mode()
    def predict(self, inputs: Tensor, batch_size: int = 512) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities (rows, classes), entropy (rows,) and mutual information (rows,) for raw inputs."""
        batches = [logits_of(self.network(self.task.standardize(batch))) for batch in inputs.split(batch_size)]
        outputs = torch.cat(batches)
        probabilities = outputs[:, :-1].softmax(1)
        entropy = predictive_entropy(probabilities)
        return probabilities, entropy, entropy * outputs[:, -1].sigmoid()


def distill(
    posterior: Posterior,
    inputs: Tensor,
    network: str | NetworkFactory | None = None,
    recipe: Recipe | None = None,
    *,
    blends: int = 2,
    seed: int = 0,
) -> Distilled:
    """Fit one network to the posterior's predictions on these raw, unlabeled inputs.

    Parameters
    ----------
    network : str, callable or None
        A name, or a factory with one output more than there are classes. None: a CNN for images, an MLP for tables.
    blends : int
        Mixup blends per input, 0 for none.
    posterior, inputs
        The teacher, and raw inputs.
    recipe, seed
        Of the student's fit.

    Returns
    -------
    Distilled
        Its `predict` gives probabilities, entropy and mutual information.
    """
    classes = posterior.task.require_classes("to be distilled")
    check(blends >= 0, "blends", blends, "zero or more")
    check(len(inputs) >= 2, "inputs", len(inputs), "at least two rows")
    outputs = classes + 1
    with seeds.global_seed(seeds.derive(seed, "student")):
        student = _factory(network, posterior.task.input_shape, outputs)()
    recipe = recipe or Recipe(epochs=30, optimizer="adamw", learning_rate=2e-3, weight_decay=1e-2)
    scaled = _with_blends(posterior.task.standardize(inputs), blends, seed)
    mean, share, entropy = _targets(posterior, scaled)
    student.train()
    _train(student, recipe, seed, (scaled, mean, share, entropy))
    return Distilled(student.eval().requires_grad_(False), posterior.task)


def compare(posterior: Posterior, distilled: Distilled, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
    """Metrics of both on test rows, their divergence and agreement, and the relative cost of a prediction.

    Parameters
    ----------
    posterior, distilled
        Teacher and student.
    inputs, labels
        Test rows.

    Returns
    -------
    dict
        posterior, distilled, agreement, cost, ...
    """
    members, slow = _timed(lambda: posterior.member_probabilities(inputs))
    (mean, _, disagreement), fast = _timed(lambda: distilled.predict(inputs))
    teacher = members.mean(0)
    divergence = (teacher * (teacher.clamp(min=1e-30).log() - mean.clamp(min=1e-30).log())).sum(1)
    return {
        "posterior": evaluate(members, labels),
        "distilled": evaluate(mean, labels),
        "kl": float(divergence.mean()),
        "agreement": float((teacher.argmax(1) == mean.argmax(1)).float().mean()),
        "mutual_information_rank_correlation": _rank_correlation(mutual_information(members), disagreement),
        "cost": fast / slow,
        "members": posterior.members,
    }


def as_posterior(distilled: Distilled) -> EnsemblePosterior:
    """The student's mean as a posterior of one member, to be saved, served or exported like any other."""
    return EnsemblePosterior([_MeanOnly(distilled.network)], distilled.task, 1, ("distilled: its mean alone",))


class _MeanOnly(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        return logits_of(self.network(inputs))[:, :-1]


def _factory(network: str | NetworkFactory | None, shape: tuple[int, ...], outputs: int) -> NetworkFactory:
    if isinstance(network, str):
        return named(network, shape, outputs)
    if network is not None:
        return network
    if len(shape) == 3 and min(shape[1:]) >= 4:
        return named("cnn", shape, outputs)
    features = int(torch.Size(shape).numel())
    return Network("mixupmp.networks.MLP", {"features": features, "outputs": outputs, "hidden": (128, 128)})


def _with_blends(scaled: Tensor, blends: int, seed: int) -> Tensor:
    """The inputs, and `blends` Mixup(1) blends of each."""
    if blends == 0:
        return scaled
    draws = Mixup(1.0).draw(blends * len(scaled), seeds.generator(seed, "blends"))
    first, second = choose(draws[:2], len(scaled))
    share = Mixup(1.0).share(draws).view(-1, *(1,) * (scaled.ndim - 1))
    return torch.cat([scaled, torch.lerp(scaled[second], scaled[first], share)])


@torch.inference_mode()
def _targets(posterior: Posterior, scaled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The posterior's mean, the share of its entropy that is mutual information, and the entropy."""
    batches = [posterior._outputs(batch.to(posterior.device)).softmax(-1).cpu() for batch in scaled.split(512)]
    members = torch.cat(batches, 1)
    mean, entropy = members.mean(0), predictive_entropy(members)
    share = mutual_information(members) / entropy.clamp(min=1e-6)
    return mean.clone(), share.clamp(0, 1).clone(), entropy.clone()


def _train(student: nn.Module, recipe: Recipe, seed: int, data: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    optimizer = recipe.build_optimizer(student.parameters())
    rows, step = len(data[0]), 0
    steps_per_epoch = len(batches_of(rows, recipe.batch_size, torch.arange(rows)))
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(seeds.derive(seed, "student", "global"))
        for epoch in range(recipe.epochs):
            order = torch.randperm(rows, generator=seeds.generator(seed, "student", epoch))
            for indices in batches_of(rows, recipe.batch_size, order):
                for group in optimizer.param_groups:
                    group["lr"] = recipe.rate(step, steps_per_epoch)
                inputs, mean, share, entropy = (part[indices] for part in data)
                optimizer.zero_grad(set_to_none=True)
                _loss(logits_of(student(inputs)), mean, share, entropy).backward()
                optimizer.step()
                step += 1


def _loss(outputs: Tensor, mean: Tensor, share: Tensor, entropy: Tensor) -> Tensor:
    divergence = functional.kl_div(outputs[:, :-1].log_softmax(1), mean, reduction="batchmean")
    # Without entropy there is no share of it to learn: each row is weighted by its entropy.
    return divergence + functional.binary_cross_entropy_with_logits(outputs[:, -1], share, weight=entropy)


def _timed(call: Callable[[], T], repeats: int = 3) -> tuple[T, float]:
    """The result, and the seconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - started)
    return result, best


def _rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's rank correlation."""
    ranks = [values.argsort().argsort().double() for values in (first, second)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])
