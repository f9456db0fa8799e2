from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from mixupmp.cli import main


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    common = ("--network", "mlp", "--rows", 60, "--epochs", 1)
    assert run("fit", "--out", folder, "--method", "deep-ensemble", "--members", 2, *common) == 0
    return folder


def test_a_run_becomes_a_page_with_the_scores_that_evaluate_tells(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    capsys.readouterr()
    assert run("report", fitted, fitted, "--out", page, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(page)
    assert run("evaluate", fitted, "--json") == 0
    expected = json.loads(capsys.readouterr().out)["metrics"]
    for name in ("acc", "nll", "ece", "mutual_information"):
        assert told["metrics"][str(fitted)][name] == pytest.approx(expected[name], abs=1e-6)
    text = page.read_text()
    assert "fewer_rows(dataset, 60" in text
    assert run("report", fitted, "--out", page) == 0, "an earlier report may be replaced"
    assert "Martingale diagnostic" not in page.read_text()
    assert run("report", fitted, "--out", page, "--martingale", 2) == 0
    assert "rows drawn from it move its probabilities" in page.read_text()


@pytest.mark.parametrize("name", ["notes.txt", "mine.html", "nowhere/report.html"])
def test_nothing_else_is_written_over(fitted: Path, tmp_path: Path, name: str) -> None:
    if "/" not in name:
        (tmp_path / name).write_text("mine")
    assert run("report", fitted, "--out", tmp_path / name) == 2
    if "/" not in name:
        assert (tmp_path / name).read_text() == "mine"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert run("report", tmp_path, "--out", tmp_path / "report.html") == 2
    assert not (tmp_path / "report.html").exists()


def test_a_full_disk_is_no_reason_to_resume_a_report(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(fitted), "--out", str(tmp_path / "report.html")])
    said = " ".join(capsys.readouterr().err.split())
    assert "report.html could not be written: No space left on device. Make room, or choose another folder." in said
    assert "resume" not in said
