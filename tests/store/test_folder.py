"""Run folders in each state that a kill can leave, and their locks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mixupmp import Recipe, deep_ensemble, load, plan_for
from mixupmp.core.errors import BadRun
from mixupmp.core.files import Directory
from mixupmp.store import manifest
from mixupmp.store.folder import RunFolder
from mixupmp.store.lock import RunLocked, locked
from mixupmp.train.run import fit
from small_data import small_table

FIRST_WRITE = """
import os, signal, sys
sys.path.insert(0, {tests!r})
moment, original = {moment!r}, getattr(os, {moment!r})
def killed(*given, **named):
    frame, names = sys._getframe(), ""
    while frame:
        names += frame.f_code.co_name + " "
        frame = frame.f_back
    if "create" in names and "write_json" in names:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*given, **named)
setattr(os, moment, killed)
from test_folder import start
start({folder!r})
"""


def start(folder: str | Path, resume: bool = False) -> None:
    plan = plan_for(small_table(), deep_ensemble(2), "mlp", Recipe(epochs=1, learning_rate=0.05))
    fit(plan, engine="inline", run=folder, resume=resume)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_while_the_configuration_is_first_written_leaves_a_folder_that_starts(
    tmp_path: Path, moment: str, resume: bool
) -> None:
    folder, tests = tmp_path / "run", Path(__file__).parent
    script = f"import sys; sys.path.insert(0, {str(tests.parent)!r})\n" + FIRST_WRITE.format(
        tests=str(tests), moment=moment, folder=str(folder)
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert process.returncode == -signal.SIGKILL, process.stderr
    left = sorted(path.name for path in folder.iterdir())
    assert "lock" in left
    assert any(name.startswith(".config.json.") for name in left)
    with pytest.raises(BadRun, match="holds no run yet"):
        RunFolder(folder).config()
    start(folder, resume)
    assert load(folder).members == 2
    assert not list(folder.rglob(".*"))


def test_a_folder_with_anything_else_in_it_is_not_new(tmp_path: Path) -> None:
    (tmp_path / "members").mkdir()
    assert RunFolder(tmp_path).is_unused()
    (tmp_path / ".notes.tmp").write_text("mine")
    with pytest.raises(BadRun, match=r"is not empty \(\.notes\.tmp, members\)"):
        start(tmp_path)


@pytest.mark.parametrize("stop", range(1, 8))
def test_an_interrupted_evaluation_leaves_a_run_that_loads(
    tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and manifest change as one: at whichever rename the process dies, the run can be read and changed again."""
    folder = RunFolder(tmp_path / "run")
    start(folder.path)
    folder.add_evaluation("test rows", {"acc": 0.5})
    renames, replace = 0, os.replace

    def dying(*given: object, **named: object) -> None:
        nonlocal renames
        renames += 1
        if renames >= stop:
            raise KeyboardInterrupt
        replace(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", dying)
    if stop <= 4:
        with pytest.raises(KeyboardInterrupt):
            folder.add_evaluation("test rows", {"acc": 0.75})
    monkeypatch.undo()
    load(folder.path)
    folder.add_evaluation("test rows", {"acc": 1.0})
    assert folder.evaluations() == [{"on": "test rows", "metrics": {"acc": 1.0}}]
    load(folder.path)
    assert not (folder.path / manifest._PENDING).exists()


def test_damage_is_not_sealed_in_by_an_evaluation(tmp_path: Path) -> None:
    start(tmp_path / "run")
    weights = tmp_path / "run" / "members" / "000.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    RunFolder(tmp_path / "run").add_evaluation("test rows", {"acc": 0.5})
    with pytest.raises(BadRun, match=r"000\.safetensors is damaged"):
        load(tmp_path / "run")


HOLD = """
import sys, time
from mixupmp.store.folder import RunFolder
with RunFolder(sys.argv[1]).member_locked(0):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_wait_names_the_holder_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    run, heard = RunFolder(tmp_path), threading.Event()
    names: list[str] = []

    def on_wait(name: str) -> None:
        names.append(name)
        heard.set()

    with pytest.raises(RunLocked, match=f"process {holder.pid} on "), run.member_locked(0, timeout=0.2):
        pass
    with run.member_locked(1, timeout=0):  # another member is free
        pass
    threading.Thread(target=lambda: heard.wait(30) and holder.kill(), daemon=True).start()
    started = time.monotonic()
    with run.member_locked(0, on_wait=on_wait):
        assert time.monotonic() - started > 0.9
    holder.wait()
    holder.stdout.close()
    assert names == [f"process {holder.pid} on {os.uname().nodename}"]


@pytest.mark.parametrize("operation", ["mkdir", "open", "ftruncate", "write", "fsync", "replace", "unlink", "rmdir"])
def test_a_disk_that_fails_is_named_whatever_was_to_be_done(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only where content is written: also at locks, where files are renamed, and where they are removed."""
    folder = tmp_path / "run"
    folder.mkdir()

    def failing(path: object, *arguments: object, **options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def failing_to_create(path: str, flags: int, *arguments: int, **options: int) -> int:
        return failing(path) if flags & os.O_CREAT else plain_open(path, flags, *arguments, **options)  # type: ignore[return-value, func-returns-value]

    plain_open = os.open
    monkeypatch.setattr("mixupmp.train.run.check_writable", lambda path: None)  # it would be refused there
    monkeypatch.setattr(os, operation, failing_to_create if operation == "open" else failing)
    with pytest.raises(BadRun, match=rf"{folder}.*could not be (written|removed): Input/output error.*resume"):
        start(folder)
    monkeypatch.undo()
    start(folder, resume=True)
    assert load(folder).members == 2


@pytest.mark.skipif(sys.platform == "win32", reason="takes away what is not there")
def test_without_fcntl_and_directory_descriptors_a_fit_is_resumed_saved_and_loaded(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("without_posix.py")), str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert process.stdout.strip() == "resumed and loaded", process.stderr


def test_where_the_system_has_no_locks_two_holders_still_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(descriptor: int, blocking: bool) -> bool:
        raise OSError(38, "no locks")

    monkeypatch.setattr("filelock.lock_descriptor", missing)
    with locked(Directory(tmp_path), "lock"), pytest.raises(RunLocked), locked(Directory(tmp_path), "lock"):
        pass
    with locked(Directory(tmp_path), "lock"):
        pass
