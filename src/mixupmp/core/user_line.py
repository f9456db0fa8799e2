"""Warnings that point at the user's own line."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

LIBRARIES = ("mixupmp", "sklearn", "torch")


def warn_at_user_line(text: str, category: type[Warning]) -> None:
    """Give a warning at the user's own line, however many calls of this package and of what calls it are between."""
    frame: FrameType | None = sys._getframe(1)
    level = 2  # of that frame, as `warnings` counts them
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
