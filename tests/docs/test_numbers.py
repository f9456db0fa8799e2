"""Numbers of the reproduction that pages repeat are those of results/."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from mixupmp.metrics import evaluate

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
LINES = {
    "Deep ensemble (r = 0)": "DE",
    "MixupMP, r = .1": "MixupMP r=0.1 alpha=2",
    "MixupMP, r = 1": "MixupMP r=1 alpha=2",
    "Mixup ensemble (r = infinity)": "Mixup Ensemble alpha=2",
}
COMPARED = ("ACC", "paper ACC", "NLL", "NLL cal.", "paper NLL", "ECE", "ECE cal.", "paper ECE")
HUMAN = ("Human CE cal.", "Entropy rank corr.")
README, REPRODUCTION = ROOT / "README.md", ROOT / "docs" / "reproduction.md"

# (page, which of its tables with these lines, from which column on, the results, their measures)
TABLES = [
    (README, 0, 0, "comparison/cpu/fmnist", COMPARED),
    (README, 1, 0, "comparison/cpu/cifar10", COMPARED),
    (REPRODUCTION, 0, 0, "human-labels/cpu/fmnist", HUMAN),
    (REPRODUCTION, 0, 2, "human-labels/cpu/cifar10", HUMAN),
]


def stored(folder: str) -> dict[tuple[str, str], dict[str, str]]:
    with (RESULTS / folder / "table.csv").open() as file:
        return {(row["line"], row["measure"]): row for row in csv.DictReader(file)}


def tables(page: Path) -> list[dict[str, list[str]]]:
    """The tables of a page whose rows are the four ensembles: the cells of each row."""
    found: list[dict[str, list[str]]] = []
    for line in page.read_text().splitlines():
        cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        if cells[0] == next(iter(LINES)):
            found.append({})
        if cells[0] in LINES:
            found[-1][cells[0]] = cells[1:]
    return found


def as_printed(printed: str, value: float) -> None:
    """A number as a page prints it is this one, rounded to as many places."""
    places = len(printed.partition(".")[2])
    assert abs(float(printed) - value) <= 0.5 * 10.0**-places + 1e-9, (printed, value)


@pytest.mark.parametrize(("page", "number", "start", "folder", "measures"), TABLES, ids=lambda one: str(one)[-24:])
def test_tables(page: Path, number: int, start: int, folder: str, measures: tuple[str, ...]) -> None:
    found, kept = tables(page)[number], stored(folder)
    assert list(found) == list(LINES)
    for name, cells in found.items():
        for measure, cell in zip(measures, cells[start:], strict=False):
            row = kept[LINES[name], measure.removeprefix("paper ")]
            value, error = re.fullmatch(r"(\d*\.?\d+)(?: \((\d*\.\d+)\))?", cell).groups()  # type: ignore[union-attr]
            theirs = measure.startswith("paper")
            as_printed(value, float(row["paper" if theirs else "value"]))
            assert theirs == (error is None)
            if error is not None:
                as_printed(error, float(row["standard_error"]))


@pytest.fixture(scope="module")
def ledger() -> dict[str, Any]:
    return json.loads((RESULTS / "claims" / "cpu" / "claims.json").read_text())


@pytest.mark.parametrize(
    ("page", "said", "name", "lines"),
    [
        (README, r"(\d+)% \((\d?\.\d)\) on\s+Fashion-MNIST", "comparison/fmnist", "all lines"),
        (README, r"Fashion-MNIST \((\d+)% \((\d?\.\d)\)", "comparison/fmnist", "comparable lines"),
        (README, r"(\d+)%\s+\((\d?\.\d)\)\s+on\s+CIFAR-10", "comparison/cifar10", "all lines"),
        (README, r"CIFAR-10 \((\d+)% \((\d?\.\d)\)\)", "comparison/cifar10", "comparable lines"),
    ],
)
def test_concordance(ledger: dict[str, Any], page: Path, said: str, name: str, lines: str) -> None:
    found = re.search(said, page.read_text())
    assert found is not None
    kept = ledger["concordance"][name][lines]
    as_printed(found[1], 100 * kept["share"])
    as_printed(found[2], 100 * kept["standard errors"]["share"])


def test_pairs_that_agree(ledger: dict[str, Any]) -> None:
    text = REPRODUCTION.read_text()
    for said, name in (
        (r"On Fashion-MNIST (\d+) of the (\d+) pairs", "comparison/fmnist"),
        (r"it is ([\d,]+) of\s+([\d,]+) pairs", "comparison/fmnist-alphas"),
        (r"On CIFAR-10 (\d+) of (\d+) pairs agree", "comparison/cifar10"),
        (r"interpolate \(98\.9%\), (\d+) of (\d+) pairs agree again", "comparison/fmnist-long"),
        (r"\*\*Under shift\*\*.*\s(\d+) of (\d+) pairs agree", "shift/cifar10"),
    ):
        found = re.search(said, text)
        assert found is not None, said
        kept = ledger["concordance"][name]["all lines"]
        assert [int(one.replace(",", "")) for one in found.groups()] == [kept["same"], kept["pairs"]]


def test_pairs_beyond_chance_that_agree(ledger: dict[str, Any]) -> None:
    found = re.search(r"Of the (\d+) pairs that differ beyond chance here too, (\d+) have", REPRODUCTION.read_text())
    assert found is not None
    kept = ledger["concordance"]["comparison/fmnist"]["beyond chance here"]
    assert [int(one) for one in found.groups()] == [kept["pairs"], kept["same"]]


@pytest.mark.parametrize(
    ("said", "verdicts", "place", "names"),
    [
        (
            r"of (\d+) sentences, (\d+) hold at this scale, (\d+) fail,\s+(\d+) are not decided",
            "sentences",
            0,
            ("holds", "fails", "not decided"),
        ),
        (
            r"same rule (\d+) of these hold in the paper's own tables, (\d+) fail, (\d+) are not\s+decided, and (\d+)",
            "sentences",
            1,
            ("holds", "fails", "not decided", "not run"),
        ),
        (r"(\d+) sentences on examples in the plane .* \((\d+) hold\)", "plane", 0, ("holds",)),
    ],
)
def test_verdicts(ledger: dict[str, Any], said: str, verdicts: str, place: int, names: tuple[str, ...]) -> None:
    found = re.search(said, README.read_text())
    assert found is not None
    counts = Counter(both[place] for both in ledger[verdicts].values())
    total = [] if place else [counts.total()]
    assert [int(one) for one in found.groups()] == [*total, *(counts[name] for name in names)]


def test_rank_correlations(ledger: dict[str, Any]) -> None:
    number = r"(\.\d+)"
    three = rf"{number}, {number} and {number}"
    found = re.search(
        rf"Rank correlations in ACC, NLL and ECE are {three}, and {three} on\s+CIFAR-10", README.read_text()
    )
    assert found is not None
    ranks = [ledger["concordance"][f"comparison/{name}"]["all lines"]["rank"] for name in ("fmnist", "cifar10")]
    for printed, value in zip(found.groups(), (one[m] for one in ranks for m in ("acc", "nll", "ece")), strict=True):
        as_printed(printed, value)


def markdown_rows(page: Path, block: int) -> dict[str, list[str]]:
    """The cells of one of a page's tables of classifiers, by the first of each row."""
    found = [part for part in page.read_text().split("\n\n") if re.match(r"(?:.*\n)?\|", part)][block]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines() if line[0] == "|"]
    return {cells[0]: cells[1:] for cells in rows}


def test_ranks_on_tables() -> None:
    page = RESULTS / "tables" / "cpu" / "reported" / "table.md"
    text = " ".join(README.read_text().split())
    said = re.search(
        r"default settings: ([\d.]+), against ([\d.]+) for CatBoost and for a deep ensemble with the same tuning, "
        r"([\d.]+) for a calibrated random forest, ([\d.]+) for LightGBM",
        text,
    )
    assert said is not None
    ranks = {name: cells[0] for name, cells in markdown_rows(page, 0).items()}
    names = ("MixupMP", "CatBoost", "random forest, calibrated", "LightGBM")
    assert list(said.groups()) == [ranks[name] for name in names]
    assert ranks["deep ensemble"] == ranks["CatBoost"]
    said = re.search(
        r"among ten is ([\d.]+), the deep ensemble's ([\d.]+), CatBoost's ([\d.]+), RealMLP's ([\d.]+) and "
        r"TabM's ([\d.]+);",
        text,
    )
    assert said is not None
    tables_of_all = [markdown_rows(page, block) for block in range(6)]
    (first,) = [one for one in tables_of_all if "TabM" in one and "90% sets cover" in one.get("classifier", [])]
    names = ("MixupMP", "deep ensemble", "CatBoost", "RealMLP", "TabM")
    assert list(said.groups()) == [first[name][0] for name in names]


def test_quick_start() -> None:
    rows = markdown_rows(RESULTS / "quick-start" / "README.md", 0)
    text = " ".join(README.read_text().split())
    said = re.search(
        r"the means are ([\d.]+), ([\d.]+) and ([\d.]+) \(gradient boosting ([\d.]+), random forest ([\d.]+)\)", text
    )
    assert said is not None
    names = ("MixupMPClassifier", "logistic regression, standardized", "DeepEnsembleClassifier")
    names += ("gradient boosting (scikit-learn)", "random forest")
    assert list(said.groups()) == [rows[name][0] for name in names]


def test_shift() -> None:
    kept = stored("shift/cpu/cifar10")
    said = re.search(r"NLL than the deep ensemble \(([\d.]+) to ([\d.]+) against ([\d.]+)\)", README.read_text())
    assert said is not None
    deep, *others = (float(kept[line, "NLL"]["value"]) for line in LINES.values())
    for printed, value in zip(said.groups(), (min(others), max(others), deep), strict=True):
        as_printed(printed, value)
    eces = {line: float(kept[line, "ECE"]["value"]) for line in LINES.values()}
    assert min(eces, key=eces.__getitem__) == "MixupMP r=0.1 alpha=2"


def test_shift_of_fashion_mnist() -> None:
    kept = stored("shift/cpu/fmnist")
    said = re.search(
        r"over\s+all intensities ECE is ([\d.]+)% \(DE\), ([\d.]+) \(r = \.1\), ([\d.]+) \(r = 1\) and ([\d.]+)% "
        r"\(Mixup ensemble\), NLL (\.\d+), (\.\d+), (\.\d+) and (\.\d+)\. .*?"
        r"\(ECE ([\d.]+), ([\d.]+), ([\d.]+) and ([\d.]+)%, NLL (\.\d+), (\.\d+), (\.\d+) and (\.\d+)\)",
        " ".join(REPRODUCTION.read_text().split()),
    )
    assert said is not None
    printed = iter(said.groups())
    for measure in ("ECE", "NLL", "ECE cal.", "NLL cal."):
        for line in LINES.values():
            as_printed(next(printed), float(kept[line, measure]["value"]))


def test_ece_of_a_calibrated_predictor() -> None:
    said = re.search(
        r"from \.3 to 1, has ([\d.]+)% on 10,000\s+rows, ([\d.]+)% on 4,000 and ([\d.]+)% on 1,000",
        REPRODUCTION.read_text(),
    )
    assert said is not None
    generator = torch.Generator().manual_seed(0)
    for rows, printed in zip((10_000, 4_000, 1_000), said.groups(), strict=True):
        found = []
        for _ in range(200):
            top = 0.3 + 0.7 * torch.rand(rows, generator=generator, dtype=torch.float64)
            right = torch.rand(rows, generator=generator, dtype=torch.float64) < top
            others = ((1 - top) / 4)[:, None].expand(-1, 4)  # each below the top one
            found.append(evaluate(torch.cat([top[:, None], others], 1)[None], (~right).long())["ece"])
        assert abs(100 * sum(found) / len(found) - float(printed)) < 0.12, rows


def test_margins_of_the_bootstrap() -> None:
    text = " ".join(REPRODUCTION.read_text().split())
    said = re.search(
        r"a median of \[([\d.]+)\].*? and \[([\d.]+)\].*? it moves away, to ([\d.]+) and ([\d.]+) of it", text
    )
    assert said is not None
    printed = iter(said.groups())
    for start in ("random", "DE"):
        for dataset in ("fmnist", "mnist"):
            lines = (RESULTS / "bb-vs-de" / "cpu" / dataset / "margins.md").read_text().splitlines()
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            (last,) = (row[2] for row in cells if row[:2] == [start, "200"])
            as_printed(next(printed), float(last.split()[0]))


def test_accuracies_of_the_bootstrap() -> None:
    text = " ".join(REPRODUCTION.read_text().split())
    number = r"([\d.]+)%? \(([\d.]+)\)"
    said = re.search(
        rf"on Fashion-MNIST {number} and {number} accuracy, ECE {number} and {number}\. "
        rf"From random weights BB has {number} where DE has {number}, and an ECE of {number} in place of {number}",
        text,
    )
    assert said is not None
    kept, printed = stored("bb-vs-de/cpu/fmnist"), iter(said.groups())
    both = ("BB from DE", "DE from DE"), ("BB from random", "DE from random")
    for line, measure in ((line, measure) for lines in both for measure in ("ACC", "ECE") for line in lines):
        row = kept[line, measure]
        as_printed(next(printed), float(row["value"]))
        as_printed(next(printed), float(row["standard_error"]))


def test_where_networks_do_not_interpolate() -> None:
    kept = stored("ablation/cpu/cifar10-crops")
    text = " ".join(REPRODUCTION.read_text().split())
    others = r"r = \.1 ([\d.]+), r = 1 ([\d.]+), Mixup ensemble ([\d.]+)"
    said = re.search(rf"an ECE of ([\d.]+)% and the lowest NLL \(([\d.]+); {others}\)", text)
    assert said is not None
    as_printed(said[1], float(kept["DE", "ECE"]["value"]))
    for printed, line in zip(said.groups()[1:], LINES.values(), strict=True):
        as_printed(printed, float(kept[line, "NLL"]["value"]))
    in_readme = re.search(r"flips\]\([^)]*\) ([\d.]+) and ([\d.]+)\)", " ".join(README.read_text().split()))
    assert in_readme is not None
    assert in_readme.groups() == said.group(2, 4)
