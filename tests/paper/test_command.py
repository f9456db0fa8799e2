"""`mixupmp reproduce` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mixupmp.cli import main

MINE = """
from mixupmp.core.methods import single_network
from mixupmp.paper import Study, Wanted
from mixupmp.paper.report import OnRows
from mixupmp.paper.settings import setting_named

def run(study: Study) -> None:
    setting = setting_named("fmnist", "smoke")
    wanted = Wanted(setting.plan(single_network(), 0))
    study.train([wanted])
    study.write("found.json", study.evaluate([(wanted, OnRows(setting.test))])[0])
    study.record(setting.all_differences, [0])
"""


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", *words])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def test_list(capsys):
    code, out, _ = leave(capsys, "list", "--json")
    assert code == 0
    listed = {one["name"]: one for one in json.loads(out)["experiments"]}
    assert listed["comparison"]["datasets"] == ["fmnist", "fmnist-alphas", "fmnist-long", "cifar10"]


def test_list_at_paper_scale_estimates_gpu_hours_without_data(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MIXUPMP_DATA", str(tmp_path))
    code, out, _ = leave(capsys, "list", "--scale", "paper", "--json")
    assert code == 0
    listed = {one["name"]: one for one in json.loads(out)["experiments"]}
    assert listed["comparison"]["datasets"] == ["cifar10", "cifar100", "fmnist"]
    # 13 explicit ensembles of 4 and 17 implicit ones at 3 seeds of WRN-28-10, about 2 to 4 hours each, two datasets.
    assert 500 < listed["comparison"]["gpu_hours"] < 3000
    assert listed["claims"]["gpu_hours"] is None
    # Small networks take 1 ms a step: 32 CNNs for 2,000 epochs of 469 steps.
    assert listed["bb-vs-de"]["gpu_hours"] == pytest.approx(32 * 2000 * 469 / 3.6e6)


def test_list_has_experiments_that_are_not_of_the_paper_in_a_group_of_their_own(capsys):
    _, out, _ = leave(capsys, "list")
    first, second = out.split("Not of the paper")
    assert first.strip().startswith("Of the paper")
    assert "comparison" in first
    others = ("human-labels", "out-of-distribution", "tables", "clinc", "spoken-digits", "blends")
    assert all(f" {name} " in second and f" {name} " not in first for name in others)
    _, out, _ = leave(capsys, "list", "--json")
    assert {one["name"] for one in json.loads(out)["experiments"] if not one["of_the_paper"]} == set(others)


def test_list_at_paper_scale_says_of_every_experiment_what_it_costs(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MIXUPMP_DATA", str(tmp_path))
    _, out, _ = leave(capsys, "list", "--scale", "paper", "--json")
    listed = {one["name"]: one for one in json.loads(out)["experiments"]}
    assert [name for name, one in listed.items() if (one["gpu_hours"] is None) == (one["cost"] is None)] == []
    on_a_cpu = ("illustration-mp", "illustration-r", "illustration-alpha", "margins", "complexity")
    assert {listed[name]["cost"] for name in on_a_cpu} == {"minutes of a CPU"}
    assert listed["blends"]["cost"] == "not at this scale"
    _, out, _ = leave(capsys, "list", "--scale", "paper")
    assert out.count("minutes of a CPU") == len(on_a_cpu)
    assert " - " not in out


def test_list_at_paper_scale_says_what_its_estimate_is(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MIXUPMP_DATA", str(tmp_path))
    _, out, _ = leave(capsys, "list", "--scale", "paper")
    said = " ".join(out.split())
    assert "a rough lower bound" in said
    assert "40 TFLOP/s (an eighth of the card's peak, not measured)" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("margins", "--scale", "smoke", "--device", "cuda:0"), "device must be 'cpu' in the experiment margins"),
        (("comparisn",), "Did you mean 'comparison'?"),
        (("comparison", "--scale", "huge"), "unknown scale 'huge'"),
        (("comparison", "--scale", "smoke", "--data", "imagenet"), "unknown dataset of comparison"),
        (("comparison", "--protocol", "author"), "Did you mean 'authors'?"),
    ],
)
def test_what_cannot_be_run_is_named_with_exit_code_2(capsys, words, message):
    code, _, err = leave(capsys, *words)
    assert code == 2
    assert message in err


def test_an_experiment_of_the_users_own(tmp_path: Path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    places = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"))
    code, out, err = leave(capsys, str(file), "--scale", "smoke", *places, "--json")
    assert code == 0
    assert "1 member-fits, 0 cached, 1 to train" in err
    written = [Path(path).name for path in json.loads(out)["written"]]
    assert written == ["found.json", "run.json"]
    code, out, _ = leave(capsys, str(file), "--scale", "smoke", *places)
    assert "1 cached, 0 to train" in out


@pytest.mark.parametrize("name", ["comparison", "bb-vs-de"])
def test_a_partial_report_of_nothing_leaves_the_results_alone(name: str, tmp_path: Path, capsys):
    places = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"))
    code, _, err = leave(capsys, name, "--scale", "smoke", "--partial", *places)
    assert code == 2
    assert "has nothing of" in err
    assert not list((tmp_path / "results").rglob("*.md"))
