"""Folders made by somebody who wants files of ours overwritten, deleted, read, or waited for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from mixupmp import CheckpointInterval, Recipe, deep_ensemble, plan_for
from mixupmp.core.errors import BadRun, InvalidArgument
from mixupmp.core.files import Directory
from mixupmp.core.foreign import Foreign
from mixupmp.core.plan import Plan
from mixupmp.store.folder import RunFolder
from mixupmp.store.record import read_record
from mixupmp.train.job import FitInterrupted
from mixupmp.train.progress import Callback
from mixupmp.train.run import fit
from small_data import small_table


def small_plan() -> Plan:
    return plan_for(small_table(), deep_ensemble(2), "mlp", Recipe(epochs=2, learning_rate=0.05))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of which one member is still to be trained."""
    run = tmp_path / "run"
    fit(small_plan(), engine="inline", run=run, members=[0])
    return run


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A directory of the user's that nobody may touch."""
    directory = tmp_path / "precious"
    directory.mkdir()
    (directory / "thesis.txt").write_text("words")
    (directory / "000000000001-0123456789abcdef.safetensors").write_text("data")
    return directory


class StopAtEpoch(Callback):
    """Stops a fit after its first epoch."""

    ended = False

    def on_epoch_end(self, record: dict[str, Any]) -> None:
        self.ended = True

    def should_stop(self) -> bool:
        return self.ended


def resume(folder: Path) -> None:
    fit(small_plan(), engine="inline", run=folder, resume=True, checkpoints=CheckpointInterval(epochs=1))


def content_of(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_a_lock_that_is_a_link_leaves_its_target_alone(folder: Path, precious: Path) -> None:
    (folder / "lock").unlink()
    for make in (os.symlink, os.link):
        make(precious / "thesis.txt", folder / "lock")
        with pytest.raises(BadRun, match="lock is a link"):
            resume(folder)
        (folder / "lock").unlink()
    assert (precious / "thesis.txt").read_text() == "words"


@pytest.mark.parametrize("name", ["checkpoints/001", "checkpoints/000", "checkpoints", "members"])
def test_a_directory_that_is_a_link_leaves_its_target_alone(folder: Path, precious: Path, name: str) -> None:
    before = content_of(precious)
    if (folder / name).is_dir():
        (folder / name).rename(folder.parent / "aside")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(precious)
    if name == "checkpoints/000":
        (folder / "members" / "000.json").unlink()  # to be trained again: its checkpoints are removed at the end
    with pytest.raises(BadRun, match=f"{name} is a link"):
        resume(folder)
    assert content_of(precious) == before


FILES = ["config.json", "members/000.json", "members/000.safetensors", "lock", "checkpoints/001.lock"]
CHECKPOINT = f"checkpoints/001/000000000002-{'0' * 16}.safetensors"


@pytest.mark.parametrize("name", [*FILES, CHECKPOINT, "evaluations.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir])
def test_pipes_devices_and_directories_are_refused_and_not_waited_for(
    folder: Path, name: str, make: Callable[[Path], None]
) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(BadRun, match=f"{path.name} is (not a plain file|a link)"):
        resume(folder)


def test_finished_members_are_read_before_others_are_trained(folder: Path) -> None:
    (folder / "members/000.safetensors").unlink()
    (folder / "members/000.safetensors").symlink_to("/dev/zero")
    callback = StopAtEpoch()
    with pytest.raises(BadRun, match=r"000\.safetensors is a link"):
        fit(small_plan(), engine="inline", run=folder, resume=True, progress=callback)
    assert not callback.ended


def test_a_link_is_refused_where_there_are_no_directory_descriptors(
    folder: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows: paths are checked before they are used."""
    monkeypatch.setattr("mixupmp.core.files._HAS_DIR_FD", False)
    monkeypatch.setattr("mixupmp.core.files._NOFOLLOW", 0)
    monkeypatch.setattr("mixupmp.core.files._FLAGS", 0)
    before = content_of(precious)
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / "001").symlink_to(precious)
    with pytest.raises(BadRun, match="001 is a link"):
        resume(folder)
    (folder / "checkpoints" / "001").unlink()
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(precious / "thesis.txt")
    with pytest.raises(BadRun, match="lock is a link"):
        resume(folder)
    (folder / "lock").unlink()
    resume(folder)
    assert content_of(precious) == before
    assert Directory(folder).entries("members") == ["000.json", "000.safetensors", "001.json", "001.safetensors"]


@pytest.mark.parametrize(
    "change",
    [
        {"surprise": 1},
        {"history": None},
        {"history": [1]},
        {"steps": "many"},
        {"diverged_at": -1},
        {"seconds": []},
        {"sha256": 3},
    ],
)
def test_a_members_summary_with_odd_content_is_refused(folder: Path, change: dict[str, object]) -> None:
    path = folder / "members" / "000.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BadRun, match=r"000\.json is"):
        resume(folder)
    path.write_text(json.dumps([]))
    with pytest.raises(BadRun, match=r"000\.json is not a member's summary"):
        resume(folder)


@pytest.mark.parametrize(
    "line", ["{", "[]", "3", '{"on": 1, "metrics": {}}', '{"on": "a", "metrics": {"acc": "x"}}', "\xff"]
)
def test_odd_evaluations_are_refused(folder: Path, line: str) -> None:
    (folder / "evaluations.jsonl").write_bytes(line.encode("latin-1"))
    with pytest.raises(BadRun, match=r"evaluations\.jsonl is damaged"):
        resume(folder)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        *((key, [1], "an object") for key in ("spec", "fingerprints", "versions", "machine")),
        *(("wanted", value, "a whole number") for value in ("x", float("nan"), True)),
        *(("notes", value, "a list") for value in (5, {"a": "b"})),
    ],
)
def test_parts_of_the_configuration_have_their_kinds(folder: Path, key: str, value: object, kind: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(BadRun, match=rf"config\.json is damaged: '{key}' must be {kind}"):
        RunFolder(folder).config()


@pytest.mark.parametrize(("key", "value"), [("rows", [1]), ("rows", "9"), ("sha256", {"a": 1}), ("sha256", 7)])
def test_a_record_of_odd_training_rows_is_refused(folder: Path, key: str, value: object) -> None:
    config = RunFolder(folder).config()
    with pytest.raises(InvalidArgument, match=f"fingerprints.{key}"):
        read_record(config | {"fingerprints": {key: value}})


@pytest.mark.parametrize("path", [[], {"a": 1}, 7])
def test_a_network_whose_path_is_no_text_is_not_one_of_ours(folder: Path, path: object) -> None:
    config = RunFolder(folder).config()
    config["spec"]["network"]["path"] = path
    assert isinstance(read_record(config).network, Foreign)


@pytest.mark.parametrize("key", ["method", "network", "task", "seed"])
def test_a_configuration_without_a_part_of_its_fit_is_refused(folder: Path, key: str) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["spec"][key]
    path.write_text(json.dumps(config))
    with pytest.raises(BadRun, match=rf"config\.json is damaged: its spec lacks {key}"):
        RunFolder(folder).config()


def test_a_checkpoint_with_the_right_name_and_wrong_content_is_skipped(folder: Path) -> None:
    for content in (b"nothing", save({"a": torch.zeros(2)})[:-3]):
        name = f"000000000002-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
        RunFolder(folder).files.write(f"checkpoints/001/{name}", content)
    assert RunFolder(folder).checkpoints(1).read() is None
    resume(folder)


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
@pytest.mark.parametrize("content", [{}, {"fit": "{}"}, {"fit": "[1"}])
def test_a_run_with_a_checkpoint_of_something_else_is_not_resumed(
    tmp_path: Path, engine: Any, content: dict[str, str]
) -> None:
    run = tmp_path / "run"
    fit(small_plan(), engine=engine, run=run, members=[0])
    RunFolder(run).checkpoints(1).write(2, {"a": torch.zeros(2)}, content)
    with pytest.raises(BadRun, match="checkpoints/001 holds a checkpoint of something else"):
        fit(small_plan(), engine=engine, run=run, resume=True)


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
@pytest.mark.parametrize(
    "change",
    [
        {"step": "3"},
        {"step": -1},
        {"step": 10**9},
        {"seconds": None},
        {"seconds": float("nan")},
        {"history": {}},
        {"history": [{"epoch": "x"}]},
        {"text": []},
        {"tensor": "optimizer/0/momentum_buffer"},
        {"renamed": "optimizer/0/momentum_buffer"},
    ],
)
def test_a_checkpoint_with_an_impossible_state_is_refused(
    tmp_path: Path, engine: Any, change: dict[str, object]
) -> None:
    """The fused optimizer would read beyond a buffer that is smaller than its weights."""
    run, kept = RunFolder(tmp_path / "run"), CheckpointInterval(epochs=1)
    plan = plan_for(small_table(), deep_ensemble(2), "mlp", Recipe(epochs=3, learning_rate=0.05))
    fit(plan, engine=engine, run=run.path, members=[0])
    with pytest.raises(FitInterrupted):
        fit(plan, engine=engine, run=run.path, members=[1], resume=True, checkpoints=kept, progress=StopAtEpoch())
    found = run.checkpoints(1).read()
    assert found is not None
    tensors, text = found
    if name := change.get("tensor"):
        assert name in tensors
        tensors[str(name)] = torch.zeros(1)
    elif name := change.get("renamed"):
        tensors["optimizer/0/exp_avg"] = tensors.pop(str(name))
    else:
        text["fit"] = json.dumps(change.get("text", json.loads(text["fit"]) | change))
    run.checkpoints(1).remove()
    run.checkpoints(1).write(2, tensors, text)
    with pytest.raises(BadRun, match="checkpoints/001 holds a checkpoint of something else"):
        fit(plan, engine=engine, run=run.path, resume=True)


def test_a_whole_checkpoint_of_something_else_is_named(folder: Path) -> None:
    checkpoints = RunFolder(folder).checkpoints(1)
    checkpoints.write(2, {"a": torch.zeros(2)}, {})
    with pytest.raises(BadRun, match="checkpoints/001 holds a checkpoint of something else"), checkpoints.restoring():
        raise KeyError("network/1.weight")
