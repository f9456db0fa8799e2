"""`mixupmp select`: the curve as a table and as JSON, the refit, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mixupmp.cli import main
from mixupmp.store.load import load

QUICK = ["select", "--rows", "120", "--network", "mlp", "--epochs", "3", "--members", "2", "--ratios", "0.3",
         "--alphas", "1"]  # fmt: skip


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(words)
    return int(left.value.code or 0)


def test_the_curve_and_the_refit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QUICK, "--json", "--out", str(tmp_path / "run")) == 0
    told = json.loads(capsys.readouterr().out)
    assert [point["ratio"] for point in told["selection"]["curve"]] == [0.0, 0.3, "inf"]
    assert told["metrics"]["rows"] > 0
    assert load(tmp_path / "run").members == 2


@pytest.mark.parametrize("method", ["deep-ensemble", "mc-dropout", "bayesian-bootstrap"])
def test_any_method_can_be_refitted(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "method.toml").write_text(f'[method]\nname = "{method}"\n')
    words = ("--config", str(tmp_path / "method.toml"), "--out", str(tmp_path / "run"))
    assert run(*QUICK, "--json", *words) == 0, capsys.readouterr().err
    assert load(tmp_path / "run").members == 2
    assert run("fit", "--resume", str(tmp_path / "run")) == 0, capsys.readouterr().err


def test_the_table_marks_what_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QUICK, "--folds", "2", "--full") == 0
    shown = capsys.readouterr().out
    assert "chosen" in shown
    assert "inf" in shown
    assert "on 120 rows" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--ratios", "a,b"], "numbers, separated by commas"), (["--criterion", "auc"], "criterion must be one of")],
)
def test_what_cannot_be_read_is_said(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QUICK, *words) == 2
    assert message in capsys.readouterr().err
