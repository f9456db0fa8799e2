"""Nothing is waited for without a word or without end, and nothing is left behind in the temporary folder."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from runs import hashes

from mixupmp import Recipe, deep_ensemble, plan_for
from mixupmp.core.plan import Plan
from mixupmp.store.folder import RunChanged, RunFolder
from mixupmp.store.lock import RunLocked
from mixupmp.train import job, pool
from mixupmp.train.job import FitInterrupted
from mixupmp.train.member import StopTraining
from mixupmp.train.processes import temporary_folder
from mixupmp.train.progress import Callback
from mixupmp.train.run import fit
from small_data import small_images, small_table

SHORT = Recipe(epochs=1, batch_size=16, learning_rate=0.05)


def stop_this_process(callback: Callback) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP")
def test_a_worker_that_was_stopped_is_named_and_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.3)
    monkeypatch.setattr(pool, "STOP_TIMEOUT", 1.0)
    workers: list[pool.Worker] = []

    def stop() -> bool:
        workers[:] = team
        return Path(f"/proc/{team[0].process.pid}/stat").read_text().split()[2] == "T"

    team = pool._team(1, 1)
    monkeypatch.setattr(pool, "_team", lambda *_: team)
    with caplog.at_level(logging.WARNING, "mixupmp"), pytest.raises(StopTraining):
        pool.run([pool.Call(stop_this_process, (), "member 7")], workers=1, stop=stop)
    assert f"waiting for worker process {workers[0].process.pid} (member 7)" in caplog.text
    assert "is killed" in caplog.text
    assert workers[0].process.poll() == -signal.SIGKILL


HOLDER = """
import sys, os, signal
from mixupmp.store.folder import RunFolder
with RunFolder(sys.argv[1]).member_locked(0):
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP")
def test_a_stopped_orphan_is_named_and_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job, "ORPHAN_TIMEOUT", 1.5)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    (tmp_path / "run").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as orphan:
        try:
            assert orphan.stdout is not None
            assert orphan.stdout.readline() == "held\n"
            started = time.monotonic()
            with caplog.at_level(logging.WARNING, "mixupmp"), pytest.raises(RunLocked, match=f"process {orphan.pid} "):
                job.fit_member(job.Job(table_plan(), (0,), RunFolder(tmp_path / "run")), 0)
            assert time.monotonic() - started < 10
            assert f"process {orphan.pid} on" in caplog.text
        finally:
            orphan.kill()


def table_plan() -> Plan:
    return plan_for(small_table(), deep_ensemble(2), "mlp", SHORT)


def leftovers() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("mixupmp-*")}


def test_temporary_folders_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = socket.gethostname()
    dead, alive, other = f"mixupmp-{host}-{ended.pid}-a", f"mixupmp-{host}-{os.getppid()}-b", "mixupmp-elsewhere-1-c"
    for name in (dead, alive, other):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inputs.npy").touch()
    with temporary_folder() as folder:
        assert folder.name.startswith(f"mixupmp-{host}-{os.getpid()}-")
        assert leftovers() == {alive, other, folder.name}
    assert leftovers() == {alive, other}


class StopsAtOnce(Callback):
    def should_stop(self) -> bool:
        return True


def test_a_callback_can_stop_a_fit(tmp_path: Path) -> None:
    plan = plan_for(small_images(), deep_ensemble(1), "cnn", SHORT)
    with pytest.raises(FitInterrupted, match=r"stopped by a callback; the work so far is kept.*--resume"):
        fit(plan, engine="inline", run=tmp_path / "run", progress=StopsAtOnce())
    assert RunFolder(tmp_path / "run").checkpoints(0).steps() == [1]
    with pytest.raises(FitInterrupted, match="nothing is kept"):
        fit(plan, engine="inline", progress=StopsAtOnce())
    fit(plan, engine="inline", run=tmp_path / "run", resume=True)
    fit(plan, engine="inline", run=tmp_path / "other")
    assert hashes(tmp_path / "run") == hashes(tmp_path / "other")


@pytest.mark.parametrize("key", ["capability", "device"])
def test_a_run_is_not_resumed_where_bits_would_be_others(tmp_path: Path, key: str) -> None:
    plan = plan_for(small_images(), deep_ensemble(2), "cnn", SHORT)
    fit(plan, engine="inline", run=tmp_path, members=(0,))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["machine"]["capability"] == torch.backends.cpu.get_cpu_capability()
    config["machine"][key] = "something else"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        RunChanged, match=rf"rounds differently.*\n  machine\.{key}: was 'something else', is .*\n.*--over"
    ):
        fit(plan, engine="inline", run=tmp_path, resume=True)
    fit(plan, engine="inline", run=tmp_path, resume=True, members=(0,))  # it is finished: nothing is computed
    assert fit(plan, engine="inline", run=tmp_path, resume=True, override=True).members == 2
