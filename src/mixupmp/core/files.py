"""Files on disk: atomic writes, and access to a directory that may come from somebody else.

A run folder is resumed, reported and loaded wherever it came from. So nothing inside one is reached through a link,
a pipe or device is refused instead of waited for, and a size is checked before content is read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO

from mixupmp.core.errors import BadRun

JSON_LIMIT = 32 * 2**20  # bytes: more than a history of 100,000 epochs, and parsed within a second
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")  # what an interrupted atomic write leaves behind

# Windows has neither these flags nor descriptors of directories: there, paths are checked before they are used.
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FLAGS = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_HAS_DIR_FD = bool(_NOFOLLOW) and {os.open, os.stat, os.mkdir, os.unlink, os.rename} <= os.supports_dir_fd


class Directory:
    """A directory in which no link is followed.

    Names are relative to it, with ``/`` between their parts. Each operation walks from the directory to its target by
    descriptors opened with ``O_NOFOLLOW``, so a path cannot be exchanged for a link between a check and its use. The
    directory itself may be reached through links: the user named it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def exists(self, name: str) -> bool:
        """Whether this is a regular file. Anything else of that name is refused."""
        try:
            with self._parent(name) as (parent, last):
                _check_kind(os.stat(last, dir_fd=parent, follow_symlinks=False), self.path / name)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise BadRun(f"{self.path / name} cannot be reached: {error.strerror}.") from None
        return True

    def size(self, name: str) -> int:
        """Bytes of a file."""
        with self.open(name) as file:
            return os.fstat(file.fileno()).st_size

    def entries(self, subdirectory: str = "") -> list[str]:
        """Names in the directory or a subdirectory, sorted; none where it does not exist."""
        try:
            with self._parent(f"{subdirectory}/.") as (parent, last):
                return sorted(os.listdir(last if parent is None else parent))
        except FileNotFoundError:
            return []

    @contextmanager
    def open(self, name: str, create: bool = False) -> Iterator[BufferedIOBase]:
        """Open a regular file for reading; with `create`, for reading and writing, made where it is missing."""
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        with self._parent(name, create) as (parent, last):
            try:
                _check_kind(os.stat(last, dir_fd=parent, follow_symlinks=False), self.path / name)
            except FileNotFoundError:
                if not create:
                    raise
            with _exchanged(self.path / name):
                descriptor = os.open(last, flags | _FLAGS, 0o666, dir_fd=parent)
        with os.fdopen(descriptor, "r+b") if create else os.fdopen(descriptor, "rb") as file:
            _check_kind(os.fstat(descriptor), self.path / name)
            yield file

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Content of a file of at most `limit` bytes."""
        try:
            with self.open(name) as file:
                size = os.fstat(file.fileno()).st_size
                if limit is not None and size > limit:
                    raise BadRun(f"{self.path / name} has {size} bytes, more than the {limit} that it can need.")
                return file.read(size)
        except FileNotFoundError:
            raise BadRun(f"{self.path / name} is missing: {self.path} is not a complete run folder.") from None

    def sha256(self, name: str) -> str:
        """SHA-256 of a file, read in blocks."""
        with self.open(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def json(self, name: str) -> Any:
        """Content of a JSON file."""
        return parse_json(self.read(name, JSON_LIMIT), self.path / name)

    @contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """Open a temporary file that takes the place of `name` when the block ends without an error.

        A reader, or a crash, finds the old content or the new. File and directory are flushed, so that this holds
        after a power cut too. Missing parent directories are made.
        """
        with self._parent(name, create=True) as (parent, last):
            temporary = f".{Path(last).name}.{secrets.token_hex(8)}.tmp"
            if parent is None:
                temporary = str(Path(last).with_name(temporary))
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "w+b") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, last, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise
            _flush(parent)

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically."""
        with storage_errors(self.path / name), self.replacing(name) as file:
            file.write(content)

    def write_json(self, name: str, content: object) -> None:
        """Write indented JSON atomically."""
        self.write(name, (json.dumps(content, indent=2) + "\n").encode())

    def rename(self, name: str, new: str) -> None:
        """Give a file another name in the same subdirectory, in place of what has that name."""
        with storage_errors(self.path / new), self._parent(name) as (parent, last):
            target = new if parent is not None else str(Path(last).with_name(new))
            os.replace(last, target, src_dir_fd=parent, dst_dir_fd=parent)
            _flush(parent)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself."""
        with storage_errors(self.path / name, "removed"), self._parent(name) as (parent, last):
            os.unlink(last, dir_fd=parent)

    def remove_directory(self, name: str) -> None:
        """Remove a subdirectory with the files in it; one that holds directories is left."""
        entries = self.entries(name)
        for entry in entries:
            self.remove(f"{name}/{entry}")
        if entries or (self.path / name).is_dir():
            with storage_errors(self.path / name, "removed"), self._parent(name) as (parent, last):
                os.rmdir(last, dir_fd=parent)

    def remove_temporary(self, subdirectory: str = "") -> None:
        """Remove what interrupted writes left; only where nobody else can be writing."""
        for name in self.entries(subdirectory):
            if TEMPORARY.fullmatch(name):
                self.remove(f"{subdirectory}/{name}")

    @contextmanager
    def _parent(self, name: str, create: bool = False) -> Iterator[tuple[int | None, str]]:
        """Descriptor of the directory that holds `name`, and the name in it; without descriptors the whole path."""
        parts = [part for part in name.split("/") if part]
        if create:
            self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            place, parent = self.path, None
            if _HAS_DIR_FD:
                parent = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(os.close, parent)
            for part in parts[:-1]:
                place = place / part
                parent = _enter(part, parent, place, create)
                if parent is not None:
                    stack.callback(os.close, parent)
            yield parent, parts[-1] if _HAS_DIR_FD else str(place / parts[-1])


def _enter(part: str, parent: int | None, place: Path, create: bool) -> int | None:
    """Open a subdirectory that is no link; without descriptors, only check it."""
    entry = place if parent is None else part
    if create:
        with suppress(FileExistsError):
            os.mkdir(entry, dir_fd=parent)
    _check_kind(os.stat(entry, dir_fd=parent, follow_symlinks=False), place, directory=True)
    if parent is None:
        return None
    with _exchanged(place):
        return os.open(entry, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW, dir_fd=parent)


def _check_kind(found: os.stat_result, place: Path, directory: bool = False) -> None:
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)  # Windows: a directory by its mode, a link in effect
    if stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) == junction:
        raise BadRun(f"{place} is a link, which is not followed: copy what it points to.")
    if not (stat.S_ISDIR if directory else stat.S_ISREG)(found.st_mode):
        raise BadRun(f"{place} is not a {'directory' if directory else 'plain file'}: refused.")


@contextmanager
def _exchanged(place: Path) -> Iterator[None]:
    """Refuse what has become a link or a device since its kind was checked."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise BadRun(f"{place} was exchanged for a link while it was opened: refused.") from None
        raise


def _flush(directory: int | None) -> None:
    """The new name must survive a power cut as well as the content. Windows cannot flush a directory."""
    if directory is not None:
        os.fsync(directory)


@contextmanager
def storage_errors(
    path: Path, done: str = "written", remedy: str = "What was written before is whole: make room, then resume."
) -> Iterator[None]:
    """Name the file that could not be written or removed, with the system's reason; by default one of a run."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BadRun(f"{path} could not be {done}: {reason}. {remedy}") from error


def replacing(path: Path) -> AbstractContextManager[BinaryIO]:
    """`Directory.replacing` for the file at this path."""
    return Directory(path.parent).replacing(path.name)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new, never a part."""
    with storage_errors(path, remedy="Make room, or choose another folder."), replacing(path) as file:
        file.write(content)


def write_json(path: Path, content: object) -> None:
    """Write indented JSON atomically."""
    Directory(path.parent).write_json(path.name, content)


def read_json(path: Path) -> Any:
    """Read JSON; a missing, damaged or impossibly large file is named."""
    return Directory(path.parent).json(path.name)


def parse_json(content: bytes, path: Path) -> Any:
    """Parse the content of the JSON file at this path."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8, and numbers without end
        raise BadRun(f"{path} is damaged: {error}. Restore it from a copy, or fit again.") from None


def sha256(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    return Directory(path.parent).sha256(path.name)
