"""The student against its teacher: mean, disagreement, cost."""

from __future__ import annotations

import pytest
import torch

from mixupmp import Gaussian, Recipe, Rows, data, mixup_mp, plan_for
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import MixupMPError
from mixupmp.core.posterior import Posterior, Task
from mixupmp.export.distill import _loss, as_posterior, compare, distill
from mixupmp.metrics import mutual_information
from mixupmp.networks import MLP
from mixupmp.train.run import fit


@pytest.fixture(scope="module")
def clusters() -> tuple[Posterior, Rows]:
    dataset = data.load("clusters")
    outputs = len(dataset.classes)
    recipe = Recipe(epochs=40, optimizer="adamw", learning_rate=5e-3)
    plan = plan_for(dataset, mixup_mp(1.0, 1.0, 5), lambda: MLP(2, outputs), recipe)
    return fit(plan), dataset.test


def test_the_student_says_what_the_posterior_says(clusters: tuple[Posterior, Rows]) -> None:
    posterior, test = clusters
    student = distill(posterior, test.inputs[::2], recipe=Recipe(epochs=40, optimizer="adamw", learning_rate=5e-3))
    found = compare(posterior, student, test.inputs[1::2], test.labels[1::2])
    assert found["kl"] < 0.02
    assert found["agreement"] > 0.95
    assert found["mutual_information_rank_correlation"] > 0.7
    assert found["distilled"]["nll"] < found["posterior"]["nll"] + 0.03
    probabilities, entropy, doubt = student.predict(test.inputs)
    assert bool((doubt >= 0).all())
    assert bool((doubt <= entropy).all())
    assert torch.equal(as_posterior(student).probabilities(test.inputs), probabilities)


def test_an_exact_student_has_the_least_loss(clusters: tuple[Posterior, Rows]) -> None:
    posterior, test = clusters
    members = posterior.member_probabilities(test.inputs[:50])
    mean = members.mean(0)
    entropy = -(mean * mean.log()).sum(1)
    share = (mutual_information(members) / entropy).clamp(1e-6, 1 - 1e-6)
    exact = torch.cat([mean.log(), torch.logit(share)[:, None]], 1)
    best = _loss(exact, mean, share, entropy)
    for change in torch.randn(5, *exact.shape, generator=torch.Generator().manual_seed(0)):
        assert _loss(exact + 0.3 * change, mean, share, entropy) > best


def test_only_classifiers_are_distilled(clusters: tuple[Posterior, Rows]) -> None:
    posterior, test = clusters
    task = Task(Gaussian(), posterior.task.standardize, posterior.task.input_shape)
    with pytest.raises(MixupMPError, match="classifier"):
        distill(EnsemblePosterior(posterior.networks, task, 1), test.inputs)
    with pytest.raises(MixupMPError, match="blends"):
        distill(posterior, test.inputs, blends=-1)
