"""Some members of a small network as one program of batched matrix products, with its own backward pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mixupmp.core.base_measures import AtLayer
from mixupmp.core.errors import InvalidArgument, check
from mixupmp.core.fast.script import scripted
from mixupmp.core.kernels import uses_global_generator
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import ResampledFuture
from mixupmp.core.rows import Rows
from mixupmp.train.state import check_buffers
from mixupmp.train.vectorized.feeds import Stacked, feed_for
from mixupmp.train.vectorized.inside import Entered, Entry, entry_of


def vectorizable(network: nn.Module, shape: tuple[int, ...] = ()) -> bool:
    """Whether a network is a sequence of linear layers, each but the last followed by ReLU, on flat rows.

    Exactly that: a forward pass or a layer of the user's own, a hook, a frozen, shared or missing weight is not what
    the one program computes. `shape` is that of a row.
    """
    if not isinstance(network, nn.Sequential) or type(network).forward is not nn.Sequential.forward:
        return False
    modules = [network, *network]
    if any(module._forward_hooks or module._forward_pre_hooks for module in modules):
        return False
    layers = [layer for layer in network if type(layer) is not nn.Identity]
    flat = len(shape) <= 1 or (bool(layers) and type(layers[0]) is nn.Flatten)
    kinds = [type(layer) for layer in layers if not _flattens(layer)]
    if not flat or len(kinds) % 2 == 0 or kinds != ([nn.Linear, nn.ReLU] * len(kinds))[: len(kinds)]:
        return False
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    distinct = len(set(linear)) == len(linear) and len({layer.bias is None for layer in linear}) == 1
    return distinct and all(parameter.requires_grad for parameter in network.parameters())


def unsuited(plan: Plan) -> str | None:
    """What of a plan the one program would leave out, if there is something."""
    if torch.device(plan.device).type != "cpu":
        return f"the device {plan.device}"
    if plan.recipe.epochs_after_interpolation is not None:
        return "a recipe that stops each member by itself"
    if plan.recipe.body_rate != 1 or plan.recipe.unfreeze:
        return "a recipe that trains the body of a network differently from its head"
    if plan.recipe.precision != "float32":
        return f"the precision {plan.recipe.precision}"
    if plan.method.predictive.adaptive:
        return "a base measure that adapts after each epoch"
    inside = isinstance(plan.method.predictive.base, AtLayer) and plan.method.predictive.ratio > 0
    if inside and entry_of(plan) is None:
        return "a base measure that acts inside the network, but not between two of its linear layers"
    if uses_global_generator(plan.method.predictive.kernel):
        return "a kernel that takes no generator and may draw from the global one, which members would share"
    if not isinstance(plan.train, Rows):
        return "rows that are read by a loader"
    return None


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


class Group:
    """Some members, trained together. Everything is elementwise across members, so they stay independent."""

    def __init__(self, plan: Plan, members: tuple[int, ...], states: list[dict[str, Tensor]] | None = None) -> None:
        self.plan, self.members = plan, members
        reason = unsuited(plan)
        check(reason is None, "engine", "vectorized", f"another engine for {reason}")
        networks = [plan.build(member) for member in members]
        if not vectorizable(networks[0], plan.task.input_shape):
            raise InvalidArgument(
                "engine",
                "vectorized",
                "another engine for this network",
                "Only sequences of Linear and ReLU are trained in one program.",
            )
        self.entry = entry_of(plan)
        self.future = ResampledFuture(plan.method.predictive, plan.training_data(), plan.recipe.pseudo_batch_size)
        self.names = [name for name, _ in networks[0].named_parameters()]
        stack = [torch.stack([dict(n.named_parameters())[name].detach() for n in networks]) for name in self.names]
        self.parameters = [nn.Parameter(p if p.ndim == 3 else p.unsqueeze(-1)) for p in stack]
        for parameter in self.parameters:
            parameter.grad = torch.empty_like(parameter)
        self.weights = [p for p, name in zip(self.parameters, self.names, strict=True) if name.endswith("weight")]
        self.biases = [p for p, name in zip(self.parameters, self.names, strict=True) if name.endswith("bias")]
        self.gradients = ([_gradient(p) for p in self.weights], [_gradient(p) for p in self.biases])
        self.forward, self.backward = scripted(forward), scripted(backward)
        self.optimizer = plan.recipe.build_optimizer(self.parameters)
        if states is not None:
            self._restore(states)
        generators = None if states is None else [state["generator/draws"] for state in states]
        self.feed = feed_for(plan, members, generators)
        self.buffers: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        # Steps since this was last set to zero in which a member's gradient was finite. One tensor shows it, as the
        # others follow from it; counting on the side costs less than asking after every step.
        self.sound = torch.zeros(len(members))
        self._shows = _gradient(self.parameters[-1]).view(len(members), -1)

    @torch.no_grad()
    def step(self, step: int) -> Stacked:
        """One step of every member; returns the batch it was made on."""
        batch = self.feed.next(step)
        if self.entry is None:
            self._gradients(batch.inputs, batch, 0)
        else:
            batch = self._gradients_inside(batch, self.entry)
        rate = self.plan.recipe.rate(step, self.feed.steps_an_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.sound.add_(torch.isfinite(self._shows.sum(1)))
        return batch

    def _gradients(self, inputs: Tensor, batch: Stacked, first: int) -> Tensor:
        """Gradients of the layers from `first` on, whose inputs these are; the slope of the first one's outputs."""
        outputs, slopes = (part[first:] for part in self._room(inputs.shape[-1]))
        weights, biases, (to_weights, to_biases) = self.weights[first:], self.biases[first:], self.gradients
        self.forward(inputs, weights, biases, outputs)
        slope = self.plan.task.likelihood.output_gradient(outputs[-1], batch.targets, dim=1)
        slope.mul_(batch.shares)
        self.backward(inputs, weights, outputs, slope, slopes, to_weights[first:], to_biases[first:])
        return slopes[0] if slopes else slope

    def _gradients_inside(self, seen: Stacked, entry: Entry) -> Stacked:
        """Gradients where pseudo rows enter at a layer: of the layers after it, then of those before."""
        last = entry.depth - 1
        outputs, slopes = (part[: entry.depth] for part in self._room(seen.inputs.shape[-1]))
        weights, biases = self.weights[: entry.depth], self.biases[: entry.depth]
        self.forward(seen.inputs, weights, biases, outputs)
        values = outputs[last].relu_() if entry.activated else outputs[last]
        entered = Entered(entry, values, seen, self.future, self.feed.draws)
        slope = self._gradients(entered.inputs.detach(), entered.batch, entry.depth)
        slope = entered.slope(self.weights[entry.depth].transpose(1, 2) @ slope)
        slope = slope * (values > 0) if entry.activated else slope
        to_weights, to_biases = (part[: entry.depth] for part in self.gradients)
        self.backward(seen.inputs, weights, outputs, slope, slopes[:last], to_weights, to_biases)
        return Stacked(*(part.detach() for part in entered.batch))

    def _room(self, rows: int) -> tuple[list[Tensor], list[Tensor]]:
        """Buffers that are used again at each step: fresh memory of this size costs more than the arithmetic."""
        if rows not in self.buffers:
            shapes = [(len(self.members), weight.shape[1], rows) for weight in self.weights]
            self.buffers[rows] = [torch.empty(s) for s in shapes], [torch.empty(s) for s in shapes[:-1]]
        return self.buffers[rows]

    @torch.no_grad()
    def losses(self, batch: Stacked) -> Tensor:
        """Each member's loss of the step just made, from the outputs that are still there."""
        outputs, _ = self._room(batch.inputs.shape[-1])
        rows = self.plan.task.likelihood.row_losses(outputs[-1], batch.targets, dim=1)
        return (rows * batch.shares.squeeze(1)).sum(-1)

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """(members, rows, outputs) for scaled inputs."""
        columns = inputs.flatten(1).T.expand(len(self.members), -1, -1)
        shapes = [(len(self.members), weight.shape[1], len(inputs)) for weight in self.weights]
        room = [torch.empty(shape) for shape in shapes]
        self.forward(columns, self.weights, self.biases, room)
        return room[-1].transpose(1, 2)

    def network_weights(self, place: int) -> dict[str, Tensor]:
        """One member's weights, as its network names and shapes them."""
        pairs = zip(self.names, self.parameters, strict=True)
        return {name: (p[place] if name.endswith("weight") else p[place, :, 0]).detach().clone() for name, p in pairs}

    def state(self, place: int) -> dict[str, Tensor]:
        """One member's share of everything that is needed to go on."""
        tensors = {f"network/{name}": value for name, value in self.network_weights(place).items()}
        for number, values in self.optimizer.state_dict()["state"].items():
            for name, value in values.items():
                if value is not None:
                    own = value[place] if value.ndim == 3 else value
                    tensors[f"optimizer/{number}/{name}"] = own.detach().clone()
        tensors["generator/draws"] = self.feed.generator_states()[place]
        return tensors

    def _restore(self, states: list[dict[str, Tensor]]) -> None:
        with torch.no_grad():
            for name, parameter in zip(self.names, self.parameters, strict=True):
                parameter.copy_(torch.stack([s[f"network/{name}"] for s in states]).view_as(parameter))
        saved = self.optimizer.state_dict()
        for key in states[0]:
            if key.startswith("optimizer/"):
                _, number, name = key.split("/")
                parts = [state[key] for state in states]
                whole = torch.stack(parts) if parts[0].ndim else parts[0]
                saved["state"].setdefault(int(number), {})[name] = whole
        self.optimizer.load_state_dict(saved)
        check_buffers(self.optimizer)


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


# The two passes are also valid TorchScript, see `scripted`.


def forward(inputs: Tensor, weights: list[Tensor], biases: list[Tensor], outputs: list[Tensor]) -> None:
    """Each layer's outputs, ReLU included, into the room there is for them."""
    before = inputs
    for layer in range(len(weights)):
        if len(biases) > 0:
            torch.baddbmm(biases[layer], weights[layer], before, out=outputs[layer])
        else:
            torch.bmm(weights[layer], before, out=outputs[layer])
        if layer < len(weights) - 1:
            outputs[layer].relu_()
        before = outputs[layer]


def backward(
    inputs: Tensor,
    weights: list[Tensor],
    outputs: list[Tensor],
    slope: Tensor,
    slopes: list[Tensor],
    to_weights: list[Tensor],
    to_biases: list[Tensor],
) -> None:
    """The gradients, from the slope of the loss in the last layer's outputs."""
    for back in range(len(weights)):
        layer = len(weights) - 1 - back
        before = outputs[layer - 1] if layer > 0 else inputs
        torch.bmm(slope, before.transpose(1, 2), out=to_weights[layer])
        if len(to_biases) > 0:
            torch.sum(slope, [-1], True, out=to_biases[layer])
        if layer > 0:
            below = torch.bmm(weights[layer].transpose(1, 2), slope, out=slopes[layer - 1])
            # ReLU's derivative, in one vectorized pass over the product.
            slope = torch.ops.aten.threshold_backward(below, before, 0, grad_input=below)
