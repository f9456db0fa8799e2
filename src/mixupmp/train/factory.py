"""A member's network: how it is built, and the memory format it is trained in."""

from __future__ import annotations

import torch
from torch import nn

from mixupmp.core import seeds
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.plan import Plan
from mixupmp.networks import Network


def build_network(plan: Plan, member: int) -> nn.Module:
    """This member's network: random weights that depend on (seed, member) alone, or those it was told to start from."""
    with seeds.global_seed(seeds.derive(plan.seed, member, "weights")):
        network = plan.network()
        if not isinstance(network, nn.Module):
            raise InvalidArgument("network", network, "a factory that returns an nn.Module")
        # A sampler whose members share weights puts its adapters into the network, drawn from the same generator.
        adapt = getattr(plan.method.sampler, "adapt", None)
        network = network if adapt is None else adapt(network)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise InvalidArgument("network", type(network).__name__, "one that has weights to train")
    if plan.initial is not None:
        try:
            network.load_state_dict(plan.initial[member])
        except RuntimeError as error:
            raise InvalidArgument("initial", f"member {member}", "weights of this network", str(error)) from error
    return network


def check_factory(plan: Plan) -> None:
    """Refuse a factory that hands out one network again and again: all members would be that one."""
    if isinstance(plan.network, Network):
        return
    first, second = ({p for p in build_network(plan, 0).parameters() if p.requires_grad} for _ in range(2))
    if first & second:
        must = "a factory that builds a new network at each call"
        raise InvalidArgument("network", plan.network, must, "Each member needs weights of its own.")


CHANNEL_BLOCK = 16  # channels that oneDNN's AVX-512 kernels work on at once; with AVX2 it is 8


def memory_format(network: nn.Module) -> torch.memory_format:
    """Channels-last for a network of 2-d convolutions that are safe there, plain memory for any other.

    Residual networks train 1.35 times as fast in channels-last memory on a CPU, and the CNN as fast as in plain. But
    oneDNN writes past its buffer for the weight gradient of a strided 1x1 convolution of fewer channels than a block
    (uxlfoundation/oneDNN issue 6035), which corrupts the heap or the gradient. A 4-d weight outside `nn.Conv2d` may
    be used for just that, so it counts as unsafe; 5-d weights have no such format.
    """
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    known = {id(module.weight) for module in convolutions}
    others = any(weight.ndim > 3 and id(weight) not in known for weight in network.parameters())
    safe = bool(convolutions) and not others and all(_safe_channels_last(module) for module in convolutions)
    return torch.channels_last if safe else torch.contiguous_format


def _safe_channels_last(layer: nn.Conv2d) -> bool:
    strided_1x1 = layer.kernel_size == (1, 1) and layer.stride != (1, 1)
    return not strided_1x1 or layer.in_channels // layer.groups >= CHANNEL_BLOCK
