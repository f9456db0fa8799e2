"""Tensors from safetensors files that may come from anybody: only those that are expected, and only finite ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mixupmp.core.errors import BadRun
from mixupmp.store.manifest import Sealed

HEADER_LIMIT = 16 * 2**20  # bytes that name the tensors of a file


def read_tensors(sealed: Sealed, name: str, form: dict[str, Tensor], all_of_them: bool = True) -> dict[str, Tensor]:
    """Tensors of a safetensors file that have the names, shapes and types of `form`.

    Parameters
    ----------
    form : tensors without memory (device "meta"). They bound the size of the file, which is checked before reading.
    all_of_them : whether every tensor of the form must be there, or any non-empty part of them.
    """
    path = sealed.path / name
    if name not in sealed.hashes:
        raise BadRun(f"{path} is missing: the manifest does not name it. Restore the folder from a copy, or fit again.")
    needed = sum(value.numel() * value.element_size() for value in form.values())
    size = sealed.size(name)
    if not (needed if all_of_them else 0) <= size <= needed + HEADER_LIMIT:
        raise BadRun(f"{path} has {size} bytes where the network's tensors have {needed}: it is something else.")
    tensors, _ = parse_tensors(sealed.read(name, needed + HEADER_LIMIT), path)
    _check_form(tensors, form, all_of_them, path)
    return tensors


def parse_tensors(content: bytes, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata from the content of the safetensors file at this path."""
    # A safetensors file begins with the length of its header, and the header, which is JSON.
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    if not 2 <= length <= min(HEADER_LIMIT, len(content) - 8) or content[8:9] != b"{":
        raise BadRun(f"{path} is not a safetensors file (its header would have {length} bytes): refused unread.")
    try:
        tensors = safetensors.torch.load(content)
        return tensors, json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError, RuntimeError, RecursionError) as error:
        raise BadRun(f"{path} is not a whole safetensors file: {error}") from error


def _check_form(tensors: dict[str, Tensor], form: dict[str, Tensor], all_of_them: bool, path: Path) -> None:
    odd = tensors.keys() ^ form.keys() if all_of_them else tensors.keys() - form.keys()
    if odd or not tensors:
        which = sorted(odd or form)[0]
        raise BadRun(f"{path} does not fit the network: {which!r} is in only one of the two.")
    for name, value in sorted(tensors.items()):  # safetensors does not keep the order of a file
        if value.shape != form[name].shape or value.dtype != form[name].dtype:
            raise BadRun(f"{path}: {name!r} is {_shown(value)}, the network needs {_shown(form[name])}.")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise BadRun(f"{path} holds NaN or infinity in {name!r}: its training diverged, or it was tampered with.")


def _shown(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
