"""A frozen body is computed once: a plan for a network becomes a plan for its head, on the features of the rows."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import prod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from mixupmp.core import seeds
from mixupmp.core.arrays import ArrayLayout
from mixupmp.core.base_measures import AtLayer
from mixupmp.core.cut import Cut, calls, check_head, features_at, head_of
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.given_network import in_eval_mode
from mixupmp.core.heads import Heads, same_body
from mixupmp.core.kernels import Kernel, identity
from mixupmp.core.plan import NetworkFactory, Plan
from mixupmp.core.rows import Rows, RowSource, Standardize
from mixupmp.core.samplers import Ensemble
from mixupmp.core.threads import pinned_threads
from mixupmp.networks.factories import Given
from mixupmp.train.factory import to_training_mode

IN_MEMORY = 2**31  # bytes of features; more of them go to a temporary file that is mapped into memory
BATCH = 512  # rows whose features are computed at once
LOOKED_AT = 8  # rows of a stream that tell whether its transforms are random


@dataclass(frozen=True)
class HeadFactory:
    """Builds heads: of each network that a factory builds, what comes after the cut, with the same outputs.

    Parameters
    ----------
    network
        Builds the whole network.
    cut
        Where its head begins.
    scaling
        Of the features, which the head's first layer then takes standardized.
    whole
        Whether a member's weights are completed to those of the whole network when its fit ends.
    """

    network: NetworkFactory
    cut: Cut
    scaling: Standardize = Standardize()  # noqa: RUF009 - frozen
    whole: bool = False
    same_structure: ClassVar[bool] = True

    def __call__(self) -> nn.Module:
        if isinstance(self.network, Given) and self.network.keep_weights:
            return copy.deepcopy(self._start)  # tracing a network to its head costs as much as ten steps
        return self._built()

    @cached_property
    def _start(self) -> nn.Module:
        """The head of a network whose weights are the start, for all members."""
        return self._built()

    def _built(self) -> nn.Module:
        return _scaled_head(self.network(), self.cut, self.scaling)

    @cached_property
    def _complete(self) -> tuple[nn.Module, nn.Module]:
        """A whole network, and its head."""
        network = self.network()
        return network, head_of(network, self.cut)

    def completed(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Of a head's weights those of the whole network, whose first layer of the head takes features as they are."""
        if not self.whole:
            return weights
        network, head = self._complete
        head.load_state_dict(weights)
        if self.scaling.mean:
            unscale(first_linear(head), self.scaling)
        return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_complete", "_start")}


def first_linear(head: nn.Module) -> nn.Linear | None:
    """The linear layer that a head begins with, if it does and the layer can absorb a scaling of its inputs."""
    first = next(iter(head), None) if isinstance(head, nn.Sequential) else None
    return first if type(first) is nn.Linear and first.bias is not None else None


@torch.no_grad()
def _scaled_head(network: nn.Module, cut: Cut, scaling: Standardize) -> nn.Module:
    """The head of a network, changed to make of standardized features what it made of them as they are."""
    head = head_of(network, cut)
    if scaling.mean:
        layer = first_linear(head)
        assert layer is not None
        assert layer.bias is not None
        layer.bias.add_(layer.weight @ torch.tensor(scaling.mean, device=layer.weight.device))
        layer.weight.mul_(torch.tensor(scaling.deviation, device=layer.weight.device))
    return head


@torch.no_grad()
def unscale(layer: nn.Linear | None, scaling: Standardize) -> None:
    """Change a layer for standardized inputs into the one that does the same for inputs as they are."""
    assert layer is not None
    assert layer.bias is not None
    layer.weight.div_(torch.tensor(scaling.deviation))
    layer.bias.sub_(layer.weight @ torch.tensor(scaling.mean))


def on_features(plan: Plan, cut: Cut, train: Rows, validation: Rows | None, scaling: Standardize) -> Plan:
    """The plan for heads, with features as the inputs of its training and validation rows."""
    factory = HeadFactory(plan.network, cut, scaling)
    base = plan.method.predictive.base
    method = replace(
        plan.method,
        predictive=replace(
            plan.method.predictive, kernel=identity, base=base.base if isinstance(base, AtLayer) else base
        ),
        sampler=Ensemble(plan.method.sampler.networks),
    )
    initial = None
    if plan.initial is not None:
        initial = [_head_weights(plan.network(), weights, cut, scaling) for weights in plan.initial]
    encoder = None if isinstance(plan.task.encoder, ArrayLayout) else plan.task.encoder
    task = replace(plan.task, standardize=scaling, input_shape=tuple(train.inputs.shape[1:]), encoder=encoder)
    return replace(plan, method=method, network=factory, train=train, validation=validation, task=task, initial=initial)


def _head_weights(network: nn.Module, weights: dict[str, Tensor], cut: Cut, scaling: Standardize) -> dict[str, Tensor]:
    network.load_state_dict(weights)
    return {name: value.clone() for name, value in _scaled_head(network, cut, scaling).state_dict().items()}


def on_fixed_features(plan: Plan) -> tuple[Plan, str | None]:
    """The plan for the head of a network whose body is frozen; or the plan itself, and why a frozen body is not reused.

    The features of all rows are computed once, where that is exact: nothing that comes before the first layer to be
    trained changes from step to step. The members then agree with those of the plan itself to rounding error.
    """
    sampler = plan.method.sampler
    if isinstance(sampler, Heads):
        return _whole(heads_plans([plan], plan.template)[0]), None
    if all(parameter.requires_grad for parameter in plan.template.parameters()):
        return plan, None
    found = _frozen_body(plan)
    if isinstance(found, str):
        return plan, f"the frozen layers are computed at every step: {found}"
    (features,) = features_of(plan.template, [found], plan, plan.train)
    held = None if plan.validation is None else features_of(plan.template, [found], plan, plan.validation)[0]
    return _whole(on_features(plan, found, features, held, Standardize())), None


def _whole(plan: Plan) -> Plan:
    """The plan, with members' weights completed to those of the whole network."""
    assert isinstance(plan.network, HeadFactory)
    return replace(plan, network=replace(plan.network, whole=True))


def _frozen_body(plan: Plan) -> Cut | str:
    """Where the network is to be cut for its features to be computed once, or why they cannot."""
    predictive, network = plan.method.predictive, plan.template
    if not isinstance(plan.train, Rows):
        return "the rows are read by a loader"
    if predictive.kernel is not identity:
        return "the kernel changes the inputs"
    blended = predictive.base if predictive.ratio > 0 else None
    if blended is not None and not isinstance(blended, AtLayer):
        return "raw inputs are blended; AtLayer(Mixup(alpha), layer) blends features"
    if hasattr(plan.method.sampler, "adapt"):
        return "the sampler puts adapters into the network"
    if plan.recipe.precision != "float32":
        return f"the precision is {plan.recipe.precision}"
    inputs = plan.task.standardize(plan.train.inputs[:8].to(plan.device))
    cut = _first_trained(network, inputs) if blended is None else blended.cut
    if cut is None:
        return "no layer that is trained was found by running the network"
    try:
        head, features = check_head(network, cut, inputs)
    except InvalidArgument as error:
        return str(error)
    in_head = {id(parameter) for parameter in head.parameters()}
    if any(parameter.requires_grad and id(parameter) not in in_head for parameter in network.parameters()):
        return f"layers before {cut} are trained"
    # As the steps of a fit would compute them, with dropout and batch statistics.
    state = {name: value.clone() for name, value in network.state_dict().items()}
    with in_eval_mode(network), torch.no_grad(), seeds.global_seed(0):  # which puts back the modes they have
        to_training_mode(network)
        (live,) = features_at(network, [cut], inputs)
        unchanged = all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    network.load_state_dict(state)
    if not unchanged or not torch.allclose(live, features, rtol=1e-5, atol=1e-6):
        return "dropout or normalization before the first layer that is trained is live"
    others = (plan.build(member) for member in range(1, plan.method.sampler.networks))
    return cut if all(same_body(network, other, cut) for other in others) else "members have different frozen weights"


def _first_trained(network: nn.Module, inputs: Tensor) -> Cut | None:
    """What goes into the first layer, in the order of their use, that has parameters to train."""
    trained = [
        name
        for name, module in network.named_modules()
        if name and any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    ]
    called = calls(network, trained, inputs)
    return Cut(called[0], "input") if called else None


def heads_plans(plans: Sequence[Plan], network: nn.Module) -> list[Plan]:
    """Plans of `Heads` samplers as plans on the features of this network: of all rows, or augmented repeats of them.

    They differ in their cuts alone, whose features are computed in one pass.
    """
    plan, samplers = plans[0], [s for plan in plans if isinstance(s := plan.method.sampler, Heads)]
    cuts, kernel = [sampler.cut for sampler in samplers], plan.method.predictive.kernel
    repeats = 1 if kernel is identity and not _is_live(plan.train) else samplers[0].repeats
    features = features_of(network, cuts, plan, plan.train, kernel, repeats)
    held = [None] * len(cuts) if plan.validation is None else features_of(network, cuts, plan, plan.validation)
    return [
        on_features(plan, cut, own, of_held, scaling_of(head_of(network, cut), own.inputs))
        for plan, cut, own, of_held in zip(plans, cuts, features, held, strict=True)
    ]


def scaling_of(head: nn.Module, features: Tensor) -> Standardize:
    """Standardizes features, where the head begins with a linear layer that absorbs it afterwards."""
    return Standardize.of(features) if first_linear(head) is not None and features.ndim == 2 else Standardize()


def _is_live(rows: RowSource) -> bool:
    """Whether a stream's rows are transformed at random: whether they are others in another epoch."""
    if isinstance(rows, Rows):
        return False
    first = torch.arange(min(LOOKED_AT, len(rows)))
    (one,), (other,) = (list(rows.batches([first], epoch)) for epoch in (0, 1))
    return not torch.equal(one.inputs, other.inputs)


@torch.no_grad()
def features_of(
    network: nn.Module, cuts: Sequence[Cut], plan: Plan, rows: RowSource, kernel: Kernel = identity, repeats: int = 1
) -> list[Rows]:
    """For each cut rows (repeats * rows, ...) of what the network computes there in evaluation mode.

    Random transforms of streamed rows are drawn anew for each repeat, as in an epoch of a fit.
    """
    seed = seeds.derive(plan.seed, "features")
    generator = torch.Generator().manual_seed(seed)
    chunks = torch.arange(len(rows)).split(BATCH)
    rooms: list[Tensor] = []
    labels: list[Tensor] = []
    weights: list[Tensor] = []
    network, start = network.to(plan.device), 0
    with pinned_threads(plan.recipe.threads), in_eval_mode(network), seeds.global_seed(seed):
        for block in chain.from_iterable(rows.batches(chunks, repeat) for repeat in range(repeats)):
            inputs = plan.task.standardize(kernel(block.inputs, generator).to(plan.device))
            found = features_at(network, cuts, inputs)
            rooms = rooms or [_room((repeats * len(rows), *values.shape[1:])) for values in found]
            for room, values in zip(rooms, found, strict=True):
                room[start : start + len(values)] = values
            labels.append(block.labels.cpu())
            weights += [] if block.weights is None else [block.weights.cpu()]
            start += len(block)
    return [Rows(room, torch.cat(labels), torch.cat(weights) if weights else None) for room in rooms]


def _room(shape: tuple[int, ...]) -> Tensor:
    """Room for features: in memory, or in a temporary file that is removed with it."""
    if 4 * prod(shape) <= IN_MEMORY:
        return torch.empty(shape)
    with tempfile.TemporaryFile() as file:  # which stays as long as it is mapped
        return torch.from_numpy(np.memmap(file, np.float32, "w+", shape=shape))
