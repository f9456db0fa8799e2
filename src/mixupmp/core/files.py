"""Writing that is whole or not at all, and reading that checks."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from mixupmp.core.errors import BadRun

# Longer than the story of 100,000 epochs, short enough to be read in a second.
JSON_LIMIT = 32 * 2**20


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new, never a part.

    A temporary file beside it, flushed to disk, renamed over it; then the folder is flushed, so that the name is
    there after a power cut too.
    """
    try:
        _write_and_rename(path, content)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BadRun(
            f"{path} could not be written: {reason}. What was written before is whole: make room, then resume."
        ) from error


def _write_and_rename(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON, atomically."""
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON; a missing, damaged or impossibly large file is named."""
    try:
        size = path.stat().st_size
        if size > JSON_LIMIT:
            raise BadRun(f"{path} has {size} bytes, more than the {JSON_LIMIT} that it can need.")
        return parse_json(path.read_bytes(), path)
    except FileNotFoundError:
        raise BadRun(f"{path} is missing: {path.parent} is not a complete run folder.") from None


def parse_json(content: bytes, path: Path) -> Any:
    """JSON from the bytes of this file; what is wrong with it is told as damage."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # also for text that is not UTF-8, and for endless numbers
        raise BadRun(f"{path} is damaged: {error}. Restore it from a copy, or fit again.") from None


def sha256(path: Path) -> str:
    """The SHA-256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
