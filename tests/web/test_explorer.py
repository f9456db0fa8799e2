"""The explorer reads the results of the repository, and refuses what is not a table of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mixupmp

from mixupmp.core.errors import BadData
from mixupmp.web.explorer import write_explorer

RESULTS = Path(__file__).parents[2] / "results"


def test_the_command_writes_a_page_over_our_own_results(tmp_path: Path) -> None:
    said = mixupmp("explore", RESULTS, "--out", tmp_path / "page.html", "--json")
    assert said.json["sets"] == len(list(RESULTS.rglob("evaluations.json")))
    assert mixupmp("explore", RESULTS, "--out", tmp_path / "page.html").code == 0  # its own page is replaced
    (tmp_path / "mine.html").write_text("mine")
    assert mixupmp("explore", RESULTS, "--out", tmp_path / "mine.html").code == 2
    assert (tmp_path / "mine.html").read_text() == "mine"


@pytest.mark.parametrize("content", ["{", "[1]", '[{"label": "a"}]', '[{"label": "a", "group": "b", "repeats": 3}]'])
def test_what_is_no_table_of_results_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(BadData, match=r"has no evaluations.json"):
        write_explorer(tmp_path, tmp_path / "page.html")
    (tmp_path / "evaluations.json").write_text(content)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BadData, match=r"evaluations.json is not a table of evaluations"):
        write_explorer(tmp_path, tmp_path / "page.html")
