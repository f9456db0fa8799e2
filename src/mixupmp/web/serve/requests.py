"""A request's body, read within its limits and turned into rows by what it says it is."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect
from torch import Tensor

from mixupmp.web.serve.forms import file_of
from mixupmp.web.serve.inputs import ARRAY_TYPES, IMAGE_TYPES, JSON_TYPES, from_image, from_json, from_npy
from mixupmp.web.serve.limits import Limits, Refused, too_large, unusable
from mixupmp.web.serve.model import Model

TAKEN = (*JSON_TYPES, *ARRAY_TYPES, *IMAGE_TYPES, "multipart/form-data")
SMALL = 64 * 1024  # bytes
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


async def rows_of(request: Request, model: Model, limits: Limits) -> Tensor:
    """The rows that a request asks about."""
    resize = _resize(request)
    body = await read_body(request, limits)
    told = request.headers.get("content-type", "application/json")
    kind = told.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        kind, body = file_of(told, body)
    if not body:
        raise unusable("The body is empty.")
    if kind in IMAGE_TYPES or len(body) > SMALL:  # what takes a while to decode must not hold up the others
        inputs = await asyncio.to_thread(_decoded, kind, body, model, limits, resize)
    else:
        inputs = _decoded(kind, body, model, limits, resize)
    if model.pixels_only and inputs.is_floating_point():
        raise unusable(
            "This server takes whole pixels 0..255 only: it runs an ONNX graph, which has one type of input."
        )
    return inputs


def _decoded(kind: str, body: bytes, model: Model, limits: Limits, resize: bool) -> Tensor:
    task = model.posterior.task
    if kind in JSON_TYPES:
        return from_json(body, task, limits)
    if kind in IMAGE_TYPES:
        return from_image(body, task, limits, resize)
    if kind in ARRAY_TYPES:
        return from_npy(body, task, limits)
    raise Refused(415, f"The content type {kind[:80]!r} is not taken: send {', '.join(TAKEN)}.")


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body; one that is too large is refused before it is read, or as soon as that shows."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limits.body:
        raise too_large("The body", f"{int(length[:20])} bytes", limits.body)
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limits.body:
                raise too_large("The body", f"more than {limits.body} bytes", limits.body)
            parts.append(part)
    except ClientDisconnect:
        raise unusable("The client went away.") from None
    return b"".join(parts)


def _resize(request: Request) -> bool:
    told = request.query_params.get("resize", "false").lower()
    if told not in (*TRUE, *FALSE):
        raise unusable(f"resize must be true or false, got {told[:40]!r}.")
    return told in TRUE
