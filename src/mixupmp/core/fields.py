"""Tokens, and networks of several inputs: a row is one line of numbers, which a network gets as it expects them.

Everything between a dataset and a network (shuffling, splitting, weights, devices, checkpoints, serving) handles one
tensor of rows. `Fields` packs a dict or tuple of tensors into that tensor, and puts a hook before the network's forward
pass that takes it apart again. Whole numbers stay whole numbers: they are neither scaled nor blended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from mixupmp.core.arrays import as_tensor
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.rows import Standardize

RawInputs = Tensor | Mapping[str, Any] | Sequence[Any]
FieldType = Literal["int64", "bool", "uint8", "float32"]
LABELS = ("label", "labels")  # keys of a dict item that are not inputs
EXACT = 2**24  # whole numbers below it are exact in float32


@dataclass(frozen=True)
class Field:
    """One input of a network.

    Parameters
    ----------
    name
        The keyword of the network's forward pass; empty: by position.
    shape
        Of one row.
    dtype
        What the network gets: "int64" and "bool" as they are, "uint8" divided by 255, and like "float32" scaled.
    standardize
        Scaling of "uint8" and "float32".
    """

    name: str
    shape: tuple[int, ...]
    dtype: FieldType = "float32"
    standardize: Standardize = Standardize()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        check(self.dtype in get_args(FieldType), "dtype", self.dtype, f"one of {', '.join(get_args(FieldType))}")
        check(all(size > 0 for size in self.shape), "shape", self.shape, "without an empty axis")

    @property
    def numbers(self) -> int:
        """How many numbers of a row it takes."""
        return math.prod(self.shape)

    @property
    def whole(self) -> bool:
        """Whether it is tokens or a mask, which are passed on as they are."""
        return self.dtype in ("int64", "bool")

    def packed(self, values: object, dtype: torch.dtype) -> Tensor:
        """(rows, numbers) of values (rows, *shape)."""
        called = self.name or "inputs"
        tensor = as_tensor(values, called)
        must = f"of shape (rows, {', '.join(map(str, self.shape))})" if self.shape else "one number for each row"
        check(tuple(tensor.shape[1:]) == self.shape and tensor.ndim > 0, called, tuple(tensor.shape), must)
        if self.whole and tensor.is_floating_point():
            hint = "Tokens and masks are kept as integers."
            raise InvalidArgument(called, tensor.dtype, "whole numbers, as in the fit", hint)
        inexact = self.dtype == "int64" and dtype.is_floating_point and tensor.numel() > 0
        if inexact and int(tensor.abs().max()) >= EXACT:
            must = f"whole numbers below {EXACT} beside inputs that are not"
            raise InvalidArgument(called, int(tensor.abs().max()), must)
        return tensor.reshape(len(tensor), self.numbers).to(dtype)


@dataclass(frozen=True)
class Fields:
    """The inputs of a network that takes tokens, or several tensors by name or by position.

    It stands where `Standardize` stands for a single tensor of numbers: `Task.standardize`.

    Parameters
    ----------
    fields
        One for each tensor, in the order in which they are packed.

    Examples
    --------
    >>> import torch
    >>> from mixupmp.core.fields import Fields
    >>> batch = {"input_ids": torch.tensor([[5, 2, 0]]), "attention_mask": torch.tensor([[1, 1, 0]])}
    >>> fields = Fields.of(batch)
    >>> fields.pack(batch)
    tensor([[5, 2, 0, 1, 1, 0]])
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        check(len(self.fields) > 0, "fields", self.fields, "at least one")
        names = [field.name for field in self.fields]
        named = len(set(names)) == len(names) and all(name.isidentifier() for name in names)
        check(named or not any(names), "fields", names, "all named, each differently, or all without a name")

    @classmethod
    def of(cls, inputs: RawInputs) -> Fields:
        """Of these inputs: their names, shapes and types, and the scaling of those that are not whole numbers."""
        return cls(tuple(_described(name, as_tensor(value, name or "inputs")) for name, value in _items(inputs)))

    @property
    def dtype(self) -> torch.dtype:
        """Of packed rows: int64 where all fields are whole numbers, else float32."""
        return torch.int64 if all(field.whole for field in self.fields) else torch.float32

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a packed row."""
        return self.fields[0].shape if self.single else (sum(field.numbers for field in self.fields),)

    @property
    def single(self) -> bool:
        """Whether it is one tensor by position, which is its own packing: tokens."""
        return len(self.fields) == 1 and not self.fields[0].name and bool(self.fields[0].shape)

    @property
    def blendable(self) -> bool:
        """Whether rows can be blended or perturbed as they are: not where there are whole numbers."""
        return not any(field.whole for field in self.fields)

    def pack(self, inputs: RawInputs) -> Tensor:
        """(rows, *shape) of a dict, a tuple or, for tokens, a tensor; packed rows are returned as they are."""
        if isinstance(inputs, Tensor) and inputs.dtype == self.dtype and tuple(inputs.shape[1:]) == self.shape:
            return inputs
        if self.single and isinstance(inputs, list) and not (len(inputs) == 1 and hasattr(inputs[0], "ndim")):
            inputs = as_tensor(inputs)  # rows of tokens, each a list
        given, names = _items(inputs), [field.name for field in self.fields]
        if sorted(name for name, _ in given) != sorted(names):
            must = f"a dict with {', '.join(names)}" if names[0] else f"a tuple of {len(names)} tensors"
            raise InvalidArgument("inputs", [name for name, _ in given], must)
        values = [dict(given)[name] for name in names] if names[0] else [value for _, value in given]
        parts = [field.packed(value, self.dtype) for field, value in zip(self.fields, values, strict=True)]
        rows = [len(part) for part in parts]
        check(len(set(rows)) == 1, "inputs", rows, "of as many rows each")
        return parts[0].reshape(-1, *self.shape) if self.single else torch.cat(parts, 1)

    def unscaled(self) -> Fields:
        """The same fields as they are, for a network that was trained on them so."""
        return Fields(tuple(replace(field, standardize=Standardize()) for field in self.fields))

    def unpack(self, packed: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """The arguments of a network, by position and by name, from packed rows."""
        parts = packed.flatten(1).split([field.numbers for field in self.fields], 1)
        types = [torch.float32 if not field.whole else getattr(torch, field.dtype) for field in self.fields]
        tensors = [
            part.reshape(-1, *field.shape).to(dtype)
            for part, field, dtype in zip(parts, self.fields, types, strict=True)
        ]
        if not self.fields[0].name:
            return tuple(tensors), {}
        return (), {field.name: tensor for field, tensor in zip(self.fields, tensors, strict=True)}

    def beside(self, seen: Tensor, blended: Tensor) -> Tensor:
        """Packed inputs for rows whose values at a layer are blends of seen rows': what the network uses beside them.

        Masks, whole numbers of 0 and 1, are the union of those of the blended rows; numbers are blended; other whole
        numbers, which cannot be, are those of some seen row.
        """
        place = torch.arange(len(blended), device=seen.device) % len(seen)
        numbers = [field.numbers for field in self.fields]
        parts = []
        for field, own, mixed in zip(self.fields, seen.split(numbers, 1), blended.split(numbers, 1), strict=True):
            mask = field.whole and bool(((own == 0) | (own == 1)).all())
            parts.append((mixed > 0) if mask else own[place] if field.whole else mixed)
        return torch.cat([part.to(seen.dtype) for part in parts], 1)

    def __call__(self, inputs: Tensor, out: Tensor | None = None) -> Tensor:
        """Packed rows with the fields of numbers scaled, in `out` if given."""
        if all(field.whole for field in self.fields):
            return inputs.to(self.dtype) if out is None else out.copy_(inputs)
        parts = inputs.flatten(1).split([field.numbers for field in self.fields], 1)
        scaled = [_scaled(field, part) for field, part in zip(self.fields, parts, strict=True)]
        result = torch.cat(scaled, 1).reshape(inputs.shape)
        return result if out is None else out.copy_(result)

    def prepare(self, network: nn.Module) -> nn.Module:
        """The network, with a hook that takes packed rows apart; a call with a network's own arguments is as before."""
        hooked = any(getattr(hook, "__self__", None) == self for hook in network._forward_pre_hooks.values())
        if not self.single and not hooked:
            network.register_forward_pre_hook(self._arguments, with_kwargs=True)
        return network

    def _arguments(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        packed = len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and args[0].ndim == 2
        return self.unpack(args[0]) if packed and tuple(args[0].shape[1:]) == self.shape else (args, kwargs)


def parted(batch: object) -> tuple[Any, Any]:
    """Inputs and labels of a batch (or an item): (inputs, labels), (a, b, ..., labels), or a dict with its labels."""
    if isinstance(batch, Mapping):
        found = [key for key in LABELS if key in batch]
        check(len(found) == 1, "dataset", list(batch), "dict items with one of the keys label and labels")
        return {key: value for key, value in batch.items() if key not in LABELS}, batch[found[0]]
    if not isinstance(batch, list | tuple) or len(batch) < 2:
        must = "items (input, label), or dicts with a key label"
        raise BadData(f"a Dataset must give {must}, got {type(batch).__name__}.")
    inputs = batch[0] if len(batch) == 2 else batch[:-1]
    return tuple(inputs) if isinstance(inputs, list) else inputs, batch[-1]


def is_several(inputs: object) -> bool:
    """Whether these are several inputs of a network: a dict, or a tuple of arrays of rows, not all of them flat."""
    if isinstance(inputs, Mapping):
        return not hasattr(inputs, "shape")  # scipy has a sparse matrix that is a dict
    axes = [getattr(part, "ndim", 0) for part in inputs] if isinstance(inputs, tuple) else []
    return min(axes, default=0) > 0 and max(axes) > 1


def _items(inputs: RawInputs) -> list[tuple[str, Any]]:
    if isinstance(inputs, Mapping):
        check(len(inputs) > 0, "inputs", "an empty dict", "a dict of tensors")
        return [(str(name), value) for name, value in inputs.items()]
    return [("", value) for value in ([inputs] if isinstance(inputs, Tensor | np.ndarray) else inputs)]


def _described(name: str, values: Tensor) -> Field:
    field = Field(name, tuple(values.shape[1:]))
    if values.dtype == torch.bool:
        return replace(field, dtype="bool")
    if values.dtype == torch.uint8 and values.ndim > 2:
        return replace(field, dtype="uint8", standardize=Standardize.of(values))
    if not values.is_floating_point():
        return replace(field, dtype="int64")
    return replace(field, standardize=Standardize.of(values.float() if values.ndim > 1 else values.float()[:, None]))


def _scaled(field: Field, part: Tensor) -> Tensor:
    if field.whole:
        return part.float()
    shaped = part.reshape(-1, *(field.shape or (1,)))
    shaped = shaped.to(torch.uint8) if field.dtype == "uint8" else shaped.float()
    return field.standardize(shaped).reshape(len(part), -1)
