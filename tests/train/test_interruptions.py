"""Runs that are killed, stopped, locked, filled up and changed, in real processes with real signals."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import runs

from mixupmp import CheckpointInterval
from mixupmp.core.errors import BadRun
from mixupmp.store.folder import RunChanged, RunFolder
from mixupmp.store.lock import RunLocked
from mixupmp.train.run import fit


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The hashes of runs that nobody disturbed."""
    found = {}
    for kind in ("cnn", "mlp", "streamed"):
        folder = tmp_path_factory.mktemp("undisturbed") / kind
        engine = "vectorized" if kind == "mlp" else "inline"
        fit(runs.plan(kind), engine=engine, run=folder)
        found[kind] = runs.hashes(folder)
    return found


def go_on(folder: Path, kind: str, engine: str) -> None:
    """Resume until the run is finished."""
    process = runs.start(folder, kind, engine)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors


def kill_and_resume(folder: Path, kind: str, engine: str, delays: list[float]) -> None:
    for delay in delays:
        process = runs.start(folder, kind, engine)
        try:
            runs.wait_until_moving(process)
        except AssertionError:
            process.communicate()
            assert process.returncode == 0  # it was so near its end that it had no time to say so
            break
        time.sleep(delay)
        process.kill()
        process.communicate()
    go_on(folder, kind, engine)


WAYS = [
    ("cnn", "inline"),
    ("mlp", "vectorized"),
    ("mlp", "vectorized in processes"),
    ("cnn", "processes"),
    ("streamed", "inline"),
]


@pytest.mark.parametrize(("kind", "engine"), WAYS)
def test_a_run_killed_twice_ends_with_the_same_bits(
    kind: str, engine: str, tmp_path: Path, undisturbed: dict[str, dict[str, str]]
) -> None:
    kill_and_resume(tmp_path / "run", kind, engine, [0.05, 0.3])
    assert runs.hashes(tmp_path / "run") == undisturbed[kind]


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(20))
def test_a_run_killed_at_a_random_moment_ends_with_the_same_bits(
    attempt: int, tmp_path: Path, undisturbed: dict[str, dict[str, str]]
) -> None:
    chance = random.Random(attempt)
    kind, engine = chance.choice(WAYS)
    kill_and_resume(tmp_path / "run", kind, engine, [chance.uniform(0, 1.5) for _ in range(3)])
    assert runs.hashes(tmp_path / "run") == undisturbed[kind]


def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path, undisturbed: dict[str, dict[str, str]]) -> None:
    """What a kill during the write leaves: a temporary file, or, on a disk that lies, a checkpoint cut short."""
    folder = tmp_path / "run"
    process = runs.start(folder)
    runs.wait_until_moving(process)
    checkpoints = RunFolder(folder).checkpoints(0)
    while len(checkpoints.paths()) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    newest = checkpoints.paths()[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    (newest.parent / f".{newest.name}.tmp").write_bytes(b"half")
    go_on(folder, "cnn", "inline")
    assert runs.hashes(folder) == undisturbed["cnn"]


@pytest.mark.parametrize(("number", "engine"), [(signal.SIGINT, "inline"), (signal.SIGTERM, "processes")])
def test_a_signal_leaves_a_checkpoint_and_says_how_to_resume(number: int, engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = runs.start(folder, "long", engine)
    runs.wait_until_moving(process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"mixupmp fit --resume {folder}" in errors
    assert any(RunFolder(folder).checkpoints(member).steps() for member in range(2))


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    process = runs.start(tmp_path / "run", "long", "processes")
    runs.wait_until_moving(process)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    assert children
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(_alive(int(child)) for child in children):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.1)


def test_a_second_process_on_a_run_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = runs.start(folder, "long")
    runs.wait_until_moving(process)
    with pytest.raises(RunLocked, match=f"in use by process {process.pid}"):
        fit(runs.plan("long"), engine="inline", run=folder, resume=True)
    process.kill()
    process.communicate()
    with RunFolder(folder).locked():  # the kernel let go of the stale one
        pass


def test_of_two_processes_that_resume_a_run_at_once_one_is_refused_by_name(
    tmp_path: Path, undisturbed: dict[str, dict[str, str]]
) -> None:
    folder = tmp_path / "run"
    killed = runs.start(folder)
    runs.wait_until_moving(killed)
    killed.kill()
    killed.communicate()
    both = [runs.start(folder), runs.start(folder)]
    errors = {process.pid: process.communicate(timeout=240)[1] for process in both}
    finished = [process.pid for process in both if process.returncode == 0]
    refused = [process.pid for process in both if process.returncode != 0]
    assert finished, errors
    for pid in refused:  # none, where one had ended before the other began
        assert f"RunLocked: {folder} is in use by process {finished[0]} on " in errors[pid]
    assert runs.hashes(folder) == undisturbed["cnn"]


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    from dataclasses import replace

    plan = runs.plan("cnn")
    fit(plan, engine="inline", run=tmp_path / "run")
    changed = replace(plan, recipe=replace(plan.recipe, learning_rate=0.05), seed=7)
    with pytest.raises(RunChanged) as refused:
        fit(changed, engine="inline", run=tmp_path / "run", resume=True)
    assert "spec.recipe.learning_rate: was 0.02, is 0.05" in str(refused.value)
    assert "spec.seed: was 0, is 7" in str(refused.value)
    with pytest.raises(RunChanged, match="arithmetic"):
        fit(runs.plan("cnn"), engine="vectorized", run=tmp_path / "run", resume=True)
    other = replace(plan, train=plan.train.take(plan.train.labels.argsort()))  # type: ignore[union-attr]
    with pytest.raises(RunChanged, match=r"fingerprints\.sha256"):
        fit(other, engine="inline", run=tmp_path / "run", resume=True)
    fit(changed, engine="inline", run=tmp_path / "run", resume=True, override=True)


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    fit(runs.plan("cnn"), engine="inline", run=tmp_path / "run")
    before = runs.hashes(tmp_path / "run")
    with pytest.raises(BadRun, match="holds a run already"):
        fit(runs.plan("cnn"), engine="inline", run=tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(BadRun, match=r"thesis\.txt"):
        fit(runs.plan("cnn"), engine="inline", run=tmp_path / "mine")
    assert runs.hashes(tmp_path / "run") == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that holds two checkpoints of the small CNN, and no third."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=420k", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_named_and_the_last_checkpoint_stays_whole(
    small_disk: Path, tmp_path: Path, undisturbed: dict[str, dict[str, str]]
) -> None:
    folder = small_disk / "run"
    with pytest.raises(BadRun, match="No space left on device"):
        fit(runs.plan("cnn"), engine="inline", run=folder, checkpoints=CheckpointInterval(epochs=1))
    assert RunFolder(folder).checkpoints(0).steps() or list((folder / "members").glob("*.safetensors"))
    shutil.copytree(folder, tmp_path / "run")  # to a disk with room
    fit(runs.plan("cnn"), engine="inline", run=tmp_path / "run", resume=True)
    assert runs.hashes(tmp_path / "run") == undisturbed["cnn"]


def test_a_full_temporary_folder_is_named(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (small_disk / "ballast").write_bytes(bytes(425_000))
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with pytest.raises(BadRun, match=rf"{small_disk}.*could not be written for the worker processes.*set TMPDIR"):
        fit(runs.plan("cnn"), engine="processes")


def test_a_place_that_cannot_be_written_is_reported_before_training(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(BadRun, match="cannot be written to"):
        fit(runs.plan("long"), engine="inline", run=blocked / "run")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
