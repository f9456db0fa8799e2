"""Table-making on a fixed input, and the paper's figures."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from mixupmp.metrics import Summary
from mixupmp.paper.effects import Sample
from mixupmp.paper.reference import concordance, paper_figures, paper_value
from mixupmp.paper.resampling import RESAMPLES
from mixupmp.paper.table import Cell, Table, TableLine, to_csv, to_latex, to_markdown


def line(group: str, label: str, acc: tuple[float, float | None], nll: float, paper: float | None = None) -> TableLine:
    cells = {
        "acc": Cell(Summary(*acc, 3), None if paper is None else (paper, 0.05)),
        "nll": Cell(Summary(nll, None, 1)),
    }
    return TableLine(group, label, cells, {"diverged": "0 of 4"})


TABLE = Table(
    "A table",
    ("acc", "nll"),
    (
        line("Single", "NN", (0.78, 0.01), 0.70, 93.72),
        line("Single", "Mixup alpha=2", (0.83, 0.01), 0.60),
        line("Ensembles", "DE", (0.865, 0.02), 0.50, 94.30),
        line("Ensembles", "MixupMP", (0.89, 0.015), 0.40, 94.75),
        line("Ensembles", "Mixup ensemble", (0.83, 0.01), 0.45),
    ),
    "What it says.",
)


def test_bold_is_what_no_test_tells_from_the_best_of_its_group_and_a_star_of_all():
    marks = TABLE.marks()
    assert marks["Ensembles", "MixupMP", "acc"] == "best*"
    assert marks["Ensembles", "DE", "acc"] == "best*"  # p = .4
    assert marks["Ensembles", "Mixup ensemble", "acc"] == ""
    assert marks["Single", "Mixup alpha=2", "acc"] == "best"
    assert marks["Single", "NN", "acc"] == ""
    # Without standard errors there is exactly one best, and for a loss it is the lowest.
    assert [key for key, mark in marks.items() if key[2] == "nll" and mark == "best*"] == [
        ("Ensembles", "MixupMP", "nll")
    ]


def test_bold_pairs_repeats_and_counts_the_test_rows():
    """Two standard errors of few repeats that agree by chance are no proof."""

    def cell(values: list[float], moved: float = 0.0) -> Cell:
        resamples = [moved * (-1) ** k for k in range(RESAMPLES)]
        sample = Sample.of(dict(enumerate(values)), dict.fromkeys(range(len(values)), resamples))
        return Cell(Summary(sample.mean, sample.error, sample.count), None, sample)

    def marked(one: Cell, other: Cell) -> list[str]:
        lines = tuple(TableLine("g", name, {"acc": each}) for name, each in (("one", one), ("other", other)))
        return list(Table("", ("acc",), lines).marks().values())

    shared = [0.1, 0.5, 0.9]  # what makes a repeat easy, for both
    assert marked(cell([x + 0.01 for x in shared]), cell([x + 0.0001 * x for x in shared])) == ["best*", ""]
    # 2.5 standard errors of the paired difference, of which a t test of three repeats makes little.
    assert marked(cell([0.50, 0.53, 0.56]), cell([0.50, 0.51, 0.52])) == ["best*", "best*"]
    assert marked(cell([0.60, 0.61, 0.62]), cell([0.50, 0.51, 0.52], moved=0.001)) == ["best*", ""]
    assert marked(cell([0.60, 0.61, 0.62], moved=0.2), cell([0.50, 0.51, 0.52], moved=0.001)) == ["best*", "best*"]


def test_a_line_outside_the_papers_regime_is_never_the_best():
    best = TABLE.lines[3]
    lines = (*TABLE.lines[:3], replace(best, comparable=False), TABLE.lines[4])
    marks = replace(TABLE, lines=lines).marks()
    assert marks["Ensembles", "MixupMP", "acc"] == marks["Ensembles", "MixupMP", "nll"] == ""
    assert marks["Ensembles", "Mixup ensemble", "nll"] == "best*"
    assert replace(TABLE, lines=tuple(replace(line, comparable=False) for line in lines)).marks()  # and nothing fails


def test_markdown():
    text = to_markdown(TABLE)
    assert text.splitlines()[0] == "## A table"
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]
    assert rows[0] == ["", "ACC (%)", "paper", "NLL", "diverged"]
    assert rows[3] == ["NN", "78.00 (1.00)", "93.72 (0.05)", "0.7000", "0 of 4"]
    assert rows[4][1] == "**83.00 (1.00)**"
    assert rows[7] == ["MixupMP", r"**89.00 (1.50)**\*", "94.75 (0.05)", r"**0.4000**\*", "0 of 4"]
    assert text.endswith("What it says.\n")


def test_csv_has_every_number():
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert len(rows) == 10
    assert list(rows[0].values()) == ["Single", "NN", "ACC", "78", "1", "3", "93.72", "0.05"]
    assert list(rows[0])[2:6] == ["measure", "value", "standard_error", "repeats"]
    assert rows[1]["standard_error"] == ""


def test_latex_escapes_and_marks():
    text = to_latex(TABLE)
    assert r"Mixup $\alpha$=2" in text
    assert r"$\mathbf{89.00 (1.50)}^*$" in text
    assert r"ACC (\%)" in text
    assert text.count(r"\hline") == 4


@pytest.mark.parametrize(
    ("table", "dataset", "label", "measure", "expected"),
    [
        ("in_distribution", "FMNIST", "DE", "ACC", (94.30, 0.05)),
        ("in_distribution", "CIFAR10", "MixupMP r=1 alpha=2", "NLL", (0.0845, 0.0003)),
        ("shift", "CIFAR10-C", "MixupMP r=1 alpha=2", "ACC", (85.12, None)),
        ("bb_vs_de", "MNIST", "BB from random", "ACC", (99.17, None)),
        ("in_distribution", "FMNIST", "no such method", "ACC", None),
    ],
)
def test_the_papers_figures(table, dataset, label, measure, expected):
    found = paper_value(table, dataset, label, measure)
    if expected is None:
        assert found is None
    else:
        assert found[0] == expected[0]
        assert (found[1] is None) == (expected[1] is None)


def test_the_papers_tables_are_complete():
    figures = paper_figures()
    assert {name: len(methods) for name, methods in figures["in_distribution"].items()} == dict.fromkeys(
        ("CIFAR10", "CIFAR100", "FMNIST"), 44
    )
    assert len(figures["shift"]["CIFAR100-C"]) == 44
    assert all(len(values) == 5 for values in figures["bb_vs_de"]["FMNIST"].values())


def test_concordance_with_itself_is_whole_and_with_its_mirror_none():
    labels = ("NN", "DE", "MC Dropout", "MixupMP r=1 alpha=2", "Mixup Ensemble alpha=2", "Laplace")
    figures = paper_figures()["in_distribution"]["CIFAR10"]
    same = {label: {m: figures[label][m.upper()][0] for m in ("acc", "nll", "ece")} for label in labels}
    mirrored = {label: {name: -value for name, value in found.items()} for label, found in same.items()}
    whole, none = concordance(same, "in_distribution", "CIFAR10"), concordance(mirrored, "in_distribution", "CIFAR10")
    assert (whole.share, none.share) == (1.0, 0.0)
    assert not whole.reversed
    assert ("DE", "NN") in none.reversed["acc"]  # the paper has DE above NN
    few = {label: same[label] for label in labels[:5]}
    assert concordance(few, "in_distribution", "CIFAR10").rank == {}  # too few lines for a rank correlation
    assert whole.rank == pytest.approx({"acc": 1, "nll": 1, "ece": 1})
    assert none.rank == pytest.approx({"acc": -1, "nll": -1, "ece": -1})
    # 96.12 (.04) of NN and 96.04 (.05) of Laplace are less than two standard errors apart: no pair in ACC.
    two = concordance({label: {"acc": same[label]["acc"]} for label in ("NN", "Laplace")}, "in_distribution", "CIFAR10")
    assert two.total == 0
