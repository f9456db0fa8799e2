"""A user's network: which rows it takes, and what it returns for them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mixupmp.core.arrays import ArrayLayout, as_tensor, is_images, read_as_taken
from mixupmp.core.errors import InvalidArgument, check
from mixupmp.core.fields import Fields
from mixupmp.core.layouts import check_layout
from mixupmp.core.rows import Standardize


def logits_of(outputs: object) -> Tensor:
    """A network's outputs as a tensor: the result itself, or its `logits` as transformers return it, or in a dict."""
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    logits = outputs if isinstance(outputs, Tensor) else logits
    if not isinstance(logits, Tensor):
        hint = "Wrap it in a module that returns its logits alone." if isinstance(outputs, tuple | list) else ""
        must = "a module that returns a tensor, or an object or dict with logits"
        raise InvalidArgument("network", f"one that returns a {type(outputs).__name__}", must, hint)
    return logits


@contextmanager
def in_eval_mode(network: nn.Module) -> Iterator[None]:
    """While in the context, the network is in evaluation mode; then each module is in its own again."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def check_sized(network: nn.Module, name: str) -> None:
    """Raise unless a network that is said to be trained has all its weights, and can be copied and changed."""
    scripted = isinstance(network, torch.jit.ScriptModule)
    check(not scripted, name, type(network).__name__, "a module as it was before torch.jit")
    lazy = any(is_lazy(parameter) for parameter in network.parameters())
    check(not lazy, name, type(network).__name__, "trained: a lazy layer of this network has no weights yet")


def as_taken(network: nn.Module, inputs: object) -> Standardize | Fields:
    """How a network that is trained already takes these inputs: several by name or position, tokens, or numbers."""
    if isinstance(inputs, Mapping | tuple):
        return Fields.of(inputs).unscaled()
    rows = as_tensor(inputs)[:2]
    whole = rows.ndim == 2 and not rows.is_floating_point() and rows.dtype not in (torch.bool, torch.uint8)
    if whole:
        with suppress(InvalidArgument):
            tried(network, rows.long())
            return Fields.of(rows.long())
    return Standardize()


def materialized(network: nn.Module, scaled: Callable[[], Tensor]) -> nn.Module:
    """The network, with its lazy layers (`nn.LazyLinear`) sized by a forward pass of the rows that `scaled` returns."""
    if any(is_lazy(parameter) for parameter in network.parameters()):
        tried(network, scaled())
    return network


def tried(network: nn.Module, scaled: Tensor) -> Any:
    """What a network makes of these rows in evaluation mode; `InvalidArgument` says which rows it does not take."""
    try:
        with in_eval_mode(network), torch.no_grad():
            return network(scaled)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        must = f"one that takes inputs {tuple(scaled.shape)} of {scaled.dtype}"
        hint = str(error).partition("\n")[0]
        if re.search("shape|size|dimension|channel|indices", hint) and "dtype" not in hint:
            hint = hint.rstrip(".") + (
                ". Axes in another order, or tokens? `layout` of fit, posterior_of and ensemble_of says so: "
                "'NHWC', 'NCT', 'tokens'."
            )
        if re.search("dtype|scalar type", hint) and not _is_float32(network):
            hint = hint.rstrip(".") + ". Convert it: network.float()."
        raise InvalidArgument("network", type(network).__name__, must, hint) from error


def _is_float32(network: nn.Module) -> bool:
    types = {parameter.dtype for parameter in network.parameters() if parameter.is_floating_point()}
    return types <= {torch.float32}


def takes(network: nn.Module, rows: Tensor, scaling: Standardize = Standardize()) -> bool:  # noqa: B008 - frozen
    """Whether a trained network makes a line of outputs of each of these raw rows."""
    lazy = any(is_lazy(parameter) for parameter in network.parameters())
    tested = copy.deepcopy(network) if lazy else network  # a forward pass would size its layers
    device = next((parameter.device for parameter in network.parameters()), rows.device)
    try:
        outputs = logits_of(tried(tested, scaling(rows).to(device)))
    except Exception:  # noqa: BLE001 - whatever a user's network raises, it does not take them
        return False
    return outputs.ndim == 2 and len(outputs) == len(rows)


def read_given(
    network: nn.Module, X: Any, layout: str | None, standardize: Standardize | Fields | None, name: str
) -> tuple[Tensor, Standardize | Fields, ArrayLayout | None]:
    """Rows of X for a trained network, what scales them, and how to read more of X, where it is not such rows already.

    Parameters
    ----------
    X
        An array, nested lists, a list of PIL images, or a dict or tuple of arrays.
    layout
        Of X, see `core.layouts`. None: as the network takes it.
    standardize
        None: the network takes numbers as they are, uint8 pixels divided by 255 and uint16 by 65,535.
    name
        Of the argument X in errors.
    """
    check_layout(layout)
    images = is_images(X)
    if isinstance(standardize, Fields) or (not images and isinstance(X, Mapping | tuple)):
        scaling = standardize or Fields.of(X).unscaled()
        return scaling.pack(X), scaling, None
    array = X if images else as_tensor(X, name)
    axes = 3 if images else array.ndim
    if layout == "tokens":
        fields = tokens(array, name)
        return fields.pack(array.long()), fields, None
    if layout == "table" or axes < 3:
        must = "of the axes that `layout` says" if axes > 1 else "of two axes or more, the first of them rows"
        check(layout in (None, "table") and axes == 2, name, tuple(getattr(array, "shape", ())), must)
        scaling = standardize or (Standardize() if layout == "table" else as_taken(network, array))
        return scaling.pack(array), scaling, None
    numbers = standardize or Standardize()
    rows, found = read_as_taken(array, layout, lambda first: takes(network, first, numbers), name)
    if images:
        _check_images(network, X[0], numbers(rows[:2]), name)
    same = not images and rows.shape == array.shape and (rows.dtype == array.dtype or array.is_floating_point())
    return rows, numbers, None if same else found


def _check_images(network: nn.Module, image: Any, scaled: Tensor, name: str) -> None:
    """Raise, with what to do about PIL images, unless the network takes the scaled rows of them."""
    device = next((parameter.device for parameter in network.parameters()), scaled.device)
    try:
        tried(network, scaled.to(device))
    except InvalidArgument as error:
        hint = "Convert or resize them: image.convert('RGB'), image.resize((width, height))."
        given = f"{image.width} x {image.height} {image.mode}"
        raise InvalidArgument(name, given, "images of the size and mode that the network takes", hint) from error


def tokens(array: Tensor, name: str = "X") -> Fields:
    """Of whole numbers that a network takes as they are."""
    whole = isinstance(array, Tensor) and not array.is_floating_point() and array.dtype != torch.bool
    must = "whole numbers, with layout='tokens'"
    check(whole, name, getattr(array, "dtype", type(array).__name__), must)
    return Fields.of(array.long())
