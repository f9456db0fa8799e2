"""One forward pass for all members of an ensemble, if their layers are of known types.

Members have the same inputs, so their first convolutions are one convolution with all filters stacked, and linear
layers are one batched matrix product. For few rows, where the overhead of a call costs more than its arithmetic, later
convolutions are one grouped convolution.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.fast.dropout import FeatureDropout
from mixupmp.core.fast.pooled_convolution import PooledConvolution

GROUPED_ROWS = 8  # rows up to which one grouped convolution is faster than one convolution per member

# Maps values, and whether all members share them: (rows, ...) if they do, (members, rows, ...) if they differ.
Stage = Callable[[Tensor, bool], tuple[Tensor, bool]]


class StackedForward:
    """The forward pass of networks that are the same sequence of known layers."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        columns = zip(*(_layers(network) for network in networks), strict=True)
        self.members = len(networks)
        self.stages = [_stage(column) for column in columns]

    def __call__(self, inputs: Tensor) -> Tensor:
        """(members, rows, outputs) for scaled inputs."""
        values, shared = inputs, True
        for stage in self.stages:
            values, shared = stage(values, shared)
        return values.expand(self.members, *values.shape) if shared else values


def can_stack(networks: Sequence[nn.Module]) -> bool:
    """Whether these networks are the same sequence of layers of known types."""
    # Exact types: a user's subclass may compute something else.
    if not all(_is_sequence(network) and not _hooked(network) for network in networks):
        return False
    kinds = {tuple(_signature(layer) for layer in _layers(network)) for network in networks}
    return len(kinds) == 1 and all(_is_known(layer) for network in networks for layer in _layers(network))


def _is_known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return False
    if isinstance(layer, PooledConvolution):
        usual = (layer.stride, layer.dilation, layer.groups, layer.padding_mode) == ((1, 1), (1, 1), 1, "zeros")
        return usual and type(layer) is PooledConvolution and not _hooked(layer)
    return type(layer) in _KNOWN and not _hooked(layer)


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


_KNOWN = (nn.Linear, nn.ReLU, nn.Flatten, nn.Identity, nn.Dropout, FeatureDropout)


def _is_sequence(network: nn.Module) -> bool:
    """Whether it is a plain `nn.Sequential`, or its own class has a method `layers` that lists them."""
    return type(network) is nn.Sequential or "layers" in vars(type(network))


def _layers(network: nn.Module) -> list[nn.Module]:
    layers: Callable[[], Iterable[nn.Module]] = getattr(network, "layers", network.children)
    return list(layers())


def _signature(layer: nn.Module) -> tuple[object, ...]:
    return (type(layer), repr(layer), tuple(value.shape for value in layer.state_dict().values()))


def _stage(column: Sequence[nn.Module]) -> Stage:
    layer = column[0]
    if isinstance(layer, PooledConvolution):
        return _Convolutions(column)  # type: ignore[arg-type]
    if isinstance(layer, nn.Linear):
        return _Linears(column)  # type: ignore[arg-type]
    if isinstance(layer, nn.Flatten):
        return lambda values, shared: (values.flatten(1 if shared else 2), shared)
    if isinstance(layer, nn.ReLU):
        return lambda values, shared: (functional.relu(values), shared)
    return lambda values, shared: (values, shared)  # identity, or dropout in evaluation mode


class _Convolutions:
    """A `PooledConvolution` of each member."""

    def __init__(self, layers: Sequence[PooledConvolution]) -> None:
        self.layers = layers
        first = layers[0]
        self.wide = copy.deepcopy(first)
        self.wide.out_channels = len(layers) * first.out_channels
        self.wide.weight = nn.Parameter(torch.cat([layer.weight for layer in layers]).detach(), requires_grad=False)
        if first.bias is not None:
            biases = [layer.bias for layer in layers if layer.bias is not None]
            self.wide.bias = nn.Parameter(torch.cat(biases).detach(), requires_grad=False)

    def __call__(self, values: Tensor, shared: bool) -> tuple[Tensor, bool]:
        members = len(self.layers)
        if shared:
            outputs = self.wide(values)
        elif values.shape[1] <= GROUPED_ROWS:
            grouped = values.transpose(0, 1).flatten(1, 2)
            weight, bias, padding = self.wide.weight, self.wide.bias, self.wide.padding
            convolved = functional.conv2d(grouped, weight, bias, padding=padding, groups=members)
            outputs = functional.relu(functional.max_pool2d(convolved, 2))
        else:
            return torch.stack([layer(own) for layer, own in zip(self.layers, values, strict=True)]), False
        return outputs.unflatten(1, (members, -1)).transpose(0, 1), False


class _Linears:
    """A linear layer of each member, as one batched matrix product."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self.weight = torch.stack([layer.weight.detach().T for layer in layers]).contiguous()
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        self.bias = torch.stack(biases).unsqueeze(1) if biases else None

    def __call__(self, values: Tensor, shared: bool) -> tuple[Tensor, bool]:
        if shared:
            values = values.expand(len(self.weight), *values.shape)
        rows = values.flatten(1, -2)  # dimensions between rows and features act as more rows
        products = torch.bmm(rows, self.weight) if self.bias is None else torch.baddbmm(self.bias, rows, self.weight)
        return products.view(*values.shape[:-1], -1), False
