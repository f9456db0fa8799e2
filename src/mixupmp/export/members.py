"""The members of a posterior as one module, (rows, ...) to (members, rows, outputs), that can be exported."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.given_network import logits_of
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.posterior import Posterior
from mixupmp.core.shared import SharedNetwork, SharedPosterior


def member_module(posterior: Posterior, example: Tensor) -> nn.Module:
    """The members of this posterior; `example` is a batch of raw inputs."""
    if isinstance(posterior, DropoutPosterior):
        return _with_masks(posterior, example)
    if isinstance(posterior, LaplacePosterior):
        layers = {name.rpartition(".")[0] for name in posterior.changes}
        last = [name for name, module in posterior.networks[0].named_modules() if isinstance(module, nn.Linear)][-1:]
        if list(layers) != last:
            hint = "ONNX has no derivatives to linearize a network with."
            raise InvalidArgument(
                "posterior", "Laplace over all weights", "a Laplace posterior of the last layer", hint
            )
        return _LastLayers(posterior.networks[0], posterior.changes)
    if isinstance(posterior, SharedPosterior):
        return _SharedMembers(posterior.network)
    return _Networks(posterior.networks)


def _with_masks(posterior: DropoutPosterior, example: Tensor) -> nn.Module:
    posterior.member_outputs(example)  # draws the masks
    network = posterior.networks[0]
    names = {id(module): name for name, module in network.named_modules()}
    for number, layer in enumerate(posterior.layers):
        places = {(use, shape) for _, drawn, use, shape in posterior._drawn if drawn == number}
        if not places:
            continue  # never called: no mask
        if len(places) > 1:
            used = f"a network that uses {names[id(layer)]} {len(places)} times"
            raise InvalidArgument("posterior", used, "one that uses each dropout layer once")
        use, shape = places.pop()
        masks = torch.stack([posterior._drawn[member, number, use, shape] for member in range(posterior.members)])
        parent, _, child = names[id(layer)].rpartition(".")
        setattr(network.get_submodule(parent), child, _FixedMasks(masks[:, None]))
    return _WithMasks(network, posterior.members)


class _Networks(nn.Module):
    """The networks of an ensemble."""

    def __init__(self, networks: list[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([logits_of(network(inputs)) for network in self.networks])


class _SharedMembers(nn.Module):
    """Members that share the weights of one network."""

    def __init__(self, network: SharedNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network.member_outputs(inputs)


class _FixedMasks(nn.Module):
    """Dropout with one fixed mask per member, for inputs (members * rows, ...)."""

    masks: Tensor

    def __init__(self, masks: Tensor) -> None:
        super().__init__()
        self.register_buffer("masks", masks)  # (members, 1, *shape)

    def forward(self, inputs: Tensor) -> Tensor:
        members = self.masks.shape[0]
        by_member = inputs.reshape(members, -1, *inputs.shape[1:])
        return (by_member * self.masks).reshape(-1, *inputs.shape[1:])


class _WithMasks(nn.Module):
    """One network with `_FixedMasks`: every row is repeated for each member."""

    def __init__(self, network: nn.Module, members: int) -> None:
        super().__init__()
        self.network, self.members = network, members

    def forward(self, inputs: Tensor) -> Tensor:
        repeated = inputs.repeat(self.members, *(1,) * (inputs.ndim - 1))
        outputs = logits_of(self.network(repeated))
        return outputs.reshape(self.members, -1, outputs.shape[-1])


class _LastLayers(nn.Module):
    """A Laplace posterior of the last layer: there the linearized network is the network with a sampled last layer."""

    def __init__(self, network: nn.Module, changes: dict[str, Tensor]) -> None:
        super().__init__()
        self.network, self.names = network, list(changes)
        parameters = dict(network.named_parameters())
        for number, (name, change) in enumerate(changes.items()):
            self.register_buffer(f"last_{number}", parameters[name].detach() + change)

    def forward(self, inputs: Tensor) -> Tensor:
        values = [self.get_buffer(f"last_{number}") for number in range(len(self.names))]
        members = [dict(zip(self.names, of_member, strict=True)) for of_member in zip(*values, strict=True)]
        return torch.stack([logits_of(functional_call(self.network, weights, (inputs,))) for weights in members])
