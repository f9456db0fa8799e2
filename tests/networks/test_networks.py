from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, nn

from mixupmp.core.errors import InvalidArgument, MixupMPError, UnknownName
from mixupmp.networks import CNN, MLP, Network, ResNet18, WideResNet, named
from mixupmp.networks.catalog import NETWORKS, NetworkEntry


def weights_in(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_the_paper_s_networks_have_as_many_weights_as_they_should() -> None:
    assert weights_in(CNN(1, (28, 28), 10)) == 44_426
    assert weights_in(MLP(2, 5)) == 2 * 16 + 16 + 16 * 32 + 32 + 32 * 16 + 16 + 16 * 5 + 5
    with torch.device("meta"):
        assert weights_in(WideResNet(3, 10)) == pytest.approx(36.5e6, rel=1e-3)
        # Of the 11.2 million of a ResNet18, the fourth stage has three quarters.
        assert weights_in(ResNet18(1, 10)) == pytest.approx(2.78e6, rel=0.01)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (2,)),
        ("mlp", (1, 8, 8)),
        ("cnn", (1, 28, 28)),
        ("cnn", (3, 32, 32)),
        ("cnn", (1, 8, 8)),
        ("cnn", (1, 4, 5)),
        ("cnn", (1, 21, 19)),
        ("cnn", (2, 20, 33)),
        ("audio-cnn", (1, 16, 9)),
        ("audio-cnn", (2, 20, 30)),
        ("resnet18", (1, 12, 12)),
        ("wrn-10-1", (3, 12, 12)),
    ],
)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_named_networks_take_their_inputs(name: str, shape: tuple[int, ...], dropout: float) -> None:
    network = named(name, shape, 7, dropout)()
    inputs = torch.randn(3, *shape, generator=Generator().manual_seed(0))
    assert network(inputs).shape == (3, 7)
    rates = [module.p for module in network.modules() if isinstance(module, nn.Dropout)]
    assert bool(rates) == bool(dropout)
    assert set(rates) <= {dropout}
    network.eval()
    assert torch.equal(network(inputs), network(inputs))


@pytest.mark.parametrize(
    ("build", "shape", "layers"),
    [
        (lambda: MLP(4, 3, bias=False), (4,), 4),
        (lambda: MLP(4, 3, hidden=(5,), bias=False), (4,), 2),
        (lambda: CNN(1, (28, 28), 10, bias=False), (1, 28, 28), 5),
        (lambda: CNN(2, (9, 9), 3, bias=False), (2, 9, 9), 5),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_without_biases_a_network_is_homogeneous(
    build: Callable[[], nn.Module], shape: tuple[int, ...], layers: int, training: bool
) -> None:
    """f(c theta) = c^L f(theta), on which appendix A's margins rest."""
    network = build().train(training)
    assert not any("bias" in name for name, _ in network.named_parameters())
    inputs = torch.randn(5, *shape, generator=Generator().manual_seed(0))
    before = network(inputs).detach()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    assert torch.allclose(network(inputs).detach(), 1.5**layers * before, rtol=1e-4, atol=1e-6)


def test_resnet_has_a_full_resolution_stem_and_three_stages() -> None:
    network = ResNet18(1, 10, width=8)
    sizes: list[tuple[int, ...]] = []
    for block in network.stages:
        block.register_forward_hook(lambda _, __, output: sizes.append(tuple(output.shape[1:])))
    network(torch.zeros(2, 1, 28, 28))
    assert sizes == [(8, 28, 28)] * 2 + [(16, 14, 14)] * 2 + [(32, 7, 7)] * 2


def test_wide_resnet_is_pre_activation_with_biases_and_dropout_between() -> None:
    network = WideResNet(3, 10, depth=16, widen=2, dropout=0.3)
    sizes: list[tuple[int, ...]] = []
    for block in network.stages:
        block.register_forward_hook(lambda _, __, output: sizes.append(tuple(output.shape[1:])))
    network(torch.zeros(2, 3, 32, 32))
    assert sizes == [(32, 32, 32)] * 2 + [(64, 16, 16)] * 2 + [(128, 8, 8)] * 2
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert all(convolution.bias is not None for convolution in convolutions)


def test_a_network_is_built_from_text_alone() -> None:
    network = Network("mixupmp.networks.MLP", {"features": 3, "outputs": 2, "hidden": [4]})
    assert weights_in(network()) == 3 * 4 + 4 + 4 * 2 + 2


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: named("cnm", (1, 8, 8), 3), UnknownName, "unknown network 'cnm'. Did you mean 'cnn'"),
        (lambda: named("wrn-28", (1, 8, 8), 3), UnknownName, "unknown network 'wrn-28'"),
        (
            lambda: named("cnn", (4,), 3),
            InvalidArgument,
            r"network must be 'mlp' for inputs of shape \(4,\).*cnn takes images",
        ),
        (lambda: named("wrn-11-1", (1, 8, 8), 3)(), InvalidArgument, "depth must be"),
        (lambda: named("wrn-10-0", (1, 8, 8), 3)(), InvalidArgument, "widen must be"),
        (lambda: CNN(1, (3, 9), 3), InvalidArgument, "size must be"),
        (lambda: MLP(4, 3, dropout=1.0), InvalidArgument, "dropout must be"),
        (lambda: MLP(4, 3, dropout=float("nan")), InvalidArgument, "dropout must be"),
        (lambda: CNN(1, (8, 8), 3, dropout=-0.1), InvalidArgument, "dropout must be"),
        (lambda: ResNet18(1, 3, dropout=2), InvalidArgument, "dropout must be"),
        (lambda: Network("collections.OrderedDict")(), InvalidArgument, "network must be an nn.Module"),
        (lambda: Network("no_such_module.Net")(), InvalidArgument, "network must be"),
        (lambda: Network("mixupmp.networks.Nothing")(), InvalidArgument, "network must be"),
        (lambda: Network("Nothing")(), InvalidArgument, "network must be"),
    ],
)
def test_what_cannot_be_built_is_named(build: Callable[[], Any], kind: type[MixupMPError], message: str) -> None:
    with pytest.raises(kind, match=message):
        build()


def test_a_listed_class_is_built_by_its_entry_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class in a file of its own needs its line of the catalog, and no import in the package's `__init__`."""

    class Added(MLP):
        pass

    Added.__module__, Added.__qualname__ = "mixupmp.networks.added", "Added"
    entry = NetworkEntry("added", Added, lambda shape: {"features": shape[0]}, images=False)
    monkeypatch.setitem(NETWORKS, "added", entry)
    assert type(named("added", (3,), 2)()) is Added


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_text_network_does_not_see_the_padding(dropout: float) -> None:
    network = named("text-cnn", (9,), 4, dropout)().eval()
    tokens = torch.randint(1, 50, (3, 9), generator=Generator().manual_seed(0))
    longer = torch.cat([tokens, torch.zeros(3, 5, dtype=torch.long)], 1)
    assert network(tokens).shape == (3, 4)
    assert torch.allclose(network(tokens), network(longer), atol=1e-6)
    assert any(isinstance(module, nn.Dropout) for module in network.modules()) == bool(dropout)


def test_the_audio_network_takes_sounds_of_any_length() -> None:
    network = named("audio-cnn", (1, 16, 20), 3)()
    assert network(torch.zeros(2, 1, 16, 50)).shape == (2, 3)
    with pytest.raises(InvalidArgument, match="bands must be at least 8"):
        named("audio-cnn", (1, 4, 20), 3)()
