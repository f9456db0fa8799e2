"""Pieces and evaluations on several devices: each has its share at work, whatever they take."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mixupmp import single_network
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.paper import Wanted, worker
from mixupmp.paper.members import Cache
from mixupmp.paper.settings import setting_named
from mixupmp.paper.study import Study
from mixupmp.paper.worker import ELSEWHERE, fit_piece, run_on
from mixupmp.train.pool import Call
from mixupmp.train.progress import Callback

SETTING = setting_named("fmnist", "smoke")
SETTING = replace(SETTING, recipe=replace(SETTING.recipe, epochs=1))
DEVICES = ("cpu", "cpu:0")  # two names of one device, which stand for two GPUs
LAST = 7
PATIENCE = 60.0  # seconds


def at_work(callback: Callback, number: int, folder: Path, device: str) -> str:
    """Note the device and from when to when; the first one is at work until the last one has ended."""
    started = time.monotonic()
    while number == 0 and not (folder / f"{LAST}.json").exists() and time.monotonic() < started + PATIENCE:
        time.sleep(0.01)
    (folder / f"{number}.json").write_text(json.dumps([device, started, time.monotonic()]))
    return device


def call(number: int, folder: Path, device: str) -> Call:
    return Call(at_work, (number, folder, device), f"call {number}")


def most_at_once(folder: Path, device: str) -> int:
    """How many were at work on this device at a time."""
    notes = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    own = [(start, end) for name, start, end in notes if name == device]
    return max(sum(start <= other < end for start, end in own) for other, _ in own)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_device_has_no_more_than_its_share_at_work(workers: int, tmp_path: Path) -> None:
    found: dict[int, str] = {}
    run_on(DEVICES, workers, [partial(call, number, tmp_path) for number in range(LAST + 1)], found.__setitem__)
    assert sorted(found) == list(range(LAST + 1))
    assert set(found.values()) == set(DEVICES)
    assert most_at_once(tmp_path, "cpu") <= (workers + 1) // 2
    assert most_at_once(tmp_path, "cpu:0") <= workers // 2
    if workers == 2:
        assert [found[number] for number in range(LAST + 1)] == ["cpu", *["cpu:0"] * LAST]


def test_one_worker_uses_the_first_device(tmp_path: Path) -> None:
    found: dict[int, str] = {}
    run_on(DEVICES, 1, [partial(call, number, tmp_path) for number in (1, 2, 3)], found.__setitem__)
    assert set(found.values()) == {"cpu"}


def noted_fit(callback: Callback, plan: Plan, members: tuple[int, ...], engine: Any, folder: Path) -> str:
    """As `fit_piece`, with a note."""
    at_work(callback, plan.seed, folder.parents[2] / "trained", plan.device)
    return fit_piece(callback, plan, members, engine, folder)


@dataclass(frozen=True)
class Noting(Cache):
    """A cache with notes of where posteriors are put."""

    def posterior(self, wanted: Wanted, keep_collapsed: bool = False, device: str | None = None) -> Posterior | None:
        at_work(Callback(), wanted.plan.seed, self.path / "evaluated", str(device))
        return super().posterior(wanted, keep_collapsed, device)


@dataclass(frozen=True)
class Nothing:
    """An evaluator of nothing."""

    key: str = "nothing"

    def __call__(self, posterior: Posterior) -> dict[str, Any]:
        return {}


def test_members_are_trained_and_posteriors_evaluated_on_all_devices(
    study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "fit_piece", noted_fit)
    one = study(workers=2)
    one = replace(one, devices=DEVICES, cache=Noting(one.cache.path))
    for name in ("trained", "evaluated"):
        (one.cache.path / name).mkdir(parents=True)
    wanted = [Wanted(SETTING.plan(single_network(), seed)) for seed in range(LAST + 1)]
    one.train(wanted)
    assert [most_at_once(one.cache.path / "trained", device) for device in DEVICES] == [1, 1]
    found = one.evaluate([(each, Nothing()) for each in wanted])
    assert [each["seed"] for each in found] == list(range(LAST + 1))
    assert [most_at_once(one.cache.path / "evaluated", device) for device in DEVICES] == [1, 1]
    plain = replace(study(workers=1), cache=Cache(one.cache.path))
    assert plain.evaluate([(each, Nothing()) for each in wanted]) == found  # by the same keys


def test_what_another_process_trains_is_said_once_and_not_counted(
    study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def busy(callback: Callback, plan: Plan, *others: Any) -> str:
        tried.append(plan.seed)
        return ELSEWHERE if tried.count(0) < 4 and plan.seed == 0 else fit_piece(callback, plan, *others)

    monkeypatch.setattr(worker, "fit_piece", busy)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    said: list[str] = []
    replace(study(workers=1), say=said.append).train([Wanted(SETTING.plan(single_network(), seed)) for seed in (0, 1)])
    assert tried == [0, 1, 0, 0, 0]
    assert sum("Waiting for another process" in one for one in said) == 1
    assert [one.split("]")[0] for one in said if one.startswith("[")] == ["[1/1", "[2/2"]


def test_a_device_that_is_not_there_is_refused_before_anything_is_trained(study: Callable[..., Study]) -> None:
    one = replace(study(workers=2), devices=("cpu", "cuda:9"))
    with pytest.raises(InvalidArgument, match=r"device must be a device of this machine, .* got 'cuda:9'"):
        one.train([Wanted(SETTING.plan(single_network(), seed)) for seed in range(3)])
    assert not list(Path(one.cache.path).rglob("*.safetensors"))
