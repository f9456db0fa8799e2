"""The seal of a folder: the SHA-256 of every file in it, and reading that trusts nothing else.

`write_manifest` seals a folder. `Sealed` reads one that may come from anywhere: it looks at names, kinds and sizes
before it reads, follows no link, leaves no room for a file that the manifest does not name, and hands out only bytes
whose hash it has checked itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from mixupmp.core.errors import BadRun
from mixupmp.core.files import JSON_LIMIT, parse_json, read_json, sha256, write_json

MANIFEST = "manifest.json"
OUTSIDE = frozenset(("lock", MANIFEST))  # a lock has no lasting content, and a manifest cannot hold its own hash
FILES_LIMIT = 100_000
# What a folder may hold beside its weights, whose size the network tells: so that a hostile one is refused in a second.
OTHERS_LIMIT = 256 * 2**20


def write_manifest(folder: Path) -> None:
    """Seal a folder: write down the SHA-256 of every file that belongs to it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _belongs(path.relative_to(folder)))
    write_json(folder / MANIFEST, {path.relative_to(folder).as_posix(): sha256(path) for path in files})


def add_to_manifest(folder: Path, names: Iterable[str]) -> None:
    """Write down these files alone. The other hashes stay, so damage that came since is not sealed in with them."""
    known = read_json(folder / MANIFEST)
    added = {name: sha256(folder / name) for name in names}
    write_json(folder / MANIFEST, dict(sorted((known | added).items())))


class Sealed:
    """A sealed folder from anywhere, read with suspicion."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        if not self.path.is_dir():
            raise BadRun(f"{self.path} is not a folder: give one that holds a finished run or a saved posterior.")
        self.hashes = self._manifest()
        self._unread = set(self.hashes)
        for name in self.hashes:
            self._check_file(name)
        self._check_strangers()

    def names(self, pattern: str) -> list[str]:
        """The files whose whole name matches this pattern, in order."""
        return sorted(name for name in self.hashes if re.fullmatch(pattern, name))

    def size(self, name: str) -> int:
        """The bytes of a file."""
        return (self.path / name).lstat().st_size

    def read(self, name: str, limit: int = JSON_LIMIT) -> bytes:
        """The content of a file, which is that of the manifest."""
        if name not in self.hashes:
            raise BadRun(f"{self.path / name} is not in the manifest: the run is incomplete. Fit or copy it again.")
        if self.size(name) > limit:
            raise BadRun(f"{self.path / name} has {self.size(name)} bytes, more than the {limit} that it can need.")
        content = (self.path / name).read_bytes()
        self._compare(name, hashlib.sha256(content).hexdigest())
        return content

    def json(self, name: str) -> Any:
        """The content of a JSON file."""
        return parse_json(self.read(name), self.path / name)

    def check_rest(self) -> None:
        """Check the hashes of the files that were not read."""
        total = sum(self.size(name) for name in self._unread)
        if total > OTHERS_LIMIT:
            largest = max(self._unread, key=self.size)
            raise BadRun(f"{self.path} holds {total} bytes beside its weights, most in {largest}: too many to trust.")
        for name in sorted(self._unread):
            self._compare(name, sha256(self.path / name))

    def _compare(self, name: str, found: str) -> None:
        if found != self.hashes[name]:
            raise BadRun(f"{self.path / name} is damaged: its SHA-256 is not that of the manifest. Restore it.")
        self._unread.discard(name)

    def _manifest(self) -> dict[str, str]:
        path = self.path / MANIFEST
        if not path.exists():
            raise BadRun(
                f"{self.path} has no {MANIFEST}: it is not a finished run or a saved posterior. "
                f"If its fit was stopped, go on with: mixupmp fit --resume {self.path}"
            )
        self._check_file(MANIFEST)
        hashes = read_json(path)
        if not isinstance(hashes, dict) or len(hashes) > FILES_LIMIT:
            raise BadRun(f"{path} is not a manifest: it must map file names to hashes.")
        for name, value in hashes.items():
            if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
                raise BadRun(f"{path}: the hash of {name!r} is not a SHA-256 of 64 lower-case digits.")
            if not _inside(name):
                raise BadRun(f"{path} names {name!r}, which is not a plain path inside the folder: refused.")
        return hashes

    def _check_file(self, name: str) -> None:
        place = self.path
        for part in PurePosixPath(name).parts:
            place = place / part
            try:
                mode = place.lstat().st_mode
            except FileNotFoundError:
                raise BadRun(f"{self.path / name} is missing: the manifest names it. Restore it.") from None
            except OSError as error:
                raise BadRun(f"{self.path / name} cannot be reached: {error.strerror}.") from None
            if stat.S_ISLNK(mode):
                raise BadRun(f"{place} is a link, which is not followed: copy what it points to.")
        if not stat.S_ISREG(mode):
            raise BadRun(f"{place} is not a plain file.")

    def _check_strangers(self) -> None:
        seen = 0
        for folder, folders, files in os.walk(self.path):  # which follows no links
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            for file in files + links:
                name = (Path(folder) / file).relative_to(self.path)
                seen += 1
                if (_belongs(name) and name.as_posix() not in self.hashes) or seen > 2 * FILES_LIMIT:
                    raise BadRun(f"{self.path / name} is not in the manifest: remove it, or fit or copy the run again.")


def _belongs(name: Path) -> bool:
    # Hidden files are what file managers and interrupted writes leave; none is ever read. Checkpoints are for resuming.
    return name.as_posix() not in OUTSIDE and name.parts[0] != "checkpoints" and not name.name.startswith(".")


def _inside(name: str) -> bool:
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return plain and "\\" not in name and ":" not in name and len(name) < 1000
