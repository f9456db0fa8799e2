"""From settings and data to a plan: default recipes, one plan from Python and the command line, nothing done twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_iris

from mixupmp import Dataset, Recipe, Rows, load, mixup_mp, plan_for
from mixupmp.cli import main
from mixupmp.core.errors import BadData, MixupMPError
from mixupmp.data import load_path
from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier
from mixupmp.networks import MLP
from mixupmp.train.loggers import logging_to
from mixupmp.train.plans import RECIPES, Kind, mixup_mp_for, recipe_for
from mixupmp.train.run import Engine, fit
from mixupmp.train.settings import read_toml


@pytest.mark.parametrize("rows", [10, 127, 128, 129, 1000])
@pytest.mark.parametrize("kind", ["images", "table"])
def test_small_data_get_steps_enough(rows: int, kind: Kind) -> None:
    recipe = recipe_for(rows, kind)
    steps = recipe.epochs * -(-rows // 128)
    wanted = RECIPES[kind].steps
    if kind == "images":  # growing with the cube root of the rows
        wanted = {10: 300, 127: 300, 128: 300, 129: 300, 1000: 513}[rows]
    assert wanted <= steps or recipe.epochs == 1000
    assert steps < wanted + max(8, wanted // 5) or recipe.epochs == 20


def test_large_data_get_epochs_enough_and_an_answer_given_is_kept() -> None:
    assert recipe_for(10**6, "table").epochs == 20
    assert recipe_for(10**6, "images", {"epochs": 3}).epochs == 3
    assert recipe_for(10**6, "fine-tune").epochs == 3
    with pytest.raises(MixupMPError, match="epochs must be"):
        recipe_for(10, "images", {"epochs": 0})


def test_the_default_classifier_learns_a_table() -> None:
    X, y = load_iris(return_X_y=True)
    assert DeepEnsembleClassifier(2, random_state=0).fit(X[::2], y[::2]).score(X, y) > 0.9


def test_one_table_gives_the_same_weights_from_python_and_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features, labels = load_iris(return_X_y=True)
    lines = ["a,b,c,d,kind", *(",".join([*map(str, x), f"class {k}"]) for x, k in zip(features, labels, strict=True))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    with pytest.raises(SystemExit) as left:
        main(["fit", "--data", str(tmp_path / "table.csv"), "--out", str(tmp_path / "run"), "--seed", "3", "--json"])
    assert not left.value.code
    rows = load_path(tmp_path / "table.csv").train
    model = MixupMPClassifier(random_state=3).fit(rows.inputs.numpy(), rows.labels.numpy())
    ours, theirs = model.posterior_.networks, load(tmp_path / "run").networks
    assert len(ours) == len(theirs) == 1  # 16 members that share it
    said = json.loads(capsys.readouterr().out)
    assert (said["ratio"], said["epochs"], said["temperature"]) == (model.ratio_, model.epochs_, model.temperature_)
    for one, other in zip(ours, theirs, strict=True):
        weights = other.state_dict()
        assert all(torch.equal(value, weights[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_rows_are_hashed_once_and_a_network_is_built_once_for_each_member(
    table: Dataset, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()

    def count(cls: type, name: str) -> None:
        original = getattr(cls, name)

        @wraps(original)
        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(cls, name, counted)

    for cls, name in ((MLP, "__init__"), (Rows, "_hash"), (Rows, "checked")):
        count(cls, name)
    plan = replace(plan_for(table, mixup_mp(), "mlp", Recipe(epochs=1)), seed=2)
    fit(plan, engine=engine, run=tmp_path / "run", progress=logging_to(None, plan))
    assert counts == {"_hash": 1, "checked": 1, "__init__": 4 + 1}  # one of the plan that was replaced


def test_rows_that_change_in_place_are_hashed_again(table: Dataset) -> None:
    rows = Rows(table.train.inputs.clone(), table.train.labels)
    before = rows.fingerprint()
    rows.inputs.add_(1)
    assert rows.fingerprint() != before


def test_settings_that_are_nested_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 5000)
    with pytest.raises(BadData, match=r"deep\.toml is not TOML"):
        read_toml(path)


def test_many_rows_are_shared_by_four_members_in_batches_of_256() -> None:
    sizes = {rows: recipe_for(rows, "shared").batch_size for rows in (500, 15_000, 30_000, 10**6)}
    assert sizes == {500: 64, 15_000: 128, 30_000: 256, 10**6: 256}
    members = [mixup_mp_for((20,), None, rows=rows).sampler.members for rows in (29_999, 30_000)]
    assert members == [16, 4]
    assert mixup_mp_for((20,), None, members=8, share_weights=True, rows=10**6).sampler.members == 8
