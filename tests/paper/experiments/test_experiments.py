"""Every experiment file: it can be found, runs whole at smoke scale, and is the paper's protocol at paper scale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mixupmp import mixup_mp
from mixupmp.core.errors import BadData, DataNotFound, UnknownName
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.data import corrupted
from mixupmp.data.corrupted_sets import MANIFEST, write_corrupted
from mixupmp.paper import AUTHORS, TEXT, paired_members, settings
from mixupmp.paper.evidence import RunEvidence
from mixupmp.paper.experiments import EXPERIMENTS, all_experiments, experiment_named, shift
from mixupmp.paper.figures import SEQUENCE, color_of
from mixupmp.paper.members import Cache
from mixupmp.paper.report import summaries_of
from mixupmp.paper.resampling import RESAMPLES
from mixupmp.paper.study import Study
from mixupmp.train.member import MemberFit

NAMES = EXPERIMENTS


def test_all_are_there_with_a_title():
    assert tuple(all_experiments()) == NAMES
    assert all(experiment.title for experiment in all_experiments().values())


def test_an_unknown_name_is_told_the_nearest():
    with pytest.raises(UnknownName, match="'comparison'"):
        experiment_named("comparisons")
    with pytest.raises(DataNotFound, match="no experiment file"):
        experiment_named("nowhere/mine.py")


def test_a_file_of_the_users_is_run_by_its_path(tmp_path: Path, study):
    mine = tmp_path / "my_own.py"
    mine.write_text("def run(study):\n    study.write('hello.txt', study.name)\n")
    one = study("my-own")
    experiment_named(str(mine)).run(one)
    assert (one.folder / "hello.txt").read_text() == "my-own"
    mine.write_text("x = 1\n")
    with pytest.raises(BadData, match="no function `run"):
        experiment_named(str(mine)).load()


def test_a_dataset_that_an_experiment_does_not_have_is_refused(study):
    with pytest.raises(UnknownName, match="comparison at scale smoke"):
        experiment_named("comparison").run(study("comparison"), ["cifar1000"])


def test_error_bars_of_the_comparison_stay_within_the_picture(monkeypatch: pytest.MonkeyPatch):
    comparison = experiment_named("comparison").load()
    kept = []
    monkeypatch.setattr(comparison, "save", lambda figure, folder, name: kept.append(figure))
    others = {"nll": 1.0, "oe": 0.1, "ue": 0.1, "training_accuracy": 1.0}
    below = others | {"training_accuracy": 0.9}
    evaluated = [
        (SimpleNamespace(label="DE"), [{"seed": 0, "acc": 0.3, **others}, {"seed": 1, "acc": 0.5, **others}]),
        (SimpleNamespace(label="NN"), [{"seed": 0, "acc": 0.4, **below}, {"seed": 1, "acc": 0.41, **below}]),
    ]
    comparison.draw(SimpleNamespace(folder=None), evaluated, "made up")
    low, high = kept[0].axes[0].get_xlim()
    assert low < 40 - 2 * 10  # the deep ensemble's mean, less two standard errors
    assert high > 40 + 2 * 10
    said = [text.get_text() for text in kept[0].legends[0].get_texts()]
    assert {"bars: 2 standard errors over the runs of 2 repeats", "over-confidence (OE)"} < set(said)
    assert "hollow: training accuracy below 98%, not comparable" in said
    faces = [line.get_markerfacecolor() for line in kept[0].axes[0].lines if line.get_marker() == "o"]
    assert (faces[0] == "#ffffff", faces[1] == "#ffffff") == (True, False)  # from below: NN, DE


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Path:
    """The whole smoke plan, run once, all experiments over one cache."""
    root = tmp_path_factory.mktemp("smoke")
    said: list[str] = []
    for name in sorted(NAMES, key=lambda name: name == "claims"):
        one = Study(name, "smoke", Cache(root / "cache"), root / "results", 1, say=said.append)
        experiment_named(name).run(one)
    (root / "said.json").write_text(json.dumps(said))
    return root


@pytest.mark.timeout(600)
def test_the_smoke_plan_runs_whole(everything: Path):
    results = everything / "results"
    assert {path.relative_to(results).parts[0] for path in results.rglob("run.json")} == set(NAMES)
    for name in ("comparison", "ablation", "shift"):
        table = next((results / name).rglob("table.md")).read_text()
        assert "train ACC" in table
        assert "diverged" in table
        assert next((results / name).rglob("table.tex")).read_text().startswith(r"\begin{tabular}")
    shifted = results / "shift/smoke/fmnist"
    assert "ECE by corruption (%)" in (shifted / "table.md").read_text()
    assert "| NLL cal." in (shifted / "table.md").read_text()
    assert "| ECE cal. (%)" in (shifted / "table.md").read_text()
    assert "| gaussian_noise |" in (shifted / "corruptions.md").read_text()
    differences = " ".join(json.loads((shifted / "run.json").read_text())["differences"])
    assert "the paper has no corrupted digits: an extension" in differences
    assert "textures of frost, which are not photographs" in differences
    for figure in ("ablation", "shift", "bb-vs-de", "illustration-r", "out-of-distribution", "complexity"):
        for ending in ("svg", "png"):
            assert list((results / figure).rglob(f"*.{ending}")), f"{figure} has no {ending}"


def test_verdicts_under_shift_know_what_the_test_rows_add(everything: Path):
    evidence = RunEvidence(everything / "results", "smoke")
    for measure in ("acc", "nll", "ece", "oe", "ue", "entropy"):
        for level in (None, *range(6)):
            found = evidence.sample("shift", "fmnist", "DE", measure, level)
            assert [len(many) for many in found.resampled.values()] == [RESAMPLES] * 2, (measure, level)
    moved = evidence.sample("shift", "fmnist", "DE", "nll", 5).resampled[0]
    assert any(value < 0 for value in moved)
    assert any(value > 0 for value in moved)


def test_of_published_corruptions_the_subset_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIXUPMP_DATA", str(tmp_path))
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8, generator=generator)
    rows = Rows(images, torch.arange(12) % 10)
    whole = Dataset("cifar10", rows, rows, tuple("abcdefghij"), Standardize((0.5,) * 3, (0.25,) * 3))
    assert not shift._published(whole)
    (write_corrupted(whole, tmp_path / "CIFAR-10-C") / MANIFEST).unlink()  # as the publishers' have none
    assert shift._published(whole)
    places = torch.tensor([3, 7, 11])
    found = shift._corrupted(replace(whole, test=rows.take(places)), places, "contrast", 2)
    expected = corrupted(whole, "contrast", 2)
    assert torch.equal(found.inputs, expected.inputs[places])
    assert torch.equal(found.labels, rows.labels[places])


def test_at_paper_scale_a_single_run_of_each_is_shifted():
    _, lines = shift.work("cifar10", "paper")
    assert {(line.repeats, line.runs) for line in lines} == {(1, None), (1, (0,))}


def test_on_fashion_mnist_the_networks_trained_longer_are_shifted():
    """Their fits are those of `comparison --data fmnist-long`, as nothing differs but the test rows."""
    (setting, lines), compared = shift.work("fmnist", "cpu"), settings.setting_named("fmnist-long", "cpu")
    assert setting.test_rows == 1000
    assert vars(replace(setting, test_rows=None)) == vars(compared)
    assert len(lines) == 14


def test_single_models_of_a_repeat_count_once():
    runs = [{"seed": seed, "acc": acc} for seed, acc in ((0, 0.1), (0, 0.3), (1, 0.4), (1, 0.6))]
    found = summaries_of(runs)["acc"]
    assert (found.mean, found.standard_error, found.repeats) == (pytest.approx(0.35), pytest.approx(0.15), 2)
    assert summaries_of([{"acc": 0.1}, {"acc": 0.3}])["acc"].repeats == 2


def test_the_table_stands_beside_the_papers(everything: Path):
    table = (everything / "results/comparison/smoke/fmnist/table.md").read_text()
    assert "94.30 (0.05)" in table  # the paper's DE on FMNIST


def test_a_run_says_what_made_it(everything: Path):
    record = json.loads((everything / "results/comparison/smoke/fmnist/run.json").read_text())
    assert record["command"] == "mixupmp reproduce comparison --scale smoke --data fmnist"
    assert {"date", "seeds", "versions", "machine", "differences", "setting", "protocol"} <= set(record)
    assert any("digits" in one for one in record["differences"])
    assert record["machine"]["devices"] == ["cpu"]
    (made,) = record["evaluated"]
    assert made["mixupmp"] == record["versions"]["mixupmp"]
    assert made["capability"] == record["machine"]["capability"]
    assert made["evaluations"] > 20


def test_members_are_shared_between_experiments(everything: Path):
    said = "\n".join(json.loads((everything / "said.json").read_text()))
    assert "shift fmnist (smoke): 26 member-fits, 26 cached, 0 to train." in said
    assert "out-of-distribution (smoke): 26 member-fits, 26 cached, 0 to train." in said


def test_the_smoke_ledger_stays_among_the_smoke_results(everything: Path):
    assert (everything / "results/claims/smoke/CLAIMS.md").exists()
    assert not (everything / "results/CLAIMS.md").exists()


class _TwoSteps(Exception):
    pass


class _Watch:
    steps = 0

    def on_step(self, fit: MemberFit) -> None:
        self.steps += 1
        if self.steps == 2:
            raise _TwoSteps


def tiny(monkeypatch: pytest.MonkeyPatch, channels: int, side: int) -> None:
    """Four random images in the place of a published dataset."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (4, channels, side, side), generator=generator).to(torch.uint8)
    rows = Rows(images, torch.arange(4))
    dataset = Dataset(
        "cifar10" if channels == 3 else "fashion-mnist", rows, rows, tuple("0123456789"), Standardize.of(images)
    )
    monkeypatch.setattr(settings, "load", lambda name: dataset)


@pytest.mark.parametrize("protocol", [TEXT, AUTHORS], ids=lambda protocol: protocol.name)
@pytest.mark.parametrize(
    ("name", "side", "channels", "weights"),
    [
        ("cifar10", 32, 3, 36_500_000),
        ("fmnist", 28, 1, 2_800_000),
        ("fmnist-cnn", 28, 1, 44_426),
    ],
)
def test_paper_scale_is_the_papers_protocol_and_takes_its_first_steps(
    monkeypatch, name, side, channels, weights, protocol
):
    tiny(monkeypatch, channels, side)
    setting = settings.setting_named(name, "paper").under(protocol)
    recipe = protocol.recipe(setting.recipe)
    assert (recipe.epochs, recipe.learning_rate, recipe.milestones) == (200, 0.1, (60, 120, 160))
    assert (recipe.momentum, recipe.nesterov, recipe.weight_decay) == (0.9, protocol is TEXT, 5e-4)
    assert (setting.repeats, setting.members, setting.masks, setting.train_rows) == (3, 4, 20, None)
    assert setting.all_differences
    setting = replace(setting, recipe=replace(setting.recipe, batch_size=2))
    fit = MemberFit(setting.plan(mixup_mp(1.0, 2.0, 4, setting.kernel), 0), 0)
    assert sum(p.numel() for p in fit.network.parameters()) == pytest.approx(weights, rel=0.01)
    with pytest.raises(_TwoSteps):
        fit.run(_Watch())
    assert all(torch.isfinite(p).all() for p in fit.network.parameters())


def test_the_legend_of_a_single_repeat_says_that_it_has_no_bars(monkeypatch: pytest.MonkeyPatch):
    ablation = experiment_named("ablation").load()
    kept = []
    monkeypatch.setattr(ablation, "save", lambda figure, folder, name: kept.append(figure))
    values = dict.fromkeys(ablation.DRAWN, 0.1)
    evaluated = [
        (SimpleNamespace(group="alpha=2", label="DE"), [{**values, "training_accuracy": 1.0}]),
        (SimpleNamespace(group="alpha=2", label="Mixup Ensemble alpha=2"), [{**values, "training_accuracy": 0.9}]),
    ]
    ablation.draw(SimpleNamespace(folder=None), evaluated, "made up")
    said = [text.get_text() for text in kept[0].legends[0].get_texts()]
    assert sorted(said) == [
        "hollow: training accuracy below 98%, not comparable",
        "one repeat: no error bars",
        "α=2",
    ]
    hollow = [list(line.get_xdata()) for line in kept[0].axes[0].lines if line.get_markerfacecolor() == "#ffffff"]
    assert hollow == [[1], []]  # the point of r = infinity, and the entry of the legend
    assert SEQUENCE[-1] in {line.get_color() for line in kept[0].axes[0].lines}  # alpha = 2, with or without others


def test_variants_of_mixup_mp_have_the_color_of_their_r():
    names = ("MixupMP", "MixupMP-single", "MixupMP-MC")
    assert {color_of(f"{name} r=0.1 alpha=2") for name in names} == {SEQUENCE[1]}
    assert {color_of(f"{name} r=1 alpha=2") for name in names} == {SEQUENCE[2]}


def test_a_lost_member_leaves_the_numbers_of_the_others(study):
    module = experiment_named("bb-vs-de").load()
    setting = settings.homogeneous("fmnist", "smoke")
    plan = module.first_stage(setting.plan(module.methods(3)["BB"], 0))
    plan = replace(plan, recipe=replace(plan.recipe, epochs=1))
    one = study("bb-vs-de")
    first = module.Wanted(plan)
    one.train([first])
    finished = [(summary, weights) for summary, weights in one.cache.finished(first)]
    finished[1] = (replace(finished[1][0], diverged_at=7), {})
    posterior = plan.posterior(finished)
    later = module.next_stage(plan, posterior, 1)
    assert later.numbers == (0, 2)
    kept = finished[2][1]
    assert all(torch.equal(later.plan.initial[2][name], weight) for name, weight in kept.items())
    found = module.Members(setting.dataset(0).train, setting.test)(posterior)
    assert found["members"] == [0, 2]
    assert {len(values) for values in found.values()} == {2}
    one.train([later])
    assert [summary.member for summary in one.cache.posterior(later).summaries] == [0, 2]


def test_pairs_of_members_leave_out_those_that_one_side_has_lost():
    ended = {"stage": 1, "seed": 4}
    tracks = {
        "DE from DE": [{**ended, "members": [0, 1, 2], "member_acc": [0.1, 0.2, 0.3]}],
        "BB from DE": [{**ended, "members": [0, 2], "member_acc": [0.4, 0.6]}],
    }
    assert paired_members.pairs_of(tracks, "DE", "member_acc") == [(0.1, 0.4), (0.3, 0.6)]


def test_margins_of_the_bootstrap_are_shares_of_those_of_the_same_start():
    def at(stage, margins, accuracies):
        return {
            "stage": stage,
            "seed": 0,
            "members": [0, 1],
            "margins": margins,
            "member_training_accuracy": accuracies,
        }

    tracks = {
        "DE from random": [at(0, [2.0, -1.0], [1.0, 0.9]), at(1, [4.0, 2.0], [1.0, 1.0])],
        "BB from random": [at(0, [1.0, -3.0], [1.0, 0.9]), at(1, [3.0, -1.0], [1.0, 0.99])],
    }
    assert paired_members.ratios(tracks, "random") == [[0.5], [0.75]]  # negative margins have no share
    assert paired_members.below_100(tracks) == {"BB from random": (1, 2)}
    assert paired_members.epochs_passed((10, 40), "random") == [0, 10, 50]
    assert paired_members.epochs_passed((10, 40), "DE") == [10, 50]


def test_paper_scale_of_the_bootstrap_goes_a_thousand_epochs_beyond(monkeypatch):
    module = experiment_named("bb-vs-de").load()
    assert sum(module.FURTHER["paper"]) == 1000
