"""What a factory of the user's must be able to do."""

from __future__ import annotations

from mixupmp.errors import InvalidArgument
from mixupmp.fit.member import build_network
from mixupmp.fit.plan import Plan
from mixupmp.networks import Network


def check_factory(plan: Plan) -> None:
    """Refuse a factory that hands out one network again and again: all members would be that one."""
    if isinstance(plan.network, Network):
        return
    first, second = ({p for p in build_network(plan, 0).parameters() if p.requires_grad} for _ in range(2))
    if first & second:
        must = "a factory that builds a new network at each call"
        raise InvalidArgument("network", plan.network, must, "Each member needs weights of its own.")
