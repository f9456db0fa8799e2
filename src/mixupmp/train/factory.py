"""A member's network, and what a factory of the user's must be able to do."""

from __future__ import annotations

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
