"""Stored results say the same of themselves twice: the caption of a table and the run.json beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"
CAPTIONED = ("table.md", "regions.md")
SAYS = "Differs from the paper:"


def folders() -> list[Path]:
    """Of version 0.2, with a record and a caption that lists differences."""
    found = []
    for record in sorted(RESULTS.rglob("run.json")):
        version = json.loads(record.read_text())["versions"]["mixupmp"]
        if version.startswith("0.2") and captions(record.parent):
            found.append(record.parent)
    return found


def captions(folder: Path) -> list[str]:
    texts = [(folder / name).read_text() for name in CAPTIONED if (folder / name).is_file()]
    return [text for text in texts if SAYS in text]


def test_there_are_stored_results_with_captions() -> None:
    assert folders()


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.relative_to(RESULTS).as_posix())
def test_caption_and_record_list_the_same_differences(folder: Path) -> None:
    listed = "; ".join(json.loads((folder / "run.json").read_text())["differences"])
    for text in captions(folder):
        assert f"{SAYS} {listed}." in text
