"""Repeats: an interrupted experiment goes on where it was, and its table grows with the repeats that are done."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixupmp.core.methods import Method, deep_ensemble
from mixupmp.paper.members import Cache
from mixupmp.paper.repeats import Record, Repeats
from mixupmp.paper.study import Study

LINES = {"DE": deep_ensemble(2), "DE of three": deep_ensemble(3)}


def study(folder: Path, partial: bool = False) -> Study:
    return Study("sounds", "smoke", Cache(folder / "cache"), folder / "results", partial=partial)


def test_it_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []

    def score(method: Method, seed: int) -> Record:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((method.sampler.members, seed))
        return {"acc": 0.5 + 0.2 * seed}

    repeats = Repeats("Sounds", "Two members.", LINES, ("acc",), 2, score)
    with pytest.raises(KeyboardInterrupt):
        repeats.run(study(tmp_path))
    table = study(tmp_path).folder / "README.md"
    assert "| DE | 1 | 0.5000 |" in table.read_text()  # of the repeat that is complete
    done.clear()
    repeats.run(study(tmp_path, partial=True))
    assert done == []
    assert "| DE | 2 | 0.6000 ± 0.1000 |" in table.read_text()
    repeats.run(study(tmp_path))
    assert done == [(3, 1)]
    assert "| DE of three | 2 | 0.6000 ± 0.1000 |" in table.read_text()
    assert '"seeds": [\n  0,\n  1\n ]' in (table.parent / "run.json").read_text()
