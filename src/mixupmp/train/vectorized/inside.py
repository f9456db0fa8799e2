"""Pseudo rows that enter the one program at a layer of the network, in place of its inputs: `AtLayer`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from mixupmp.core.base_measures import AtLayer, Mixup, WarpedMixup, choose, pair_weights
from mixupmp.core.batch import Batch
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import ResampledFuture
from mixupmp.train.vectorized.feeds import Stacked, stacked, warped_share


@dataclass(frozen=True)
class Entry:
    """Where pseudo rows enter a sequence of Linear and ReLU layers.

    Parameters
    ----------
    depth
        How many linear layers come before.
    activated
        Whether their last ReLU does too.
    """

    depth: int
    activated: bool


def entry_of(plan: Plan) -> Entry | None:
    """Where the base measure of a plan acts, if that is between two linear layers of a sequence of them."""
    base, layers = plan.method.predictive.base, dict(plan.template.named_children())
    if plan.method.predictive.ratio == 0 or not isinstance(base, AtLayer) or base.layer not in layers:
        return None
    names = list(layers)
    before = names[: names.index(base.layer) + (base.at == "output")]
    kinds = [type(layers[name]) for name in before if isinstance(layers[name], nn.Linear | nn.ReLU)]
    depth = kinds.count(nn.Linear)
    between = 0 < depth < sum(isinstance(layer, nn.Linear) for layer in layers.values())
    return Entry(depth, kinds[-1] is nn.ReLU) if between else None


class Entered:
    """The rows of one step from the entry on: seen ones, as the layers before compute them, and pseudo rows of them."""

    def __init__(
        self, entry: Entry, values: Tensor, seen: Stacked, future: ResampledFuture, draws: list[Generator]
    ) -> None:
        assert isinstance(future.predictive.base, AtLayer)
        base = future.predictive.base.base
        with torch.enable_grad():  # base measures are the user's too: their derivative is autograd's
            self.values = values.detach().requires_grad_()
            given = seen._replace(inputs=self.values)
            self.batch = (
                _with_blends(base, given, future, draws)
                if isinstance(base, Mixup | WarpedMixup)
                else _with_pseudo_rows(given, future, draws)
            )
            self.inputs = self.batch.inputs if entry.activated else self.batch.inputs.relu()

    def slope(self, slope: Tensor) -> Tensor:
        """The slope of the loss in the values of seen rows, from that in the rows which entered."""
        (found,) = torch.autograd.grad(self.inputs, self.values, slope)
        return found


def _with_pseudo_rows(seen: Stacked, future: ResampledFuture, draws: list[Generator]) -> Stacked:
    """Any base measure: each member's pseudo rows as the reference makes them."""
    rows = seen.shares.shape[2]
    members = zip(*seen, draws, strict=True)
    return stacked(
        [future.with_pseudo_rows(Batch(own.T, targets.T, shares[0] * rows), g) for own, targets, shares, g in members]
    )


def _with_blends(base: Mixup | WarpedMixup, seen: Stacked, future: ResampledFuture, draws: list[Generator]) -> Stacked:
    """The same for Mixup, all members at once."""
    rows = seen.shares.shape[2]
    count = future.pseudo_rows or rows
    uniforms = torch.stack([base.draw(count, generator) for generator in draws], 1)  # (4, members, count)
    pairs, sizes = choose(uniforms[:2], rows), [part.shape[1] for part in seen[:2]]
    both = torch.cat(seen[:2], 1)
    first, second = (both.gather(2, pair.unsqueeze(1).expand(-1, sum(sizes), -1)) for pair in pairs)
    parts = [side.detach().split(sizes, 1) for side in (first, second)]
    share = base.share(uniforms) if isinstance(base, Mixup) else warped_share(base, uniforms, *parts)
    blends, shares = second.lerp(first, share.unsqueeze(1)), pair_weights(seen.shares[:, 0], *pairs).unsqueeze(1)
    for_seen, for_pseudo = future.factors(rows, count)
    if for_seen:
        blends = torch.cat([both, blends], 2)
        shares = torch.cat([seen.shares * for_seen, shares * for_pseudo], 2)
    inputs, targets = blends.split(sizes, 1)
    return Stacked(inputs, targets, shares * (rows / shares.shape[2]))
