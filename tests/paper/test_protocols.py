"""The authors' protocol against formulas written out here, and the options of runs on GPUs as far as a CPU goes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import sqrt

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mixupmp import mc_dropout, mixup_ensemble, mixup_mp
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.kernels import PadCrop, RandomResizedCrop
from mixupmp.core.likelihoods import weighted_loss
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.networks import CNN, MLP, Network, WideResNet, named
from mixupmp.paper import AUTHORS, TEXT, Study, Wanted
from mixupmp.paper.experiments import bb_vs_de
from mixupmp.paper.networks import PooledResNet
from mixupmp.paper.protocols import PermutedMixup, Protocol, protocol_named
from mixupmp.paper.settings import homogeneous, setting_named
from mixupmp.train.member import MemberFit
from mixupmp.train.plans import plan_for

ROWS, CLASSES = 6, 3


def authors_fit(ratio: float) -> MemberFit:
    """One member on rows that are unit vectors: a blend shows which rows it is of, and their shares."""
    rows = Rows(torch.eye(ROWS), torch.tensor([0, 1, 2, 0, 1, 2]))
    dataset = Dataset("unit", rows, rows, ("a", "b", "c"), Standardize())
    network = Network("mixupmp.networks.MLP", {"features": ROWS, "outputs": CLASSES, "hidden": (4,)})
    method = mixup_ensemble(2.0, 1) if ratio == float("inf") else mixup_mp(ratio, 2.0, 1)
    recipe = AUTHORS.recipe(Recipe(epochs=1, batch_size=None, schedule="constant", learning_rate=0.1))
    return MemberFit(plan_for(dataset, AUTHORS.method(method), network, recipe), 0)


def written_out(network: nn.Module, batch: Batch, labels: torch.Tensor, ratio: float) -> torch.Tensor:
    """The mean over n + t rows of l_i and r (lambda l(x', y_a) + (1 - lambda) l(x', y_b))."""
    total = cross_entropy(network(torch.eye(ROWS)), labels, reduction="sum") if ratio != float("inf") else 0.0
    pseudo = batch.inputs[ROWS:] if ratio != float("inf") else batch.inputs
    weight = ratio if ratio != float("inf") else 1.0
    for row in pseudo:
        for index in row.nonzero().flatten().tolist():
            total = total + weight * row[index] * cross_entropy(network(row[None]), labels[index : index + 1])
    return total / len(batch.inputs)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0, 3.0, float("inf")])
def test_loss_gradient_and_step_of_the_authors_protocol(ratio: float):
    fit = authors_fit(ratio)
    labels = fit.plan.train.labels
    batch = next(iter(fit.future.batches([torch.arange(ROWS)], fit.draws)))
    before = [parameter.detach().clone() for parameter in fit.network.parameters()]
    loss = written_out(fit.network, batch, labels, ratio)
    gradients = torch.autograd.grad(loss, list(fit.network.parameters()))
    fit._step(batch)
    assert float(fit.losses[-1]) == pytest.approx(float(loss.detach()), rel=1e-6)
    rate, decay = fit.recipe.learning_rate, 5e-4
    for start, gradient, parameter in zip(before, gradients, fit.network.parameters(), strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-7)
        # The first step of SGD with momentum and no Nesterov; with it the gradient would count 1.9 times.
        assert torch.allclose(parameter, start - rate * (gradient + decay * start), atol=1e-7)


@pytest.mark.parametrize("ratio", [0.1, 0.4, 3.0])
def test_the_authors_loss_is_ours_times_half_of_one_plus_r(ratio: float):
    authors = authors_fit(ratio)
    method = authors.plan.method
    text = replace(method, predictive=replace(method.predictive, normalize=TEXT.normalize))
    losses = []
    for fit in (authors, MemberFit(replace(authors.plan, method=text), 0)):
        batch = next(iter(fit.future.batches([torch.arange(ROWS)], fit.draws)))
        losses.append(float(weighted_loss(fit.plan.task.likelihood, fit.network(batch.inputs), batch).detach()))
    assert losses[0] / losses[1] == pytest.approx((1 + ratio) / 2)


def test_each_row_is_in_as_many_permuted_pairs_as_any_other():
    seen = Batch(torch.eye(50), torch.eye(50), torch.ones(50))
    batch = PermutedMixup(1.0).sample(seen, 50, torch.Generator().manual_seed(3))
    sides = (batch.inputs > 0).sum(0) + ((batch.inputs == 1).sum(0))  # a row paired with itself is both of its sides
    assert torch.equal(sides, torch.full((50,), 2))
    assert torch.allclose(batch.inputs, batch.targets)
    with pytest.raises(InvalidArgument, match="pseudo_batch_size"):
        PermutedMixup(1.0).sample(seen, 51, torch.Generator())


def check_xavier(network: nn.Module) -> None:
    """Convolutions are uniform within sqrt(2) sqrt(6 / (fan-in + fan-out)), and their biases are zero."""
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert convolutions
    for module in convolutions:
        receptive = module.kernel_size[0] ** 2
        bound = sqrt(2) * sqrt(6 / (receptive * (module.in_channels + module.out_channels)))
        largest = float(module.weight.detach().abs().max())
        assert 0.8 * bound < largest <= bound
        assert module.bias is None or not module.bias.any()


def test_networks_of_the_authors_protocol():
    wide = AUTHORS.network(named("wrn-10-1", (3, 32, 32), 10))()
    assert isinstance(wide, WideResNet)
    assert (wide.norm.momentum, wide.stages[0].first_norm.momentum) == (0.9, 0.1)
    check_xavier(wide)
    cnn = AUTHORS.network(named("cnn", (1, 28, 28), 10, 0.3))()
    assert isinstance(cnn, CNN)
    check_xavier(cnn)
    homogeneous_cnn = named("cnn", (1, 28, 28), 10)
    check_xavier(AUTHORS.network(Network(homogeneous_cnn.path, {**homogeneous_cnn.arguments, "bias": False}))())
    assert sum(isinstance(module, nn.Dropout) for module in cnn.modules()) == 4
    assert sum(isinstance(module, nn.Dropout) for module in named("cnn", (1, 28, 28), 10, 0.3)().modules()) == 2
    resnet = AUTHORS.network(named("resnet18", (1, 28, 28), 10))()
    assert float(resnet.stages[0].first.weight.detach().std()) == pytest.approx(sqrt(2 / (9 * 64)), rel=0.05)
    pooled = AUTHORS.network(setting_named("cifar10", "cpu").network)()
    assert isinstance(pooled, PooledResNet)
    convolutions = [module for module in pooled.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 15  # the stem, twelve in six blocks, two shortcuts
    for module in convolutions:
        expected = sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels))
        assert float(module.weight.detach().std()) == pytest.approx(expected, rel=0.15)
    mlp = AUTHORS.network(named("mlp", (2,), 5))()
    assert isinstance(mlp, MLP)


def test_the_text_protocol_leaves_methods_and_networks_as_they_are():
    method, network = mixup_mp(1.0, 2.0), named("cnn", (1, 28, 28), 10)
    assert TEXT.method(method) == method
    assert TEXT.network(network) == network
    assert protocol_named("text") is TEXT
    with pytest.raises(UnknownName, match="authors"):
        protocol_named("author")


def test_kernels_scaling_and_the_bootstrap():
    text, authors = (setting_named("cifar10", "paper").under(protocol) for protocol in (TEXT, AUTHORS))
    assert isinstance(text.kernel.kernels[0], RandomResizedCrop)
    assert isinstance(authors.kernel.kernels[0], PadCrop)
    rows = Rows(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), torch.arange(4))
    dataset = Dataset("cifar10", rows, rows, tuple("0123456789"), Standardize((0.5,) * 3, (0.25,) * 3))
    assert AUTHORS.dataset(dataset).standardize.deviation == (0.2023, 0.1994, 0.2010)
    assert TEXT.dataset(dataset).standardize.deviation == (0.25,) * 3
    plain = homogeneous("mnist", "paper", TEXT).recipe
    assert (plain.learning_rate, plain.momentum, plain.weight_decay) == (5e-4, 0.0, 0.0)
    assert homogeneous("mnist", "paper", AUTHORS).recipe.momentum == 0.9


@pytest.mark.parametrize(
    ("name", "scale", "has", "has_not"),
    [
        (
            "cifar10",
            "cpu",
            ("divided by .2023", "He normal", "they have no such network"),
            ("padded", "Xavier", "Wide-ResNet", "the CNN", ".2675", ".3530", "three stages"),
        ),
        ("cifar10", "paper", ("padded", "Xavier", "Wide-ResNet", ".2023"), ("He normal", "the CNN", ".2675", ".3530")),
        ("cifar100", "paper", ("padded", ".2675"), (".2023",)),
        ("fmnist", "cpu", ("Xavier", "the CNN", "Nesterov", ".3530"), ("padded", "Wide-ResNet", ".2023", "He normal")),
        (
            "fmnist",
            "paper",
            ("He normal", "three stages"),
            ("padded", "Xavier", "Wide-ResNet", ".2023", "the CNN has", "no such network"),
        ),
    ],
)
def test_only_what_applies_to_a_run_is_listed(name: str, scale: str, has: tuple[str, ...], has_not: tuple[str, ...]):
    setting = setting_named(name, scale)
    listed = "; ".join(set(setting.under(AUTHORS).all_differences) - set(setting.differences))
    assert all(word in listed for word in has)
    assert not [word for word in has_not if word in listed]


def test_the_momentum_of_the_bootstrap_is_listed_where_it_is_used():
    def listed(scale: str, protocol: Protocol) -> str:
        return "; ".join(homogeneous("mnist", scale, protocol).under(protocol).all_differences)

    assert "momentum 0.9" in listed("paper", AUTHORS)
    assert "momentum 0.9" not in listed("paper", TEXT)
    assert "Nesterov" not in listed("paper", AUTHORS)  # the text has none either
    biased = homogeneous("mnist-biases", "cpu")
    assert (biased.network.arguments["bias"], biased.name) == (True, "MNIST with biases")


def test_every_setting_of_fashion_mnist_says_that_its_network_is_not_that_of_the_tables():
    for name in ("fmnist", "fmnist-cnn", "fmnist-long", "fmnist-full", "fmnist-under-fitted"):
        setting = setting_named(name, "cpu")
        listed = "; ".join(setting.differences)
        assert "the CNN, in the tables in place of ResNet18" in listed
        assert f"{setting.recipe.epochs} one-cycle epochs at rate .05" in listed
        assert "not 200 epochs by steps" in listed
        assert ("in batches of 64" in listed) == (setting.recipe.batch_size == 64)
        assert ("without weight decay" in listed) == (setting.recipe.weight_decay == 0)
        assert (f"{setting.repeats} repeats, not 3" in listed) == (setting.repeats != 3)
    assert "ResNet18" in "; ".join(setting_named("fmnist-cnn", "paper").differences)
    assert not setting_named("fmnist", "paper").differences


def test_the_text_protocol_says_how_images_are_scaled_and_weights_start():
    for name, scaled in (("fmnist", True), ("cifar10", True), ("clusters", False)):
        listed = "; ".join(setting_named(name, "cpu").all_differences)
        assert ("images are scaled" in listed) == scaled
        assert "weights start from torch's default" in listed
    assert "three stages" in "; ".join(setting_named("fmnist", "paper").all_differences)


def test_the_comparison_of_bootstrap_and_ensemble_says_what_the_text_leaves_open():
    for dataset, biases in (("mnist", "no biases"), ("fmnist-biases", "has biases")):
        for scale, batches in (("cpu", "batches of 64"), ("paper", "batches of 128")):
            setting = homogeneous(dataset, scale)
            listed = "; ".join(bb_vs_de.differences(setting))
            assert all(words in listed for words in (biases, f"{batches} and no weight decay", "the plain one"))
            assert (str(setting.recipe.batch_size) in batches, setting.recipe.weight_decay) == (True, 0.0)


def test_no_run_is_said_to_differ_in_nothing():
    for protocol in (TEXT, AUTHORS):
        assert protocol.differences
    assert "bfloat16" in setting_named("cifar10", "paper").under(TEXT, precision="bfloat16").all_differences[-1]


def test_precision_and_devices_of_a_study(study):
    one: Study = replace(study("gpus"), devices=("cpu", "cpu:0"), precision="bfloat16")
    setting = one.setting(replace(setting_named("fmnist", "smoke"), recipe=Recipe(epochs=1, batch_size=64)))
    assert (setting.recipe.precision, setting.device) == ("bfloat16", "cpu")
    wanted = Wanted(setting.plan(mc_dropout(3), 0)), Wanted(setting.plan(mixup_mp(1.0, 2.0, 2), 0))
    pieces = [piece for each in wanted for piece in each.pieces]
    assert pieces[1].on("cpu:0").plan.device == "cpu:0"
    assert pieces[1].on("cpu:0").key == pieces[1].key  # where a member is trained does not change which one it is
    one.train(wanted)
    assert all(one.available(each) for each in wanted)


class _Steps:
    def on_step(self, fit: MemberFit) -> None:
        """Nothing to do between steps."""


def end(**options: object) -> torch.Tensor:
    """All weights of a member after an epoch with these options."""
    setting = setting_named("fmnist-cnn", "smoke").under(TEXT, **options)
    fit = MemberFit(replace(setting, recipe=replace(setting.recipe, epochs=1)).plan(mixup_mp(1.0, 2.0, 1), 0), 0)
    fit.run(_Steps())
    return torch.cat([parameter.detach().flatten() for parameter in fit.network.parameters()])


def test_a_compiled_network_ends_where_the_plain_one_does(monkeypatch):
    plain = end()
    # Traced and run by torch's own operators: the code of a GPU run, without a compiler and its minutes.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    assert torch.allclose(end(compiled=True), plain, atol=1e-5)


def test_bfloat16_keeps_float32_weights_and_stays_near_them():
    plain, rounded = end(), end(precision="bfloat16")
    assert rounded.dtype == torch.float32
    assert 0 < float((plain - rounded).norm() / plain.norm()) < 0.05
