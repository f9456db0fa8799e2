from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from mixupmp import Posterior, PosteriorClassifier, Recipe, deep_ensemble, plan_for
from mixupmp.core.errors import BadRun
from mixupmp.core.rows import Dataset
from mixupmp.decide.calibrators import Temperature
from mixupmp.store.folder import EVALUATION
from mixupmp.store.load import load
from mixupmp.store.manifest import write_manifest
from mixupmp.train.run import fit
from mixupmp.web.report import evaluate, keep_evaluation, read_run, report_fits
from mixupmp.web.report.evaluation import keep
from mixupmp.web.report.statistics import compute_metrics

from .answers import picture_dataset


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, Posterior, Dataset]:
    dataset = picture_dataset()
    plan = plan_for(dataset, deep_ensemble(2), "mlp", Recipe(epochs=1))
    folder = tmp_path / "run"
    return folder, fit(plan, engine="inline", run=folder), dataset


def never(reason: str) -> Callable[[Posterior], Dataset]:
    def fail(_: Posterior) -> Dataset:
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


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_evaluation_is_refused_by_name(run: tuple[Path, Posterior, Dataset], damage: str) -> None:
    folder, _, dataset = run
    read_run(folder, dataset)
    if damage == "flip":
        content = bytearray((folder / EVALUATION).read_bytes())
        content[-3] ^= 1
        (folder / EVALUATION).write_bytes(bytes(content))
    else:
        (folder / EVALUATION).unlink()
    with pytest.raises(BadRun, match=EVALUATION):
        read_run(folder, dataset)


def test_an_evaluation_of_other_members_is_computed_again(run: tuple[Path, Posterior, Dataset]) -> None:
    folder, _, dataset = run
    right = read_run(folder, dataset).evaluation
    wrong = replace(right, members=torch.full_like(right.members, 1 / 3))
    keep(wrong, folder, ["0" * 64, "1" * 64])
    assert torch.equal(read_run(folder, dataset).evaluation.members, right.members)


def test_an_evaluation_that_is_not_sealed_is_never_believed(run: tuple[Path, Posterior, Dataset]) -> None:
    """Whoever hands over a folder could have written any numbers, or a pipe that nobody writes to."""
    folder, posterior, dataset = run
    hashes = [json.loads(path.read_text())["sha256"] for path in sorted((folder / "members").glob("*.json"))]
    forged = evaluate(posterior, dataset)
    forged = replace(forged, members=torch.nn.functional.one_hot(forged.labels, 3).float().expand(2, -1, -1))
    tensors = {name: getattr(forged, name).contiguous() for name in ("members", "labels", "shown", "inputs")}
    record = {
        "format": 1,
        "dataset": forged.dataset,
        "classes": forged.classes,
        "fingerprint": forged.fingerprint,
        "members": hashes,
        "shifts": [],
    }
    content = save(tensors)
    (folder / ".evaluation.safetensors").write_bytes(content)
    (folder / ".evaluation.json").write_text(json.dumps(record | {"sha256": hashlib.sha256(content).hexdigest()}))
    honest = posterior.member_probabilities(dataset.test.inputs)
    assert torch.equal(read_run(folder, dataset).evaluation.members, honest)

    resealed = json.loads((folder / "manifest.json").read_text())
    (folder / EVALUATION).write_bytes(save(tensors, {"record": json.dumps(record | {"format": 2})}))
    with pytest.raises(BadRun, match=EVALUATION):
        read_run(folder, dataset)
    (folder / EVALUATION).unlink()
    resealed.pop(EVALUATION, None)
    (folder / "manifest.json").write_text(json.dumps(resealed))
    os.mkfifo(folder / EVALUATION)
    with pytest.raises(BadRun, match=EVALUATION):
        read_run(folder, dataset)


def test_a_pipe_under_the_name_of_an_evaluation_is_refused_and_not_waited_for(
    run: tuple[Path, Posterior, Dataset],
) -> None:
    folder, _, dataset = run
    os.mkfifo(folder / ".evaluation.json")
    os.symlink("/dev/zero", folder / ".evaluation.safetensors")
    read_run(folder, dataset)
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        (folder / EVALUATION).unlink()
        make(folder / EVALUATION)
        with pytest.raises(BadRun, match=r"is not a plain file|is a link"):
            read_run(folder, dataset)


@pytest.mark.parametrize(
    "history", [[{"epoch": "one", "loss": 1.0}], [{"loss": 1.0}], ["odd"], [{"epoch": 1, "loss": []}]]
)
def test_an_odd_history_is_refused_by_name(run: tuple[Path, Posterior, Dataset], history: list[object]) -> None:
    folder, _, dataset = run
    path = folder / "members" / "000.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"history": history}))
    write_manifest(folder)
    with pytest.raises(BadRun, match=r"000\.json is damaged"):
        read_run(folder, dataset)


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
    page = report_fits([("NN", posterior, None), ("DE", posterior, None)], dataset, tmp_path / "demo.html").read_text()
    assert "NN and DE on made-up" in page
    assert "NN and DE do not differ clearly" in page or "DE and NN do not differ clearly" in page


def test_what_a_report_shows_is_calibrated_and_what_it_was_before_stands_below(tmp_path: Path) -> None:
    dataset = picture_dataset()
    posterior = fit(plan_for(dataset, deep_ensemble(2), "mlp", Recipe(epochs=1)), engine="inline")
    raw = evaluate(posterior, dataset, [("contrast", 5)])
    scaled = evaluate(posterior, dataset, [("contrast", 5)], Temperature(0.5))
    squares = raw.members.double().mean(0).square()
    assert torch.allclose(scaled.probabilities, squares / squares.sum(1, keepdim=True), atol=1e-7)
    assert scaled.shifts[0].scores["nll"] != raw.shifts[0].scores["nll"]
    metrics, before = compute_metrics(scaled), compute_metrics(raw)
    assert before.raw is None
    assert metrics.raw is not None
    assert metrics.raw["nll"] == pytest.approx(before.value("nll"))
    assert metrics.value("nll") == pytest.approx(
        -float(scaled.probabilities.log().gather(1, raw.labels[:, None]).mean())
    )
    assert metrics.value("mutual_information") == pytest.approx(before.value("mutual_information"))
    page = report_fits([("DE", posterior, Temperature(0.5))], dataset, tmp_path / "page.html").read_text()
    assert "DE, before calibration" in page


def test_a_saved_estimator_is_reported_with_its_calibrator(tmp_path: Path) -> None:
    dataset = picture_dataset()
    classifier = PosteriorClassifier("deep-ensemble", network="mlp", recipe=Recipe(epochs=1), random_state=0)
    classifier.fit(dataset.train.inputs, dataset.train.labels)
    classifier.calibrator_ = Temperature(2.0)
    classifier.save(tmp_path / "model")
    found = read_run(tmp_path / "model", dataset).evaluation
    expected = torch.from_numpy(classifier.predict_proba(dataset.test.inputs))
    assert torch.allclose(found.probabilities, expected, atol=1e-6)
