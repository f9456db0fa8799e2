"""The forward pass of a step where a base measure acts inside the network, and which layers a step trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from mixupmp.core.base_measures import AtLayer
from mixupmp.core.batch import Batch
from mixupmp.core.cut import Cut, calls, check_beside, check_inside, hooked
from mixupmp.core.fields import Fields
from mixupmp.core.given_network import logits_of
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import Future, ResampledFuture
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Standardize
from mixupmp.train.factory import to_training_mode
from mixupmp.train.validation import probed_inputs


@dataclass(frozen=True)
class Inside:
    """Where pseudo rows enter the network, and how: alone, or with more inputs (masks) that are used after it."""

    cut: Cut
    fields: Fields | None


def inside_of(plan: Plan, network: nn.Module) -> Inside | None:
    """Where pseudo rows enter the network, if not with its inputs; an error unless they can."""
    base, scaling = plan.method.predictive.base, plan.task.standardize
    if plan.method.predictive.ratio == 0 or not isinstance(base, AtLayer):
        return None
    inputs = probed_inputs(plan).to(plan.device)
    if isinstance(scaling, Standardize) or scaling.single:
        check_inside(network, base.cut, inputs[:2])
        return Inside(base.cut, None)
    check_beside(network, base.cut, inputs, [scaling.beside(rows, inputs.float()) for rows in (inputs, inputs.flip(0))])
    return Inside(base.cut, scaling)


def forward_inside(
    network: nn.Module, inside: Inside, future: Future, inputs: Tensor, seen: Batch, generator: Generator
) -> tuple[Tensor, Batch]:
    """Outputs for the seen rows and the pseudo rows that enter the network at the cut, and the batch of both.

    Where the network takes several inputs it is given some for the pseudo rows too, drawn as their values will be.
    """
    assert isinstance(future, ResampledFuture)
    made, rows, given = [seen], len(inputs), inputs
    if inside.fields is not None:
        twin = torch.Generator().set_state(generator.get_state())
        blended = future.with_pseudo_rows(seen._replace(inputs=inputs.float()), twin).inputs
        pseudo = blended if future.predictive.ratio == inf else blended[rows:]
        given = torch.cat([inputs, inside.fields.beside(inputs, pseudo)])

    def with_pseudo_rows(values: Tensor) -> Tensor:
        made[0] = future.with_pseudo_rows(seen._replace(inputs=values[:rows].float()), generator)
        blends = made[0].inputs.to(values.dtype)
        whole = inside.fields is None or len(blends) == len(values)
        return blends if whole else torch.cat([values[:rows], blends])

    with hooked(network, inside.cut, with_pseudo_rows):
        outputs = logits_of(network(given)).float()
    return outputs[-len(made[0].targets) :], made[0]


def trained_blocks(plan: Plan, network: nn.Module) -> list[list[nn.Parameter]]:
    """`blocks_of` the network in the order of their use; none where its body is trained as its head is."""
    if plan.recipe.body_rate == 1 and plan.recipe.unfreeze == 0:
        return []
    names = [name for name, _ in network.named_modules() if name]
    return blocks_of(network, calls(network, names, plan.task.example().to(plan.device)))


def blocks_of(network: nn.Module, called: Sequence[str] = ()) -> list[list[nn.Parameter]]:
    """The parameters to be trained, by the parts that a network is made of, from the first to the last, its head.

    The parts are its children; where there is only one with parameters, those of that one. They come in the order in
    which modules are `called`, by their names; as the network has them where one of them is not called at all.
    """
    parts = {name: [p for p in child.parameters() if p.requires_grad] for name, child in network.named_children()}
    parts = {name: part for name, part in parts.items() if part}
    tops = [name.partition(".")[0] for name in called]
    names = sorted(parts, key=tops.index) if parts.keys() <= set(tops) else list(parts)
    blocks = [parts[name] for name in names]
    if len(names) == 1:
        within = [name.partition(".")[2] for name in called if name.startswith(f"{names[0]}.")]
        blocks = blocks_of(network.get_submodule(names[0]), within) or blocks
    found = {id(parameter) for block in blocks for parameter in block}
    own = [p for p in network.parameters() if p.requires_grad and id(p) not in found]
    return [own, *blocks] if own else blocks


def build_optimizer(recipe: Recipe, network: nn.Module, blocks: list[list[nn.Parameter]]) -> Optimizer:
    """The recipe's optimizer; in a group for each block where there are any, the last of which is the head.

    A fused step takes either all buffers of a group or none, and blocks that are unfrozen later have none at first.
    """
    if not blocks:
        return recipe.build_optimizer(network.parameters())
    *body, head = blocks
    optimizer = recipe.build_optimizer(head)
    for block in body:
        optimizer.add_param_group({"params": block})
        optimizer.param_groups[-1]["share"] = recipe.body_rate
    return optimizer


def unfreeze(blocks: list[list[nn.Parameter]], network: nn.Module, epochs: int, epoch: int) -> None:
    """Let the head be trained, and one more block below it after each so many epochs (Howard and Ruder 2018)."""
    for depth, block in enumerate(reversed(blocks) if epochs else ()):
        for parameter in block:
            parameter.requires_grad_(depth * epochs <= epoch)
    if epochs:
        to_training_mode(network)
