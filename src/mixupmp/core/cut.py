"""A network in two: a body that computes features, and a head that makes outputs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from mixupmp.core.attention import plain_attention
from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.given_network import in_eval_mode, logits_of

Hook = Callable[[Tensor], Tensor]
PLACE = "a place from which on the network's outputs depend on the values there alone"


@dataclass(frozen=True)
class Cut:
    """A place in a network: what goes into a layer, or what comes out of it.

    Parameters
    ----------
    layer
        The name of a submodule, as `named_modules` gives it: "features", "encoder.layers.3", "0".
    at
        Which side of it.
    """

    layer: str
    at: Literal["input", "output"] = "output"

    def __str__(self) -> str:
        return f"the {self.at} of {self.layer!r}"


class _Reached(Exception):
    """Ends a forward pass: what is asked for is there."""


@contextmanager
def hooked(network: nn.Module, cut: Cut, change: Hook) -> Iterator[None]:
    """While in the context, forward passes go on from the cut with `change(values)` in place of the values there."""
    module = _submodule(network, cut.layer)
    encoders = [name for name, part in network.named_modules() if isinstance(part, nn.TransformerEncoder)]
    if any(cut.layer.startswith(f"{name}.") for name in encoders):
        plain_attention(network)

    def changed(values: object) -> Tensor:
        if not isinstance(values, Tensor):
            raise InvalidArgument("layer", str(cut), "a place where the network has one tensor")
        return change(values)

    handle: object
    if cut.at == "input":
        handle = module.register_forward_pre_hook(lambda _, inputs: (changed(inputs[0]), *inputs[1:]))
    else:
        handle = module.register_forward_hook(lambda _, __, output: changed(output))
    try:
        yield
    finally:
        handle.remove()


def features_at(network: nn.Module, cuts: Sequence[Cut], inputs: Tensor) -> list[Tensor]:
    """What the network computes at each of the cuts, in one forward pass; what comes after all of them is not run."""
    found: dict[Cut, Tensor] = {}

    def take(cut: Cut, values: Tensor) -> Tensor:
        found.setdefault(cut, values)
        if len(found) == len(cuts):
            raise _Reached
        return values

    with ExitStack() as stack:
        for cut in cuts:
            stack.enter_context(hooked(network, cut, partial(take, cut)))
        with suppress(_Reached):
            network(inputs)
    for cut in cuts:
        if cut not in found:
            raise InvalidArgument("layer", str(cut), "a layer that the network uses for these inputs")
    return [found[cut] for cut in cuts]


def head_of(network: nn.Module, cut: Cut) -> nn.Module:
    """What the network does from the cut on, made of its own submodules: changing its weights changes the network's.

    A plain `nn.Sequential` where it is a sequence of layers. Found by tracing the forward passes of the modules that
    hold the layer; where they cannot be traced, as in transformers, the layers that follow in `nn.Sequential`s, or the
    layer alone.
    """
    _submodule(network, cut.layer)
    try:
        return _traced_head(network, cut)
    except _NoPath as error:
        raise InvalidArgument("layer", str(cut), "a place that everything after it goes through", f"{error}.") from None
    except Exception as error:  # tracing runs the user's code on symbols, which may raise anything
        layers = _following(network, cut)
        if not layers:
            hint = f"What follows cannot be traced ({type(error).__name__}: {error}); name the input of the last layer."
            raise InvalidArgument("layer", str(cut), "a place from which the network can be traced", hint) from error
        return nn.Sequential(*layers)


def check_head(network: nn.Module, cut: Cut, inputs: Tensor) -> tuple[nn.Module, Tensor]:
    """The head, and the features of these inputs; an error unless it makes the network's outputs of them."""
    with in_eval_mode(network), torch.no_grad():
        (features,) = features_at(network, [cut], inputs)
        expected = logits_of(network(inputs))
        try:
            head = head_of(network, cut)
            found = logits_of(head(features))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise _not_a_head(cut) from error
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise _not_a_head(cut)
    return head, features


def check_inside(network: nn.Module, cut: Cut, inputs: Tensor) -> None:
    """Raise unless rows can be added at the cut: everything after it depends on the values there alone."""
    try:
        with (
            in_eval_mode(network),
            torch.no_grad(),
            hooked(network, cut, lambda values: torch.cat([values, values[:1]])),
        ):
            outputs = logits_of(network(inputs))
    except (RuntimeError, IndexError) as error:
        raise _not_a_head(cut) from error
    if len(outputs) != len(inputs) + 1:
        raise _not_a_head(cut)


def check_beside(network: nn.Module, cut: Cut, inputs: Tensor, beside: Sequence[Tensor]) -> None:
    """Raise unless rows can be added at the cut, and it does not matter which of these are their other inputs."""
    with in_eval_mode(network), torch.no_grad():
        (values,) = features_at(network, [cut], inputs)
        with hooked(network, cut, lambda _: torch.cat([values, values])):
            try:
                found = [logits_of(network(torch.cat([inputs, more]))) for more in beside]
            except (RuntimeError, IndexError) as error:
                raise _not_a_head(cut) from error
    rows = 2 * len(inputs)
    if any(len(each) != rows or not torch.allclose(each, found[0], rtol=1e-3, atol=1e-5) for each in found):
        raise _not_a_head(cut)


def _not_a_head(cut: Cut) -> InvalidArgument:
    return InvalidArgument("layer", str(cut), PLACE, "Name another layer.")


def calls(network: nn.Module, names: Sequence[str], rows: Tensor) -> list[str]:
    """Which of these layers the network calls for these scaled rows, in the order of their first calls."""
    layers = {network.get_submodule(name): name for name in names}
    called: dict[str, None] = {}
    with ExitStack() as stack:
        for layer in layers:
            handle = layer.register_forward_pre_hook(lambda layer, _: called.setdefault(layers[layer]))
            stack.callback(handle.remove)
        with in_eval_mode(network), torch.no_grad():
            network(rows)
    return list(called)


def in_order(network: nn.Module, names: Sequence[str], rows: Tensor | None) -> Sequence[str]:
    """These layers as the network calls them; as it has them where there are no rows, or it does not call them all."""
    called = [] if rows is None else calls(network, names, rows)
    return called if len(called) == len(names) else names


def _submodule(network: nn.Module, name: str) -> nn.Module:
    known = dict(network.named_modules())
    if not name or name not in known:
        raise UnknownName("layer", str(name), [key for key in known if key])
    return known[name]


class _NoPath(Exception):
    """What comes after a cut needs more than the values there."""


class _Tracer(fx.Tracer):
    """Looks only into the modules that hold the layer: all others are one step."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.layer = layer

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return not self.layer.startswith(f"{name}.")


def _traced_head(network: nn.Module, cut: Cut) -> nn.Module:
    graph = _Tracer(cut.layer).trace(network)
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == cut.layer]
    if len(calls) != 1:
        raise _NoPath(f"the network uses the layer {len(calls)} times")
    source = calls[0] if cut.at == "output" else calls[0].args[0]
    head = fx.Graph()
    copies = {source: head.placeholder("features")}
    started = False
    for node in graph.nodes:
        started = started or node is source
        depends = [other for other in node.all_input_nodes if other in copies]
        if not depends or not started:
            continue
        for other in node.all_input_nodes:
            if other not in copies and other.op == "get_attr":
                copies[other] = head.node_copy(other)
            elif other not in copies:
                raise _NoPath(f"{node.name!r} also needs {other.name!r}, which comes before")
        copies[node] = head.node_copy(node, copies.__getitem__)
    layers = [layer for node in list(head.nodes)[1:-1] for layer in _as_layers(network, node)]
    path = all(len(node.users) == 1 for node in list(head.nodes)[:-1])
    if path and None not in layers:
        return nn.Sequential(*(layer for layer in layers if layer is not None))
    return fx.GraphModule(network, head)


def _as_layers(network: nn.Module, node: fx.Node) -> list[nn.Module | None]:
    """A step of a graph as layers; None where it is no layer of one tensor."""
    if len(node.all_input_nodes) != 1:
        return [None]
    if node.op == "call_module":
        return [None] if len(node.args) > 1 or node.kwargs else [*_flat(network.get_submodule(str(node.target)))]
    if node.target in (torch.relu, functional.relu, "relu"):
        return [nn.ReLU()]
    if node.target in (torch.flatten, "flatten") and [*node.args[1:], *node.kwargs.values()] == [1]:
        return [nn.Flatten()]
    if node.target is functional.dropout:  # whose `training` the trace has fixed
        rate = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)
        return [nn.Dropout(rate).train(network.training)] if isinstance(rate, float) else [None]
    return [None]


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of plain sequences within sequences."""
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for layer in module:
            yield from _flat(layer)
    else:
        yield module


def _following(network: nn.Module, cut: Cut) -> list[nn.Module]:
    """The layer (for its input), and those after it in the `nn.Sequential`s that hold it, in their order."""
    layers = [network.get_submodule(cut.layer)] if cut.at == "input" else []
    name = cut.layer
    while name:
        parent, _, child = name.rpartition(".")
        module = network.get_submodule(parent)
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            names = list(module._modules)
            layers += [module.get_submodule(other) for other in names[names.index(child) + 1 :]]
        name = parent
    return [inner for layer in layers for inner in _flat(layer)]
