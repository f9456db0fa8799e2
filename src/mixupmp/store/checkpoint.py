"""Where a member's fit leaves its state, so that a kill at any moment loses minutes and never a bit.

A checkpoint is one safetensors file, `<step>-<hash>.safetensors`: written whole or not at all, and checked against
the hash in its own name when it is read, because a flipped bit loads silently from every tensor format. The last two
are kept, so that there is always one to fall back on.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from mixupmp.core.files import sha256, write_atomically

KEPT = 2
_HASH = 16  # hex digits of SHA-256 in the name


class Checkpoints:
    """The checkpoints of one member."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, step: int, tensors: dict[str, Tensor], text: dict[str, str]) -> Path:
        """Write a checkpoint, then remove all but the last two."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = save(tensors, text)
        path = self.folder / f"{step:012d}-{hashlib.sha256(content).hexdigest()[:_HASH]}.safetensors"
        write_atomically(path, content)
        for other in self.paths():
            if _step(other) == step and other != path:  # of the same step: damaged, or of a fit that was begun again
                other.unlink()
        for old in self.paths()[:-KEPT]:
            old.unlink()
        return path

    def forget_after(self, step: int) -> None:
        """Remove those of later steps: the fit goes on from this one."""
        for path in self.paths():
            if _step(path) > step:
                path.unlink()

    def paths(self) -> list[Path]:
        """The checkpoints there are, oldest first, whole or not."""
        return sorted(self.folder.glob("*-*.safetensors")) if self.folder.is_dir() else []

    def steps(self) -> list[int]:
        """The steps of the whole checkpoints, oldest first."""
        return [_step(path) for path in self.paths() if _whole(path)]

    def read(self, step: int | None = None) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """The newest whole checkpoint (or that of this step), or None. A damaged one is passed over."""
        for path in reversed(self.paths()):
            if step is not None and _step(path) != step:
                continue
            if _whole(path):
                with safe_open(path, "pt") as file:
                    return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        return None

    def remove(self) -> None:
        """Remove them all: the member is finished."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()


def _step(path: Path) -> int:
    return int(path.name.split("-")[0])


def _whole(path: Path) -> bool:
    return sha256(path)[:_HASH] == path.stem.split("-")[1]
