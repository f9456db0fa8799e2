"""Workers that wait from one fit to the next: what they do is what a new one would do."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from runs import hashes

from mixupmp import Recipe, mixup_mp, plan_for
from mixupmp.core.plan import Plan
from mixupmp.train import environment
from mixupmp.train import pool as processes
from mixupmp.train.pool import NotPicklable
from mixupmp.train.run import fit
from mixupmp.train.vectorized import engine as vectorized
from small_data import small_table

SHORT = Recipe(epochs=2, batch_size=16, learning_rate=0.05)
KERNEL = "def kernel(inputs, generator):\n    return inputs * {}\n"


def plan(kernel: object) -> Plan:
    return plan_for(small_table(), mixup_mp(1.0, 1.0, 2, kernel=kernel), "mlp", SHORT)  # type: ignore[arg-type]


def weights(made: Plan, engine: str) -> torch.Tensor:
    posterior = fit(made, engine=engine)  # type: ignore[arg-type]
    return torch.cat([value.flatten() for network in posterior.networks for value in network.state_dict().values()])


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user's, to be edited."""
    path = tmp_path / "edited_kernel.py"
    path.write_text(KERNEL.format(1))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield path
    sys.modules.pop("edited_kernel", None)


def test_a_module_that_was_edited_is_not_used_as_it_was(module: Path) -> None:
    edited = importlib.import_module("edited_kernel")
    before = weights(plan(edited.kernel), "processes")
    later = max(worker.started for worker in processes._idle) + 5
    module.write_text(KERNEL.format(3))
    os.utime(module, (later, later))
    importlib.reload(edited)
    after = weights(plan(edited.kernel), "processes")
    assert not torch.equal(before, after)
    assert torch.equal(after, weights(plan(edited.kernel), "inline"))


def test_a_module_that_can_be_found_only_now_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights(plan(lambda inputs, generator: inputs), "processes")  # so that workers are waiting
    (tmp_path / "found_later.py").write_text(KERNEL.format(2))
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module("found_later")
    assert torch.equal(weights(plan(found.kernel), "processes"), weights(plan(found.kernel), "inline"))


def test_a_relative_folder_is_where_this_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(lambda inputs, generator: inputs)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        fit(made, engine="processes", run="run")
    assert len(hashes(tmp_path / "two" / "run")) == 2
    assert hashes(tmp_path / "one" / "run") == hashes(tmp_path / "two" / "run")


@pytest.fixture
def only_here(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that another process cannot import."""
    made = types.ModuleType("only_here")
    exec(KERNEL.format(2), made.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", made)
    return made


def test_a_plan_that_a_worker_cannot_read_is_named(only_here: types.ModuleType) -> None:
    with pytest.raises(NotPicklable, match=r"No module named 'only_here'.*'inline'"):
        fit(plan(only_here.kernel), engine="processes")


def test_a_plan_that_a_worker_cannot_read_is_trained_here(
    only_here: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = weights(plan(only_here.kernel), "vectorized")
    monkeypatch.setattr(vectorized, "WARM", 0.0)
    monkeypatch.setattr(vectorized, "COLD", 0.0)
    assert torch.equal(weights(plan(only_here.kernel), "vectorized"), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_settings_of_the_user_s_for_memory_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    worker = processes.Worker(1)
    try:
        file = Path(f"/proc/{worker.process.pid}/environ")
        while not (variables := file.read_bytes().split(b"\0"))[0]:  # empty while the process is starting
            time.sleep(0.01)
    finally:
        worker.close()
    assert b"MALLOC_TRIM_THRESHOLD_=131072" in variables


FIT = """
import own_network
from mixupmp import Recipe, deep_ensemble, plan_for
from mixupmp.train.run import fit
from small_data import small_table
recipe = Recipe(epochs=1, batch_size=16, learning_rate=0.05)
print(fit(plan_for(small_table(), deep_ensemble(2), own_network.build, recipe), engine={engine!r}).members)
"""
ENGINES = ("processes", pytest.param("ray", marks=pytest.mark.slow))


def run_python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Python in this folder, where the tests' modules can be found."""
    found = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(found)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder: a script, and a module of theirs that it imports."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "own_network.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(4, 3)\n")
    return folder


@pytest.mark.parametrize("engine", ENGINES)
def test_a_worker_imports_nothing_from_the_current_folder(project: Path, tmp_path: Path, engine: str) -> None:
    (project / "script.py").write_text(FIT.format(engine=engine))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("cloudpickle", "numpy", "torch", "socket", "traceback", "mixupmp", "own_network"):
        (elsewhere / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    done = run_python([str(project / "script.py")], elsewhere)
    assert not (tmp_path / "executed").exists()
    assert done.stdout == "2\n", done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_a_module_of_the_current_folder_is_found_where_the_parent_finds_it(project: Path, engine: str) -> None:
    done = run_python(["-c", FIT.format(engine=engine)], project)
    assert done.stdout == "2\n", done.stderr


def test_folders_of_installed_modules_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fit asks each waiting worker; .2 ms for each of some thousand loaded modules made that seconds."""
    calls = []
    paths = environment.sysconfig.get_paths
    monkeypatch.setattr(environment.sysconfig, "get_paths", lambda: calls.append(1) or paths())
    environment._installed.cache_clear()
    assert environment.last_edit() > 0
    assert len(calls) == 1
