"""Pickles read as plain data: numpy arrays, bytes, text, numbers, lists and dicts; anything else is refused by name.

The publishers of CIFAR ship pickles, and a pickle can name any function to be called on loading. Here the few names
that an array needs stand for small stand-ins of our own, so no code is reached through the file, numpy's included.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mixupmp.core.errors import BadData
from mixupmp.data.files import reading


def read_plain_pickle(path: Path) -> Any:
    """The content of a pickle that holds plain data and arrays only. Python 2's strings come back as bytes."""
    with reading(path, "a pickle of plain data"):
        content = path.read_bytes()
        return _resolve(_PlainUnpickler(content, path).load(), {})


def _load_bytearray(unpickler: Any) -> None:
    """Read what is there, where pickle's own would first allocate the length that is claimed."""
    (length,) = struct.unpack("<Q", unpickler.read(8))
    unpickler.append(bytearray(unpickler.read(length)))


# The one in Python: for a memo index of a billion, the one in C allocates a table of as many entries.
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: _load_bytearray,
    }

    def __init__(self, content: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._path = path
        self._known = _stand_ins(2 * len(content))

    def find_class(self, module: str, name: str) -> Any:
        known = self._known.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            raise BadData(
                f"{self._path} asks for {module}.{name}, which is not plain data. Nothing of it was run; "
                "download the file again from its publisher."
            )
        return known


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _stand_ins(most: int) -> dict[tuple[str, str], Any]:
    """What the names an array's pickle uses mean here. Made anew for each file, so none can alter another's.

    At most so many bytes are encoded, as a small file can ask for the same text again and again.
    """
    encoded = 0

    class Kind:
        """Stands for numpy.dtype: its name, and the byte order that its state carries."""

        def __init__(self, name: Any, *_: Any) -> None:
            self.name, self.order = _text(name), "|"

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            self.order = _text(state[1])

    class Array:
        """Stands for numpy.ndarray: the state is (version, shape, type, Fortran order, bytes)."""

        content: Any = None

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            _, shape, kind, fortran, raw = state
            self.content = _array(raw, kind.order, kind.name, shape, "F" if fortran else "C")

    def reconstruct(*_: Any) -> Array:
        return Array()

    def from_buffer(raw: Any, kind: Kind, shape: Any, order: Any, *_: Any) -> Array:
        array = Array()
        array.content = _array(raw, kind.order, kind.name, shape, _text(order))
        return array

    def encode(text: Any, encoding: Any) -> bytes:
        """How protocol 2 writes bytes from Python 3; no other codec has business here."""
        if _text(encoding) not in ("latin1", "latin-1"):
            raise ValueError(f"codec {encoding!r}")
        if not isinstance(text, str | bytes):
            raise ValueError(f"bytes from a {type(text).__name__}")
        nonlocal encoded
        encoded += len(text)
        if encoded > most:
            raise ValueError(f"it encodes more than {most:,} bytes")
        return text.encode("latin1") if isinstance(text, str) else text

    return {
        ("numpy.core.multiarray", "_reconstruct"): reconstruct,
        ("numpy.core.numeric", "_frombuffer"): from_buffer,
        ("numpy", "ndarray"): Array,
        ("numpy", "dtype"): Kind,
        ("_codecs", "encode"): encode,
    }


def _array(raw: Any, order: str, name: str, shape: Any, layout: str) -> np.ndarray[Any, Any]:
    """Bytes to an array; only numbers, and only as many bytes as the shape asks for."""
    kind = np.dtype((order if order in "<>" else "") + name)
    if kind.kind not in "biuf":
        raise ValueError(f"an array of {kind} is not one of numbers")
    sides = tuple(int(side) for side in shape)
    if not isinstance(raw, bytes | bytearray) or len(raw) != kind.itemsize * math.prod(sides):
        raise ValueError(f"an array of shape {sides} has the wrong number of bytes")
    return np.frombuffer(raw, kind).reshape(sides, order="F" if layout == "F" else "C")


def _resolve(value: object, done: dict[int, object]) -> Any:
    """Replace the stand-ins by the arrays they hold; what is referred to twice is resolved once."""
    if id(value) in done:
        return done[id(value)]
    resolved = value.content if hasattr(value, "content") else value
    if isinstance(value, dict):
        resolved = {key: _resolve(item, done) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        resolved = type(value)(_resolve(item, done) for item in value)
    done[id(value)] = resolved
    return resolved
