"""From a request's bytes to rows: JSON arrays or sentences, `.npy` bytes, an image, a sound, or a form with a file."""

from __future__ import annotations

import asyncio
import io
import math
from typing import Any, Literal

import numpy as np
import torch
from fastapi import HTTPException, Request
from numpy.lib import format as npy
from pydantic import ValidationError
from python_multipart import create_form_parser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File
from torch import Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.columns import Columns
from mixupmp.core.encoders import Spectrogram
from mixupmp.core.errors import BadData, MixupMPError
from mixupmp.core.fields import Fields
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Standardize
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.data.arrays import as_inputs
from mixupmp.data.images import TooManyPixels, WrongSize, read_image
from mixupmp.data.sound_files import encoded_wave
from mixupmp.web.serve.schemas import Limits, PredictRequest

JSON_TYPE, FORM_TYPE = "application/json", "multipart/form-data"
ARRAY_TYPES = ("application/octet-stream", "application/x-npy")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/bmp", "image/webp", "image/gif")
SOUND_TYPES = ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave")
ACCEPTED = (JSON_TYPE, *ARRAY_TYPES, *IMAGE_TYPES, *SOUND_TYPES, FORM_TYPE)
DEEPEST = 6  # nested lists; images of several channels need four
SMALL = 64 * 1024  # bytes that are decoded at once; more would hold up other requests, and goes to a thread


def takes(task: Task) -> Literal["numbers", "sentences", "sounds", "columns"]:
    """What people send to a model with this task."""
    if isinstance(task.encoder, Vocabulary):
        return "sentences"
    if isinstance(task.encoder, Columns):
        return "columns"
    return "sounds" if isinstance(task.encoder, Spectrogram) else "numbers"


class RowReader:
    """Reads the rows of requests to a model with this task; two large bodies are decoded at a time."""

    def __init__(self, task: Task, limits: Limits, pixels_only: bool = False) -> None:
        self.task, self.limits, self.pixels_only = task, limits, pixels_only
        self.decoding = asyncio.Semaphore(2)

    async def read(self, request: Request, resize: bool) -> Tensor:
        """The rows of a request."""
        content_type = request.headers.get("content-type", JSON_TYPE)
        body = await request.body()
        kind = _media_type(content_type)
        if kind == FORM_TYPE:
            kind, body = form_file(content_type, body)
        if not body:
            raise unusable("The body is empty.")
        if kind in (*IMAGE_TYPES, *SOUND_TYPES) or len(body) > SMALL:
            async with self.decoding:
                inputs = await asyncio.to_thread(self._decode, kind, body, resize)
        else:
            inputs = self._decode(kind, body, resize)
        if self.pixels_only and inputs.is_floating_point():
            raise unusable("This server takes pixels 0..255 only: it runs an ONNX graph, which has one input type.")
        return inputs

    def _decode(self, kind: str, body: bytes, resize: bool) -> Tensor:
        if kind == JSON_TYPE:
            return from_json(body, self.task, self.limits)
        if kind in IMAGE_TYPES:
            return from_image(body, self.task, self.limits, resize)
        if kind in SOUND_TYPES:
            return from_wave(body, self.task)
        if kind in ARRAY_TYPES:
            return from_npy(body, self.task, self.limits)
        raise HTTPException(415, f"The content type {kind[:80]!r} is not accepted: send {', '.join(ACCEPTED)}.")


def form_file(content_type: str, body: bytes) -> tuple[str, bytes]:
    """The content type and the bytes of a form's part named "file"."""
    files: list[File] = []
    # In memory, however large: the body is there already, and bounded.
    config = {"MAX_MEMORY_FILE_SIZE": len(body) + 1}
    try:
        parser = create_form_parser({"Content-Type": content_type.encode()}, lambda field: None, files.append, config)
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError, LookupError) as error:
        raise unusable(f"The form cannot be read: {_short(error)}.") from None
    for file in files:
        if file.field_name == b"file":
            file.file_object.seek(0)
            return _media_type(file.content_type or ARRAY_TYPES[0]), file.file_object.read()
    raise unusable("The form must have a file, in a part named 'file'.")


def from_json(body: bytes, task: Task, limits: Limits) -> Tensor:
    """The rows of {"inputs": [...]}: several, or one; sentences where the model takes them."""
    try:
        given = PredictRequest.model_validate_json(body).inputs
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise unusable(f'The body must be {{"inputs": [...]}} as JSON: {where} {first["msg"]}'[:200] + ".") from None
    if isinstance(task.encoder, Vocabulary) and isinstance(given, list) and all(isinstance(one, str) for one in given):
        if len(given) > limits.rows:
            raise _too_large("The number of rows", len(given), limits.rows)
        return task.encoder(given)
    if not isinstance(task.standardize, Standardize):
        return to_packed_rows(given, task.standardize, limits)
    if isinstance(task.encoder, Columns):
        return _from_columns(given, task.encoder, limits)
    if isinstance(given, dict):
        raise unusable("inputs must be an array of numbers: the model takes a single input.")
    return to_rows(_array(given), task, limits)


def _from_columns(given: list[Any] | dict[str, Any], columns: Columns, limits: Limits) -> Tensor:
    """Rows of a table, each an object by column name or a list of values in the order of the fit; or one row."""
    rows = [given] if isinstance(given, dict) or not isinstance(given[0], list | dict) else given
    if len(rows) > limits.rows:
        raise _too_large("The number of rows", len(rows), limits.rows)
    cells = (
        cell
        for row in rows
        for cell in (row.values() if isinstance(row, dict) else row if isinstance(row, list) else ())
    )
    if not all(cell is None or isinstance(cell, str | int | float) for cell in cells):
        raise unusable("A row must have a number, text or null for each column.")
    try:
        return columns(rows)
    except (BadData, OverflowError) as error:
        raise unusable(_short(error)) from None


def from_wave(body: bytes, task: Task) -> Tensor:
    """The one row of a WAV file."""
    try:
        return encoded_wave(body, task, "The sound")
    except BadData as error:
        raise unusable(_short(error)) from None


def from_npy(body: bytes, task: Task, limits: Limits) -> Tensor:
    """The rows of a `.npy` file. Its header is trusted only where exactly as many bytes follow as it says."""
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
        raise unusable(f"The array is of type {dtype}, which is not numeric.")
    if math.prod(shape) * dtype.itemsize != len(rest):
        raise unusable(f"The header says {shape} of {dtype}, but {len(rest)} bytes follow.")
    array = np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")
    return to_rows(array.astype(dtype.newbyteorder("="), copy=False), task, limits)


def from_image(body: bytes, task: Task, limits: Limits, resize: bool) -> Tensor:
    """The one row of an image, in the model's channels."""
    if len(task.input_shape) != 3 or task.input_shape[0] not in (1, 3):
        raise unusable(f"The model takes rows of shape {list(task.input_shape)}, not images.")
    try:
        return read_image(body, task.input_shape, resize, "The image", limits.pixels)
    except TooManyPixels as error:
        raise _too_large("The image", f"{error.size[0]} x {error.size[1]}", f"{limits.pixels} pixels") from None
    except WrongSize as error:
        raise unusable(f"The image is {error.found}, the model takes {error.wanted}: add ?resize=true.") from None
    except BadData as error:
        raise unusable(_short(error)) from None


def to_packed_rows(given: list[Any] | dict[str, Any] | Array, fields: Fields, limits: Limits) -> Tensor:
    """Tokens, or several inputs by name or by position, as rows of the model."""
    names = [field.name for field in fields.fields]
    if isinstance(given, dict):
        parts = [given[name] for name in names if name in given]
        known = bool(names[0]) and len(parts) == len(given)
    else:
        parts = [given] if fields.single else list(given)
        known = not names[0]
    if not known or len(parts) != len(names) or not all(isinstance(part, list | np.ndarray) for part in parts):
        listed = ", ".join(f'"{name}": [...]' for name in names)
        several = f"{{{listed}}}" if names[0] else f"a list of {len(names)} arrays"
        raise unusable(f"inputs must be {'rows of tokens' if fields.single else several}, as the model was fitted to.")
    typed = zip(parts, fields.fields, strict=True)
    arrays = [part if isinstance(part, np.ndarray) else _array(part, field.whole) for part, field in typed]
    arrays = [a[None] if a.shape == f.shape else a for a, f in zip(arrays, fields.fields, strict=True)]
    if any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays):
        raise unusable("The inputs have NaN or infinity: only finite numbers are accepted.")
    if len(arrays[0]) > limits.rows:
        raise _too_large("The number of rows", len(arrays[0]), limits.rows)
    try:
        return fields.pack(dict(zip(names, arrays, strict=True)) if names[0] else arrays)
    except MixupMPError as error:
        raise unusable(str(error)) from None


def to_rows(array: Array, task: Task, limits: Limits) -> Tensor:
    """An array as rows of the model's input shape."""
    if not isinstance(task.standardize, Standardize):
        return to_packed_rows(array, task.standardize, limits)
    shape = task.input_shape
    if array.shape == shape or (len(shape) == 3 and array.shape == shape[1:] and shape[0] == 1):
        array = array[None]  # a single row
    if array.ndim == 0 or array.size == 0:
        raise unusable("There is no row to predict.")
    if len(array) > limits.rows:
        raise _too_large("The number of rows", len(array), limits.rows)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise unusable("The inputs have NaN or infinity: only finite numbers are accepted.")
    if array.ndim == 3 and len(shape) == 3 and shape[0] == 1:
        array = array[:, None]  # gray images without their channel axis
    if isinstance(task.encoder, Columns):
        array = task.encoder.center(array)
    try:
        inputs = as_inputs(array, "inputs", shape, task.pixels)
    except MixupMPError as error:
        raise unusable(str(error)) from None
    if tuple(inputs.shape[1:]) != shape:
        wanted = ", ".join(map(str, shape))
        raise unusable(f"The inputs are of shape {list(array.shape)}; the model takes [rows, {wanted}].")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise unusable("The inputs have numbers beyond the range of 32-bit floats.")
    return inputs


def unusable(detail: str) -> HTTPException:
    """Status 422: the request was read, and cannot be answered."""
    return HTTPException(422, detail)


def _too_large(name: str, found: object, most: object) -> HTTPException:
    return HTTPException(413, f"{name} is {found}; at most {most} is accepted.")


def _array(nested: list[Any], booleans: bool = False) -> Array:
    """Nested lists as an array of integers or floats; of booleans too, where they may be a mask."""
    depth = 0
    part: Any = nested
    while isinstance(part, list):
        depth, part = depth + 1, part[0] if part else None
    if depth > DEEPEST:
        raise unusable(f"inputs must be an array of numbers, at most {DEEPEST} deep.")
    try:
        array = np.array(nested)
    except (ValueError, OverflowError, TypeError, RecursionError):
        raise unusable("inputs must be an array of numbers whose rows are all of one length.") from None
    if array.dtype.kind not in ("biuf" if booleans else "iuf"):
        raise unusable("inputs must be an array of numbers: no text, no nulls, no booleans.")
    return array


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _short(error: BaseException) -> str:
    """Its first line, cut between words: what it names may come from the client, and be long."""
    said = (str(error) or type(error).__name__).splitlines()[0]
    return (said if len(said) <= 240 else f"{said[:240].rpartition(' ')[0] or said[:240]} ...").rstrip(".")
