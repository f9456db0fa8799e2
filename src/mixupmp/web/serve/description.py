"""What the server says of itself: the OpenAPI of /predict, and its metadata."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mixupmp.core.version import __version__
from mixupmp.web.serve.inputs import ARRAY_TYPES, IMAGE_TYPES, JSON_TYPES
from mixupmp.web.serve.limits import Limits
from mixupmp.web.serve.model import Model

_NUMBERS = {"type": "array", "items": {"type": "number"}}
_NAMES = {"type": "array", "items": {"type": "string"}}
_ROW = {
    "type": "object",
    "required": ["predicted", "number", "confidence", "probabilities", "members", "entropy", "mutual_information",
                 "set", "accepted"],
    "properties": {
        "predicted": {"type": "string", "description": "The likeliest class."},
        "number": {"type": "integer", "minimum": 0, "description": "Its place among the classes."},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1.0001},
        "probabilities": {**_NUMBERS, "description": "Of each class, the mean over members."},
        "members": {"type": "array", "items": _NUMBERS, "description": "Each member's own probabilities."},
        "entropy": {"type": "number", "minimum": 0, "description": "Of the mean, in nats: how unsure they are."},
        "mutual_information": {"type": "number", "minimum": 0, "description": "What members disagree about, in nats."},
        "set": {**_NAMES, "description": "The prediction set; /metadata says what it guarantees."},
        "accepted": {"type": "boolean", "description": "False: leave this row to a person."},
    },
}  # fmt: skip
_ANSWER = {
    "type": "object",
    "required": ["predictions", "classes", "coverage"],
    "properties": {
        "predictions": {"type": "array", "items": _ROW},
        "classes": _NAMES,
        "coverage": {"type": "number"},
    },
}
_REFUSAL = {"type": "object", "required": ["detail"], "properties": {"detail": {"type": "string"}}}


def _refusal(words: str) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": _REFUSAL}}}


_ROWS = {
    "type": "object",
    "required": ["inputs"],
    "additionalProperties": False,
    "properties": {"inputs": {"type": "array", "items": {}, "minItems": 1, "description": "Rows of finite numbers."}},
}
_BYTES = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": _BYTES}}
PREDICT: dict[str, Any] = {
    "description": "Rows as JSON or as a .npy file, or one image. Whole numbers 0..255 are pixels; other numbers are "
    "taken as they are.",
    "parameters": [
        {
            "name": "resize", "in": "query", "required": False,
            "schema": {"type": "boolean", "default": False}, "description": "Resize an image to the model's size.",
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            **{kind: {"schema": _ROWS} for kind in JSON_TYPES},
            **{kind: {"schema": _BYTES} for kind in (*ARRAY_TYPES, *IMAGE_TYPES)},
            "multipart/form-data": {"schema": _FORM},
        },
    },
    "responses": {
        "200": {"description": "The predictions.", "content": {"application/json": {"schema": _ANSWER}}},
        "401": _refusal("The token is missing or wrong."),
        "413": _refusal("More bytes, rows or pixels than are taken."),
        "415": _refusal("A content type that is not taken."),
        "421": _refusal("A host name that is not this machine's."),
        "422": _refusal("Inputs that cannot be used; the detail says why."),
        "503": _refusal("Too much waits already, or it took too long."),
    },
}  # fmt: skip


def metadata_of(model: Model, limits: Limits) -> dict[str, Any]:
    """What is served."""
    posterior = model.posterior
    return {
        "title": model.title,
        "version": __version__,
        "runtime": model.runtime,
        "classes": list(model.classes),
        "input_shape": list(posterior.task.input_shape),
        "members": posterior.members,
        "networks": {"there": len(posterior.networks), "wanted": posterior.wanted},
        "notes": list(posterior.notes),
        "promise": model.promise.describe(),
        "limits": asdict(limits),
    }
