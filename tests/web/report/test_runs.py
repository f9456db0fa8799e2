from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mixupmp import Posterior, Recipe, deep_ensemble, plan_for
from mixupmp.core.errors import BadRun
from mixupmp.core.rows import Dataset
from mixupmp.store.load import load
from mixupmp.train.run import fit
from mixupmp.web.report import evaluate, keep_evaluation, read_run, report_fits
from mixupmp.web.report.evaluation import DATA, RECORD

from .answers import picture_dataset


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, Posterior, Dataset]:
    dataset = picture_dataset()
    plan = plan_for(dataset, deep_ensemble(2), "mlp", Recipe(epochs=1))
    folder = tmp_path / "run"
    return folder, fit(plan, engine="inline", run=folder), dataset


def never(reason: str) -> Callable[[], Dataset]:
    def fail() -> Dataset:
        raise AssertionError(reason)

    return fail


def test_a_run_is_evaluated_once_and_its_folder_stays_sealed(run: tuple[Path, Posterior, Dataset]) -> None:
    folder, posterior, dataset = run
    first = read_run(folder, dataset)
    assert torch.equal(first.evaluation.members, posterior.member_probabilities(dataset.test.inputs))
    assert first.title == "Deep ensemble"
    assert len(first.summaries) == 2
    again = read_run(folder, never("what was kept must serve"))
    assert torch.equal(again.evaluation.members, first.evaluation.members)
    assert again.evaluation.fingerprint == dataset.test.fingerprint()
    row = int(first.evaluation.shown[0])
    kept_input = again.evaluation.input_of(row)
    assert kept_input is not None
    assert torch.equal(kept_input, dataset.test.inputs[row])
    load(folder)  # which refuses files that the manifest does not name


def test_what_was_kept_by_a_fit_is_found(run: tuple[Path, Posterior, Dataset]) -> None:
    folder, posterior, dataset = run
    keep_evaluation(folder, posterior, dataset)
    assert len(read_run(folder, never("it was kept")).evaluation.labels) == len(dataset.test)


def test_other_test_rows_or_more_shifts_are_worked_out_again(run: tuple[Path, Posterior, Dataset]) -> None:
    folder, _, dataset = run
    read_run(folder, dataset)
    fewer = Dataset(dataset.name, dataset.train, dataset.test.take(torch.arange(30)), dataset.classes)
    assert len(read_run(folder, fewer).evaluation.labels) == 30
    pytest.importorskip("cv2")
    shifted = read_run(folder, fewer, shifts=[("contrast", 5)])
    assert [(p.corruption, p.severity) for p in shifted.evaluation.shifts] == [("contrast", 5)]
    assert read_run(folder, never("shifts are kept"), shifts=[("contrast", 5)]).evaluation.shifts


@pytest.mark.parametrize("damage", ["flip", "remove", "other members"])
def test_what_was_kept_is_trusted_only_where_it_is_whole(run: tuple[Path, Posterior, Dataset], damage: str) -> None:
    folder, _, dataset = run
    whole = read_run(folder, dataset).evaluation
    if damage == "flip":
        content = bytearray((folder / DATA).read_bytes())
        content[-3] ^= 1
        (folder / DATA).write_bytes(bytes(content))
    elif damage == "remove":
        (folder / DATA).unlink()
    else:
        record = folder / RECORD
        record.write_text(record.read_text().replace('"members": [', '"members": ["0",'))
    assert torch.equal(read_run(folder, dataset).evaluation.members, whole.members)


def test_a_run_that_is_not_finished_says_how_to_go_on(run: tuple[Path, Posterior, Dataset]) -> None:
    folder, _, dataset = run
    for path in (folder / "members").iterdir():
        path.unlink()
    with pytest.raises(BadRun, match="--resume"):
        read_run(folder, dataset)


def test_evaluate_refuses_data_of_other_classes(run: tuple[Path, Posterior, Dataset]) -> None:
    _, posterior, _ = run
    with pytest.raises(ValueError, match="3 classes, the test data 4"):
        evaluate(posterior, picture_dataset(classes=("a", "b", "c", "d")))


def test_fits_in_memory_are_reported_by_the_names_they_are_given(tmp_path: Path) -> None:
    dataset = picture_dataset()
    plan = plan_for(dataset, deep_ensemble(2), "mlp", Recipe(epochs=1))
    posterior = fit(plan, engine="inline")
    page = report_fits([("NN", plan, posterior), ("DE", plan, posterior)], dataset, tmp_path / "demo.html").read_text()
    assert "NN and DE on made-up" in page
    assert "NN and DE cannot be told apart" in page or "DE and NN cannot be told apart" in page
