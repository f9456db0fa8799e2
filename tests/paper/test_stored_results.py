"""Stored results say the same of themselves twice: the caption of a table and the run.json beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mixupmp.paper.experiments import all_experiments
from mixupmp.paper.settings import Setting

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


def of_settings() -> list[tuple[Path, Setting]]:
    """The records of experiments whose setting the code knows, with it."""
    found = []
    for folder in folders():
        name, scale, *rest = folder.relative_to(RESULTS).parts
        known = all_experiments().get(name)
        work = None if known is None else getattr(known.load(), "work", None)
        if work is not None and scale == "cpu":
            found.append((folder, work("".join(rest), scale)[0]))
    return found


def test_records_list_what_the_code_lists() -> None:
    found = of_settings()
    assert len(found) > 8
    for folder, setting in found:
        listed = json.loads((folder / "run.json").read_text())["differences"]
        assert [one for one in setting.all_differences if one not in listed] == [], folder


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.relative_to(RESULTS).as_posix())
def test_caption_and_record_list_the_same_differences(folder: Path) -> None:
    listed = "; ".join(json.loads((folder / "run.json").read_text())["differences"])
    for text in captions(folder):
        assert f"{SAYS} {listed}." in text
