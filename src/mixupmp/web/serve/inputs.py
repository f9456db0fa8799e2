"""From a request's bytes to rows: JSON arrays, `.npy` bytes, or an image. What is wrong is refused, never guessed."""

from __future__ import annotations

import io
import json
import math
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData, MixupMPError
from mixupmp.core.posterior import Task
from mixupmp.data.arrays import as_inputs
from mixupmp.data.images import TooManyPixels, WrongSize, read_image
from mixupmp.web.serve.limits import Limits, Refused, too_large, unusable

JSON_TYPES = ("application/json",)
ARRAY_TYPES = ("application/octet-stream", "application/x-npy")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/bmp", "image/webp", "image/gif")
DEEPEST = 6  # brackets inside brackets; images of several channels need four


def from_json(body: bytes, task: Task, limits: Limits) -> Tensor:
    """The rows of {"inputs": [...]}: many, or a single one."""
    try:
        told = json.loads(body, parse_constant=_refuse_constant)
    except Refused:
        raise
    except (ValueError, RecursionError) as error:
        raise unusable(f"The body is not JSON: {_short(error)}.") from None
    if not isinstance(told, dict) or set(told) != {"inputs"}:
        raise unusable('The body must be {"inputs": [...]} and nothing else.')
    return to_rows(_array(told["inputs"]), task, limits)


def from_npy(body: bytes, task: Task, limits: Limits) -> Tensor:
    """The rows of a `.npy` file. Its header is believed only where the bytes that follow are exactly what it says."""
    stream = io.BytesIO(body)
    try:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"version {version}")
        shape, fortran, dtype = read(stream)
    except Exception as error:  # noqa: BLE001 - the header is Python text, which fails in as many ways as Python does
        raise unusable(f"The body is not a .npy file: {_short(error)}.") from None
    rest = body[stream.tell() :]
    if dtype.kind not in "biuf" or any(size < 0 for size in shape):
        raise unusable(f"The array is of type {dtype}, which are not numbers.")
    if math.prod(shape) * dtype.itemsize != len(rest):
        raise unusable(f"The array says it is {shape} of {dtype}, which {len(rest)} bytes are not.")
    array = np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")
    return to_rows(array.astype(dtype.newbyteorder("="), copy=False), task, limits)


def from_image(body: bytes, task: Task, limits: Limits, resize: bool) -> Tensor:
    """The one row of an image, in the channels that the model takes."""
    if len(task.input_shape) != 3 or task.input_shape[0] not in (1, 3):
        raise unusable(f"The model takes rows of shape {list(task.input_shape)}, not images.")
    try:
        return read_image(body, task.input_shape, resize, "The image", limits.pixels)
    except TooManyPixels as error:
        raise too_large("The image", f"{error.size[0]} x {error.size[1]}", f"{limits.pixels} pixels") from None
    except WrongSize as error:
        raise unusable(f"The image is {error.found}, the model takes {error.wanted}: ask ?resize=true.") from None
    except BadData as error:
        raise unusable(_short(error)) from None


def to_rows(array: NDArray[Any], task: Task, limits: Limits) -> Tensor:
    """An array as rows of the model's shape, or a refusal that says what it is."""
    shape = task.input_shape
    if array.shape == shape or (len(shape) == 3 and array.shape == shape[1:] and shape[0] == 1):
        array = array[None]  # a single row
    if array.ndim == 0 or array.size == 0:
        raise unusable("There is no row to predict.")
    if len(array) > limits.rows:
        raise too_large("The number of rows", len(array), limits.rows)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise unusable("The inputs hold NaN or infinity: only finite numbers are taken.")
    if array.ndim == 3 and len(shape) == 3 and shape[0] == 1:
        array = array[:, None]  # gray images without their channel, whole numbers or not
    try:
        inputs = as_inputs(array, "inputs")
    except MixupMPError as error:
        raise unusable(str(error)) from None
    if tuple(inputs.shape[1:]) != shape:
        raise unusable(f"The inputs are of shape {list(array.shape)}; the model takes [rows, {_listed(shape)}].")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise unusable("The inputs hold numbers beyond the range of 32-bit floats.")
    return inputs


def _array(told: Any) -> NDArray[Any]:
    """Nested lists as an array of whole numbers or of floats, and of nothing else."""
    depth, part = 0, told
    while isinstance(part, list):
        depth, part = depth + 1, part[0] if part else None
    if not 1 <= depth <= DEEPEST:
        raise unusable(f"inputs must be an array of numbers, at most {DEEPEST} deep.")
    try:
        array = np.array(told)
    except (ValueError, OverflowError, TypeError, RecursionError):
        raise unusable("inputs must be an array of numbers whose rows are all of one length.") from None
    if array.dtype.kind not in "iuf":
        raise unusable("inputs must be an array of numbers: no text, no nulls, no truth values.")
    return array


def _refuse_constant(name: str) -> NoReturn:
    raise unusable(f"{name} is not a number that JSON knows, nor one that is taken.")


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120].rstrip(".")


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
