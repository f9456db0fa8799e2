from __future__ import annotations

import pytest
import torch
from torch import Generator, nn
from torch.nn import functional

from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.likelihoods import Categorical, Gaussian, weighted_loss


def test_categorical_loss_is_cross_entropy_for_labels_and_for_blends(generator: Generator) -> None:
    likelihood = Categorical(4)
    outputs = torch.randn(9, 4, generator=generator)
    labels = torch.arange(9) % 4
    targets = likelihood.encode(labels)
    assert likelihood.outputs == 4
    expected = functional.cross_entropy(outputs, labels, reduction="none")
    assert torch.allclose(likelihood.row_losses(outputs, targets), expected, atol=1e-6)
    blends = 0.3 * targets + 0.7 * targets.flip(0)
    expected = functional.cross_entropy(outputs, blends, reduction="none")
    assert torch.allclose(likelihood.row_losses(outputs, blends), expected, atol=1e-6)


def test_gaussian_loss_is_torchs_with_the_log_of_the_variance(generator: Generator) -> None:
    likelihood = Gaussian()
    outputs = torch.randn(7, 2, generator=generator)
    targets = likelihood.encode(torch.randn(7, generator=generator).double())
    assert likelihood.outputs == 2
    assert targets.shape == (7, 1)
    assert targets.dtype == torch.float32
    reference = nn.GaussianNLLLoss(full=True, reduction="none")
    expected = reference(outputs[:, 0], targets[:, 0], outputs[:, 1].exp())
    assert torch.allclose(likelihood.row_losses(outputs, targets), expected, atol=1e-5)


def test_gaussian_loss_stays_finite_where_the_variance_would_not() -> None:
    outputs = torch.tensor([[0.0, -1e4], [0.0, 1e4]], requires_grad=True)
    loss = Gaussian().row_losses(outputs, torch.ones(2, 1)).sum()
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert outputs.grad is not None
    assert bool(torch.isfinite(outputs.grad).all())


def test_the_weighted_loss_is_the_weighted_sum_over_the_rows(generator: Generator) -> None:
    likelihood = Categorical(3)
    outputs, weights = torch.randn(5, 3, generator=generator), torch.rand(5, generator=generator)
    targets = likelihood.encode(torch.tensor([0, 1, 2, 0, 1]))
    rows = functional.cross_entropy(outputs, targets, reduction="none")
    loss = weighted_loss(likelihood, outputs, Batch(torch.zeros(5, 1), targets, weights))
    assert float(loss) == pytest.approx(float((rows * weights).sum()) / 5, rel=1e-5)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("likelihood", [Categorical(4), Gaussian()], ids=repr)
def test_the_slope_is_the_gradient_of_the_loss(
    likelihood: Categorical | Gaussian, dim: int, generator: Generator
) -> None:
    """Also where outputs lie along another axis than the last, as they do when members are trained together."""
    outputs = torch.randn(3, 5, likelihood.outputs, generator=generator, dtype=torch.float64).requires_grad_()
    targets = torch.randn(3, 5, 1, generator=generator, dtype=torch.float64)
    if isinstance(likelihood, Categorical):
        targets = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64)
        targets = targets / targets.sum(-1, keepdim=True)
    loss = likelihood.row_losses(outputs, targets)
    (expected,) = torch.autograd.grad(loss.sum(), outputs)
    moved_outputs, moved_targets = (part.detach().movedim(-1, dim) for part in (outputs, targets))
    assert torch.allclose(likelihood.row_losses(moved_outputs, moved_targets, dim), loss)
    slope = likelihood.output_gradient(moved_outputs, moved_targets, dim)
    assert torch.allclose(slope.movedim(dim, -1), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64])
def test_labels_of_any_whole_type_become_targets(dtype: torch.dtype) -> None:
    assert torch.equal(Categorical(3).encode(torch.tensor([2, 0], dtype=dtype)), torch.eye(3)[[2, 0]])


def test_one_class_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="classes must be at least 2"):
        Categorical(1)


def test_moments_are_those_of_the_encoded_label() -> None:
    outputs = torch.tensor([[0.3, -1.0, 2.0], [0.0, 0.0, 0.0]])
    mean, deviation = Categorical(3).moments(outputs)
    assert torch.equal(mean, outputs.softmax(-1))
    assert torch.allclose(deviation.square(), torch.distributions.OneHotCategorical(logits=outputs).variance)
    mean, deviation = Gaussian().moments(torch.tensor([[1.5, 0.0], [-2.0, 3.0], [0.0, 99.0]]))
    assert mean.tolist() == [1.5, -2.0, 0.0]
    assert torch.allclose(deviation.log(), torch.tensor([0.0, 1.5, 6.0]))


def test_only_a_regression_has_no_classes() -> None:
    assert (Categorical(3).classes, Gaussian().classes) == (3, None)
    assert (Categorical(3).outputs, Gaussian().outputs) == (3, 2)
