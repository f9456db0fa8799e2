from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mixupmp.web.explorer import write_explorer

REPEATS = {"DE": [0.4, 0.6], "MixupMP </script>": [0.2, 0.3]}
LONG = "MixupMP-single r=0.1 alpha=2"


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two sets of results: one with calibrated values and repeats, one with neither."""
    root = tmp_path_factory.mktemp("results")
    for name, calibrated in (("comparison/cpu/fmnist", True), ("shift/cpu", False)):
        folder: Path = root / name
        folder.mkdir(parents=True)
        lines = [
            {
                "group": "Ensemble",
                "label": label,
                "repeats": [
                    {"acc": 1 - v, "nll": v, "seed": "a"} | ({"nll_calibrated": v / 2} if calibrated else {})
                    for v in (values if calibrated else values[:1])
                ],
            }
            for label, values in REPEATS.items()
        ]
        (folder / "evaluations.json").write_text(json.dumps(lines))
        (folder / "run.json").write_text(json.dumps({"command": f"mixupmp reproduce {name}"}))
    assert write_explorer(root, root / "explorer.html") == 2
    return (root / "explorer.html").as_uri()


def rows(page: Any) -> list[list[str]]:
    return [row.split("\t") for row in page.locator("#table tbody").inner_text().splitlines()]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 380)])
def test_it_opens_from_disk_in_silence(visit: Callable[..., Any], explorer: str, scheme: str, width: int) -> None:
    found = visit(explorer, scheme, width)
    assert found.complaints == []
    wide, there = found.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= there
    assert [row[:2] for row in rows(found.page)] == [
        ["DE (Ensemble)", "0.500"],
        ["MixupMP </script> (Ensemble)", "0.250"],
    ]


def test_metrics_and_calibration_are_chosen(visit: Callable[..., Any], explorer: str) -> None:
    page = visit(explorer).page
    assert rows(page)[0][2:] == ["0.100", "2"]  # the standard error of .4 and .6
    assert page.locator("#chart .whisker").count() == 2
    page.get_by_label("calibrated", exact=True).check()
    assert [row[1] for row in rows(page)] == ["0.250", "0.125"]
    page.locator("#metric").select_option("acc")
    assert [row[1] for row in rows(page)] == ["50.00", "75.00"]
    assert page.get_by_label("calibrated", exact=True).is_disabled()
    page.get_by_label("best first").check()
    assert rows(page)[0][0].startswith("MixupMP")
    page.locator("summary").click()
    page.get_by_label("DE (Ensemble)").uncheck()
    assert len(rows(page)) == page.locator("#chart .dot").count() == 1


def test_another_set_and_its_link(visit: Callable[..., Any], explorer: str) -> None:
    page = visit(explorer).page
    page.locator("#set").select_option("shift · cpu")
    assert rows(page)[0][1:] == ["0.400", "–", "1"]
    assert page.locator("#chart .whisker").count() == 0
    assert "mixupmp reproduce shift/cpu" in page.locator("#command").inner_text()
    again = visit(page.url).page
    assert rows(again) == rows(page)


@pytest.mark.parametrize("width", [380, 1200])
def test_the_chart_fits_with_whole_names_and_round_numbers(
    visit: Callable[..., Any], tmp_path: Path, width: int
) -> None:
    lines = [
        {"group": "Explicit ensemble", "label": label, "repeats": [{"nll": value}]}
        for label, value in ((LONG, 0.2137), ("DE", 0.5871))
    ]
    (tmp_path / "evaluations.json").write_text(json.dumps(lines))
    (tmp_path / "run.json").write_text("{}")
    write_explorer(tmp_path, tmp_path / "explorer.html")
    page = visit((tmp_path / "explorer.html").as_uri(), width=width).page
    assert page.locator("#chart .name").first.text_content() == f"{LONG} (Explicit ensemble)"
    card, *inside = page.evaluate(
        "[document.querySelector('figure'), ...document.querySelectorAll('#chart text, #chart circle')]"
        ".map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    assert all(card[0] <= left and right <= card[1] for left, right in inside)
    assert page.locator("#chart .mark").all_text_contents() == ["0.2", "0.4", "0.6"]


def test_it_begins_with_results_that_have_calibrated_values(visit: Callable[..., Any], tmp_path: Path) -> None:
    for name, more in (("comparison/a", {}), ("comparison/b", {"nll_calibrated": 0.1})):
        (tmp_path / name).mkdir(parents=True)
        line = {"group": "", "label": "DE", "repeats": [{"nll": 0.2} | more]}
        (tmp_path / name / "evaluations.json").write_text(json.dumps([line]))
        (tmp_path / name / "run.json").write_text("{}")
    write_explorer(tmp_path, tmp_path / "explorer.html")
    page = visit((tmp_path / "explorer.html").as_uri()).page
    assert page.locator("#set option:checked").text_content() == "comparison · b"
