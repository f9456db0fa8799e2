"""Tables of measures: what is bold, and how numbers look."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mixupmp.metrics.comparison import MetricRow, MetricTable, Summary, format_summary, single


def line(label: str, acc: float, nll: float, error: float | None = None, group: str = "") -> MetricRow:
    return MetricRow(label, {"acc": Summary(acc, error, 3), "nll": Summary(nll, error, 3)}, group)


def bold(table: MetricTable, metric: str) -> list[str]:
    return [entry.label for entry in table.lines if table.is_best(entry, metric)]


def test_the_best_is_bold_by_the_direction_of_the_measure() -> None:
    table = MetricTable((line("a", 0.9, 0.3), line("b", 0.8, 0.2)), ("acc", "nll"))
    assert bold(table, "acc") == ["a"]
    assert bold(table, "nll") == ["b"]


def test_within_two_standard_errors_of_the_difference_is_as_good() -> None:
    # sqrt(.01^2 + .01^2) = .0141: two of them are .0283.
    for gap, expected in ((0.028, ["a", "b"]), (0.029, ["a"])):
        table = MetricTable((line("a", 0.9, 0.3, 0.01), line("b", 0.9 - gap, 0.3, 0.01)), ("acc",))
        assert bold(table, "acc") == expected


def test_groups_compete_within_themselves() -> None:
    table = MetricTable((line("a", 0.9, 1, group="x"), line("b", 0.8, 2, group="x"), line("c", 0.1, 9, group="y")))
    assert bold(table, "acc") == ["a"]  # c has no rival, so it is not the best of anything


def test_what_has_no_direction_is_never_bold() -> None:
    lines = tuple(MetricRow(name, {"entropy": Summary(value, None, 1)}) for name, value in (("a", 1.0), ("b", 2.0)))
    assert bold(MetricTable(lines, ("entropy",)), "entropy") == []


@pytest.mark.parametrize(
    ("metric", "summary", "expected"),
    [
        ("acc", Summary(0.94238, 0.00312, 3), "94.24 ± 0.31"),
        ("nll", Summary(0.23812, None, 1), "0.238"),
        ("ece", Summary(0.0201, 0.001, 3), "2.01 ± 0.10"),
    ],
)
def test_numbers_look_as_the_papers_do(metric: str, summary: Summary, expected: str) -> None:
    assert format_summary(metric, summary) == expected


def test_both_renderings_hold_the_same_cells() -> None:
    table = MetricTable((line("a", 0.9, 0.3, 0.01, "g"), line("b", 0.5, 0.2, 0.01, "g")), ("acc", "nll"), "Title")
    assert "| g | a | **90.00 ± 1.00** | 0.300 ± 0.010 |" in table.markdown()
    console = Console(file=io.StringIO(), width=100)
    console.print(table.rich())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Title" in text
    assert "90.00 ± 1.00" in text
    assert "ACC (%) ↑" in text


def test_measures_that_are_missing_leave_a_gap() -> None:
    table = MetricTable((MetricRow("a", single({"acc": 0.5, "mutual_information": None})),), ("acc", "nll"))
    assert table.markdown().splitlines()[-1] == "| a | 50.00 |  |"
