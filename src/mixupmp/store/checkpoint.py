"""Checkpoints of a member that is being trained: a kill at any moment loses minutes of work and never a bit.

A checkpoint is one safetensors file, ``<step>-<hash>.safetensors``. It is written atomically and compared with the
hash in its name when it is read, because a flipped bit loads silently from every tensor format. The newest two are
kept, so that there is one to fall back on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from mixupmp.core.errors import BadRun, MixupMPError
from mixupmp.core.files import Directory
from mixupmp.store.tensors import parse_tensors

KEPT = 2
_NAME = re.compile(r"(\d{12})-([0-9a-f]{16})\.safetensors")


class Checkpoints:
    """Checkpoints of one member, in a subdirectory of its run's folder; a larger one than `limit` bytes is refused."""

    def __init__(self, run: Directory, name: str, limit: int | None = None) -> None:
        self.run, self.name, self.limit = run, name, limit

    def write(self, step: int, tensors: dict[str, Tensor], text: dict[str, str]) -> None:
        """Write a checkpoint, then remove all but the newest two."""
        content = save(tensors, text)
        name = f"{step:012d}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
        self.run.write(f"{self.name}/{name}", content)
        names = self._names()
        # Another one of the same step is damaged, or of a fit that was started again.
        same = [other for other in names if _step(other) == step and other != name]
        self._remove(same + [other for other in names if other not in same][:-KEPT])

    def forget_after(self, step: int) -> None:
        """Remove the checkpoints of later steps: the fit continues from this one."""
        self._remove([name for name in self._names() if _step(name) > step])

    def paths(self) -> list[Path]:
        """All checkpoints, oldest first, damaged ones too."""
        return [self.run.path / self.name / name for name in self._names()]

    def steps(self) -> list[int]:
        """Steps of the undamaged checkpoints, oldest first."""
        return [_step(name) for name in self._names() if self._content(name) is not None]

    def read(self, step: int | None = None) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """Tensors and text of the newest checkpoint, or of the one at `step`. Damaged ones are skipped."""
        for name in reversed(self._names()):
            if step is not None and _step(name) != step:
                continue
            content = self._content(name)
            if content is not None:
                try:
                    return parse_tensors(content, self.run.path / self.name / name)
                except BadRun:  # not written by us, though its name has the right hash
                    continue
        return None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Report a checkpoint that is whole, but not a state of this fit, as such."""
        try:
            yield
        except MixupMPError:
            raise
        except (LookupError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise BadRun(
                f"{self.run.path / self.name} holds a checkpoint of something else ({type(error).__name__}: {error}). "
                "Remove that directory: the member is then trained from its start."
            ) from error

    def remove(self) -> None:
        """Remove them all: the member is finished."""
        self.run.remove_directory(self.name)

    def _names(self) -> list[str]:
        return [name for name in self.run.entries(self.name) if _NAME.fullmatch(name)]

    def _content(self, name: str) -> bytes | None:
        content = self.run.read(f"{self.name}/{name}", self.limit)
        return content if hashlib.sha256(content).hexdigest().startswith(name[13:29]) else None

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self.run.remove(f"{self.name}/{name}")


def _step(name: str) -> int:
    return int(name[:12])
