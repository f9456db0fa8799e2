"""What is fuzzed: a reader, valid files to start from, and how files near them are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from tests.fuzz.nearby import Near, near_bytes

Check = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """One reader of what others may have written.

    Parameters
    ----------
    name
        Also the folder of its corpus.
    prepare
        Given a scratch folder, makes the function that reads one case. It must return or raise a `MixupMPError`.
    cases
        Strategy of the content that it reads.
    near
        Changes a content a little, as its format allows.
    valid
        Contents that are read, from which changes start.
    """

    name: str
    prepare: Callable[[Path], Check]
    cases: Callable[[], st.SearchStrategy[bytes]]
    near: Near = near_bytes
    valid: Callable[[], list[bytes]] = list
