"""Members that share weights: one network, with rank-one adapters for each member, each fitted to its own future.

A linear layer W of the network becomes, for member b,

    f_b(x) = ((x * r_b) W^T) * s_b + c_b

with W shared and r_b, s_b, c_b the member's own (BatchEnsemble, Wen et al. 2020); the last layer is the member's own
altogether. All members are one matrix product. r_b of the first layer are fixed random signs, all other scales start as
ones (after TabM, Gorishniy et al. 2025, where the signs are trained too). Here each member is fitted to its own
simulated future, with its own shuffles, blends and drawn weights: a martingale posterior whose samples share most of
their weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from mixupmp.core.attention import plain_attention
from mixupmp.core.cut import in_order
from mixupmp.core.errors import InvalidArgument, check
from mixupmp.core.fast.eager import is_eager
from mixupmp.core.fast.shared_mlp import Parameters, Workspace, member_outputs, training_outputs
from mixupmp.core.given_network import logits_of
from mixupmp.core.joint_futures import JointFuture, ResampledJointFuture
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import Predictive, TrainingData, simulate
from mixupmp.core.samplers import check_members
from mixupmp.core.weights import DrawnWeights


@dataclass(frozen=True)
class SharedEnsemble:
    """`members` that share the weights of one network but for rank-one adapters and the last layer.

    Works with every network that has linear layers; other layers (normalization, embeddings) are shared.

    Parameters
    ----------
    members
        How many sets of adapters.
    """

    members: int = 16
    networks: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_members(self.members)

    def adapt(self, network: nn.Module, rows: Tensor | None = None) -> SharedNetwork:
        """The network with adapters, whose signs are drawn from torch's global generator; see `LoRA.adapt` for rows."""
        return SharedNetwork(network, self.members, rows)

    def simulate(
        self, predictive: Predictive, data: TrainingData, pseudo_rows: int | None, generator: Generator
    ) -> JointFuture | ResampledJointFuture:
        """A future for each member."""
        if not isinstance(predictive.weights, DrawnWeights):
            orders = torch.stack([torch.randperm(len(data.rows), generator=generator) for _ in range(self.members)])
            pseudo_rows = None if pseudo_rows is None else self.members * pseudo_rows
            return ResampledJointFuture(predictive, data, pseudo_rows, orders)
        futures = [simulate(predictive, data, pseudo_rows, generator) for _ in range(self.members)]
        return JointFuture(futures, [torch.randperm(len(future), generator=generator) for future in futures])

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        return SharedPosterior(networks, task)


class SharedLinear(nn.Module):
    """A linear layer with rank-one adapters for each member, on (members * rows, ..., features)."""

    input_scale: Tensor

    def __init__(self, layer: nn.Linear, members: int, signs: bool) -> None:
        super().__init__()
        self.members = members
        self.weight = layer.weight
        ones = torch.ones(members, layer.in_features)
        if signs:  # these stay: without their gradient a step costs a third less, and members differ as much
            self.register_buffer("input_scale", torch.randint(0, 2, ones.shape) * 2.0 - 1.0)
        else:
            self.input_scale = nn.Parameter(ones)
        self.output_scale = nn.Parameter(torch.ones(members, layer.out_features))
        bias = None if layer.bias is None else layer.bias.detach().expand(members, -1).clone()
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        blocks = inputs.reshape(self.members, -1, inputs.shape[-1])
        outputs = functional.linear(blocks * self.input_scale[:, None], self.weight) * self.output_scale[:, None]
        if self.bias is not None:
            outputs = outputs + self.bias[:, None]
        return outputs.reshape(*inputs.shape[:-1], -1)


class MemberLinear(nn.Module):
    """A linear layer of its own for each member, on (members * rows, ..., features)."""

    def __init__(self, layer: nn.Linear, members: int) -> None:
        super().__init__()
        self.members = members
        bound = layer.in_features**-0.5  # the range of nn.Linear's own initialization
        weight = torch.empty(members, layer.in_features, layer.out_features)
        self.weight = nn.Parameter(weight.uniform_(-bound, bound))
        bias = None if layer.bias is None else torch.empty(members, layer.out_features).uniform_(-bound, bound)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        blocks = inputs.reshape(self.members, -1, inputs.shape[-1])
        outputs = torch.bmm(blocks, self.weight)
        if self.bias is not None:
            outputs = outputs + self.bias[:, None]
        return outputs.reshape(*inputs.shape[:-1], -1)


class SharedNetwork(nn.Module):
    """A network whose linear layers have adapters for each member.

    In training, rows come in equal blocks, one for each member, and outputs likewise. In evaluation every row goes
    through all members, and the output is log mean_b softmax(f_b(x)), the logits of their averaged probabilities;
    `member_outputs` gives those of each.
    """

    def __init__(self, network: nn.Module, members: int, rows: Tensor | None = None) -> None:
        super().__init__()
        names = [name for name, module in network.named_modules() if type(module) is nn.Linear]
        if not names:
            must = "a network with nn.Linear layers, for members that share weights"
            raise InvalidArgument("network", type(network).__name__, must)
        ordered = in_order(network, names, rows)
        for name in names:
            layer = cast(nn.Linear, network.get_submodule(name))
            last, first = name == ordered[-1], name == ordered[0]
            new = MemberLinear(layer, members) if last else SharedLinear(layer, members, signs=first)
            if not name:  # the network is one linear layer
                network = new
            else:
                parent, _, child = name.rpartition(".")
                setattr(network.get_submodule(parent), child, new)
        self.network, self.members = plain_attention(network), members
        self._layers = _Layers.of(network)

    def draw_from(self, generator: Generator) -> bool:
        """Draw dropout from this generator and not from torch's global one; False where that cannot be."""
        if self._layers is None:
            return False
        self._layers.generator = generator
        return True

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            if self._layers is not None and self._layers.suit(inputs):
                return self._layers.training_outputs(inputs)
            return logits_of(self.network(inputs))
        outputs = self.member_outputs(inputs)
        return torch.logsumexp(outputs.log_softmax(-1), 0) - math.log(self.members)

    def member_outputs(self, inputs: Tensor) -> Tensor:
        """(members, rows, outputs)."""
        layers = None if torch.is_grad_enabled() or self.training else self._layers
        if layers is not None and layers.suit(inputs):
            return layers.member_outputs(inputs)
        repeated = inputs.repeat(self.members, *(1,) * (inputs.ndim - 1))
        outputs = logits_of(self.network(repeated))
        return outputs.reshape(self.members, -1, outputs.shape[-1])


class _Layers:
    """Layers without weights, then [linear, ReLU, dropout] for each hidden layer, then the members' own last layer.

    These are computed by `core.fast.shared_mlp`.
    """

    def __init__(self, before: list[nn.Module], hidden: list[SharedLinear], last: MemberLinear, rate: float) -> None:
        self.before, self.hidden, self.last, self.rate = before, hidden, last, rate
        self.generator: Generator | None = None  # of dropout; None: torch's global one
        self.kept: list[Workspace] = []

    @classmethod
    def of(cls, network: nn.Module) -> _Layers | None:
        """Those of a network, if it is exactly such a sequence."""
        modules = list(network) if type(network).forward is nn.Sequential.forward else []  # type: ignore[call-overload]
        if not modules or any(m._forward_hooks or m._forward_pre_hooks for m in (network, *modules)):
            return None
        first = next(place for place, m in enumerate(modules) if any(True for _ in m.parameters()))
        last, rates = modules[-1], {m.p for m in modules[first:] if type(m) is nn.Dropout}
        block = [SharedLinear, nn.ReLU, *([nn.Dropout] if rates else [])]
        hidden = [m for m in modules if isinstance(m, SharedLinear)]
        known = [type(m) for m in modules[first:]] == [*block * len(hidden), MemberLinear]
        random = any(isinstance(m, nn.modules.dropout._DropoutNd) for b in modules[:first] for m in b.modules())
        if random or not known or len(rates) > 1 or max(rates, default=0.0) == 1 or not isinstance(last, MemberLinear):
            return None
        biased = all(layer.bias is not None for layer in (*hidden, last))
        return cls(modules[:first], hidden, last, max(rates, default=0.0)) if biased else None

    def suit(self, inputs: Tensor) -> bool:
        """Whether this is plain float32 arithmetic on a CPU, which nothing traces, transforms or differentiates."""
        plain = inputs.device.type == "cpu" and inputs.dtype == self.last.weight.dtype == torch.float32
        return plain and not inputs.requires_grad and not torch.is_autocast_enabled("cpu") and is_eager()

    def training_outputs(self, inputs: Tensor) -> Tensor:
        return training_outputs(self._flat(inputs), self._parameters(), self.rate, self.kept, self.generator)

    def member_outputs(self, inputs: Tensor) -> Tensor:
        return member_outputs(self._flat(inputs), self._parameters())

    def _flat(self, inputs: Tensor) -> Tensor:
        for module in self.before:
            inputs = module(inputs)
        return inputs

    def _parameters(self) -> Parameters:
        names = ("weight", "output_scale", "bias", "input_scale")
        weights, scales, biases, input_scales = ([getattr(layer, name) for layer in self.hidden] for name in names)
        assert self.last.bias is not None
        return Parameters(weights, scales, biases, input_scales, self.last.weight, self.last.bias)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "generator": None, "kept": []}


class SharedPosterior(Posterior):
    """Posterior samples that share one network but for their adapters."""

    def __init__(self, networks: Sequence[nn.Module], task: Task) -> None:
        super().__init__(networks, task, 1)
        known = len(self.networks) == 1 and isinstance(self.networks[0], SharedNetwork)
        check(known, "networks", self.networks, "one network made by SharedEnsemble.adapt")

    @property
    def network(self) -> SharedNetwork:
        return cast(SharedNetwork, self.networks[0])

    @property
    def members(self) -> int:
        return self.network.members

    def _outputs(self, inputs: Tensor) -> Tensor:
        return self.network.member_outputs(inputs)
