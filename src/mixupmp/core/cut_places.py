"""Where a network can be cut in body and head: found, or named by a user."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mixupmp.core.cut import PLACE, Cut, calls, check_head, features_at
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.given_network import in_eval_mode, logits_of


def find_cuts(network: nn.Module, inputs: Tensor, most: int = 3) -> list[Cut]:
    """Where the network can be cut: before each of its last linear layers, the last first.

    Only where each row has a vector of features, and there are weights before the cut.
    """
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear) and name]
    cuts: list[Cut] = []
    for name in reversed(linear):
        cut = Cut(name, "input")
        try:
            head, features = check_head(network, cut, inputs)
        except InvalidArgument:
            continue
        in_head = {id(parameter) for parameter in head.parameters()}
        if features.ndim == 2 and any(id(parameter) not in in_head for parameter in network.parameters()):
            cuts.append(cut)
        if len(cuts) == most:
            break
    return cuts


def named_cut(network: nn.Module, layer: str, inputs: Tensor) -> Cut:
    """The cut at the outputs of this layer; an error unless the network's outputs depend on these alone.

    Where the network cannot be traced, as in transformers, it is the input of a linear layer that gets these outputs.
    """
    cut = Cut(layer)
    try:
        check_head(network, cut, inputs)
    except InvalidArgument as error:
        cuts = find_cuts(network, inputs)
        with in_eval_mode(network), torch.no_grad():
            outputs, *features = features_at(network, [cut, *cuts], inputs)
        same = [other for other, values in zip(cuts, features, strict=True) if torch.equal(values, outputs)]
        if not same:
            raise InvalidArgument("body", layer, PLACE, _found(cuts)) from error
        return same[0]
    return cut


def no_cut(network: nn.Module, inputs: Tensor) -> InvalidArgument:
    """The error for a network in which no cut is found, with the reason where it is known."""
    kind = type(network).__name__
    with in_eval_mode(network), torch.no_grad():
        finite = bool(torch.isfinite(logits_of(network(inputs))).all())
    if not finite:
        return InvalidArgument("network", kind, "one whose outputs are finite", "Look for NaN in its weights.")
    hint = "Name the layer whose outputs are features: body='features'."
    if hasattr(network, "_orig_mod"):
        hint = "Pass the module that was compiled: network._orig_mod."
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear) and name]
    called = calls(network, linear, inputs)
    if called:
        with in_eval_mode(network), torch.no_grad():
            (features,) = features_at(network, [Cut(called[-1], "input")], inputs)
        if features.ndim == 3:
            hint = f"{called[-1]!r} is applied to every token. Wrap the network in a module that picks one before it."
    return InvalidArgument("network", kind, "one that ends with linear layers", hint)


def _found(cuts: list[Cut]) -> str:
    return f"Without it, {cuts[0]} is taken." if cuts else "Name another layer."
