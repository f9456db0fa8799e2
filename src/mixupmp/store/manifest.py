"""The manifest of a folder: the SHA-256 of every file in it, and reading that trusts nothing else.

`write_manifest` seals a folder, `update` changes files of a sealed one. `Sealed` reads a folder that may come from
anybody: it checks names, kinds and sizes before it reads, follows no link, allows no file that the manifest does not
name, and returns only content whose hash it has checked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mixupmp.core.errors import BadRun
from mixupmp.core.files import JSON_LIMIT, Directory, parse_json

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
OUTSIDE = frozenset(("lock", MANIFEST, SIGNATURE))  # a lock has no lasting content; the others cannot hold themselves
FILES_LIMIT = 100_000
DEPTH_LIMIT = 16  # of directories in directories
# Bytes that a folder may hold beside its weights, whose size the network determines: a hostile one is refused quickly.
OTHERS_LIMIT = 256 * 2**20
_PENDING = ".manifest.pending.json"  # the manifest that comes into force when an update is complete


def write_manifest(folder: Path) -> None:
    """Seal a folder: write the SHA-256 of every file that belongs to it."""
    directory = Directory(folder)
    hashes = {name.as_posix(): directory.sha256(name.as_posix()) for name in sorted(_files(folder)) if _belongs(name)}
    directory.write_json(MANIFEST, hashes)
    if directory.exists(_PENDING):
        directory.remove(_PENDING)


def update(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files of a sealed folder and seal them, as one step.

    The hashes of all other files stay, so damage to them is not sealed in. After a kill at any moment the folder can
    be read: `Sealed` accepts each of these files in its old state and in its new one.
    """
    directory = Directory(folder)
    if directory.exists(SIGNATURE):
        raise BadRun(f"{folder} is signed, so it cannot be changed: remove {SIGNATURE}, and sign it again afterwards.")
    hashes = Sealed(folder).hashes | {name: hashlib.sha256(new).hexdigest() for name, new in contents.items()}
    directory.write_json(_PENDING, dict(sorted(hashes.items())))
    for name, new in contents.items():
        directory.write(name, new)
    directory.rename(_PENDING, MANIFEST)


class Sealed(Directory):
    """A sealed folder that may come from anybody.

    Parameters
    ----------
    authenticate : called with the folder and the content of its manifest; raises where the signature is not right.
    """

    def __init__(
        self, path: str | os.PathLike[str], authenticate: Callable[[Directory, bytes], None] | None = None
    ) -> None:
        super().__init__(path)
        if not self.path.is_dir():
            raise BadRun(f"{self.path} is not a folder: give one that holds a finished run or a saved posterior.")
        self.hashes = self._read_manifest(authenticate)
        self._unread = set(self.hashes)
        for name in self.hashes:
            if not self.exists(name):
                raise BadRun(
                    f"{self.path / name} is missing: the manifest names it. Restore it from a copy, or fit it again: "
                    f"mixupmp fit --resume {self.path}"
                )
        self._check_unnamed()

    def names(self, pattern: str) -> list[str]:
        """Files whose whole name matches this regular expression, sorted."""
        return sorted(name for name in self.hashes if re.fullmatch(pattern, name))

    def read(self, name: str, limit: int | None = JSON_LIMIT) -> bytes:
        """Content of a file, compared with its hash in the manifest."""
        if name not in self.hashes:
            raise BadRun(f"{self.path / name} is not in the manifest: the run is incomplete. Fit or copy it again.")
        content = super().read(name, limit)
        self._compare(name, hashlib.sha256(content).hexdigest())
        return content

    def check_rest(self, limit: int | None = OTHERS_LIMIT) -> None:
        """Compare the files that were not read with their hashes; they may have at most `limit` bytes in total."""
        sizes = {name: self.size(name) for name in self._unread}
        if limit is not None and sum(sizes.values()) > limit:
            largest = max(sizes, key=sizes.__getitem__)
            raise BadRun(
                f"{self.path} holds {sum(sizes.values())} bytes beside its weights, most in {largest}: "
                "too many to trust."
            )
        for name in sorted(sizes):
            self._compare(name, self.sha256(name))

    def _compare(self, name: str, found: str) -> None:
        if found != self.hashes[name]:
            raise BadRun(f"{self.path / name} is damaged: its SHA-256 is not that of the manifest. Restore it.")
        self._unread.discard(name)

    def _read_manifest(self, authenticate: Callable[[Directory, bytes], None] | None) -> dict[str, str]:
        if not self.exists(MANIFEST):
            raise BadRun(
                f"{self.path} has no {MANIFEST}: it is not a finished run or a saved posterior. "
                f"If its fit was stopped, go on with: mixupmp fit --resume {self.path}"
            )
        content = super().read(MANIFEST, JSON_LIMIT)
        hashes = _parsed(content, self.path / MANIFEST)
        if authenticate is not None:
            authenticate(self, content)
        elif self.exists(_PENDING):  # an update was interrupted: each of its files has its old content, or its new
            new = _parsed(super().read(_PENDING, JSON_LIMIT), self.path / _PENDING)
            changed = [name for name, value in new.items() if hashes.get(name) != value and self.exists(name)]
            if sum(map(self.size, changed)) <= OTHERS_LIMIT:
                hashes |= {name: new[name] for name in changed if self.sha256(name) == new[name]}
        return hashes

    def _check_unnamed(self) -> None:
        for name in _files(self.path):
            if _belongs(name) and name.as_posix() not in self.hashes:
                raise BadRun(f"{self.path / name} is not in the manifest: remove it, or fit or copy the run again.")


def _files(folder: Path) -> Iterator[Path]:
    """Names of all files and links, relative to the folder; a tree that no run needs is refused."""
    waiting, seen = [Path()], 0
    while waiting:
        parent = waiting.pop()
        try:
            entries = os.scandir(folder / parent)
        except FileNotFoundError:  # checkpoints of a member that has just been finished
            continue
        except OSError as error:
            raise BadRun(f"{folder / parent} cannot be read: {error.strerror}.") from None
        with entries:
            for entry in entries:
                name, seen = parent / entry.name, seen + 1
                if len(name.parts) > DEPTH_LIMIT or seen > 2 * FILES_LIMIT:
                    raise BadRun(f"{folder} holds too many files or directories, {name} among them: remove them.")
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                else:
                    yield name


def _parsed(content: bytes, path: Path) -> dict[str, str]:
    hashes: object = parse_json(content, path)
    if not isinstance(hashes, dict) or len(hashes) > FILES_LIMIT:
        raise BadRun(f"{path} is not a manifest: it must map file names to hashes.")
    for name, value in hashes.items():
        if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
            raise BadRun(f"{path}: the hash of {name!r} is not a SHA-256 of 64 lower-case digits.")
        if not _is_inside(name):
            raise BadRun(f"{path} names {name!r}, which is not a plain path inside the folder: refused.")
    return hashes


def _belongs(name: Path) -> bool:
    # Hidden files are what file managers and interrupted writes leave; none is read. Checkpoints are for resuming.
    return name.as_posix() not in OUTSIDE and name.parts[0] != "checkpoints" and not name.name.startswith(".")


def _is_inside(name: str) -> bool:
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return plain and "\\" not in name and ":" not in name and len(name) < 1000
