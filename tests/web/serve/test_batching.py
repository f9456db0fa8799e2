from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fastapi import HTTPException
from torch import Tensor

from mixupmp.web.serve.batching import Batcher
from mixupmp.web.serve.schemas import Limits


def echo(inputs: Tensor) -> list[str | None]:
    return [str(float(row.sum())) for row in inputs]


def run(
    scenario: Callable[[Batcher[str | None]], Any], answer: Callable[[Tensor], Any] = echo, limits: Limits | None = None
) -> Any:
    sizes: list[int] = []

    async def whole() -> Any:
        batcher = Batcher(answer, limits or Limits(), sizes.append)
        batcher.start()
        try:
            return await scenario(batcher), sizes, batcher
        finally:
            await batcher.close()

    return asyncio.run(whole())


def rows(value: float, count: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full((count, 2), value).to(dtype)


def test_everyone_gets_their_own_answers_and_crowds_share_batches() -> None:
    async def crowd(batcher: Batcher) -> list[Any]:
        return await asyncio.gather(*(batcher.results(rows(k, 1 + k % 3)) for k in range(60)))

    answers, sizes, batcher = run(crowd, limits=Limits(batch=32))
    assert answers == [[str(2.0 * k)] * (1 + k % 3) for k in range(60)]
    assert len(sizes) < 12
    assert max(sizes) <= 32
    assert batcher.rows == 0


def test_types_are_not_mixed() -> None:
    kinds: list[torch.dtype] = []

    def noting(inputs: Tensor) -> list[str | None]:
        kinds.append(inputs.dtype)
        return echo(inputs)

    async def both(batcher: Batcher) -> list[Any]:
        mixed = [rows(1, dtype=torch.uint8 if k % 2 else torch.float32) for k in range(6)]
        return await asyncio.gather(*map(batcher.results, mixed))

    answers, _, _ = run(both, noting)
    assert answers == [["2.0"]] * 6
    assert set(kinds) == {torch.uint8, torch.float32}


def test_a_full_waiting_room_and_a_late_answer_are_told_as_busy() -> None:
    gate = threading.Event()

    def slow(inputs: Tensor) -> list[str | None]:
        gate.wait(10)
        return echo(inputs)

    async def crowd(batcher: Batcher) -> list[Any]:
        answers = asyncio.gather(*(batcher.results(rows(k)) for k in range(30)), return_exceptions=True)
        found = await answers
        gate.set()
        return found

    limits = Limits(rows=8, waiting=20, seconds=0.2)
    found, _, batcher = run(crowd, slow, limits)
    assert all(isinstance(one, HTTPException) and one.status_code == 503 for one in found)
    assert sum("waiting already" in str(one) for one in found) == 10
    assert batcher.rows == 0


def test_one_failure_does_not_end_the_work() -> None:
    def touchy(inputs: Tensor) -> list[str | None]:
        if float(inputs.max()) > 5:
            raise RuntimeError("no")
        return echo(inputs)

    async def scenario(batcher: Batcher) -> Any:
        with pytest.raises(RuntimeError):
            await batcher.results(rows(9))
        return await batcher.results(rows(1))

    assert run(scenario, touchy)[0] == ["2.0"]


def test_those_who_left_are_not_computed() -> None:
    async def scenario(batcher: Batcher) -> Any:
        gone = asyncio.create_task(batcher.results(rows(1)))
        await asyncio.sleep(0)
        gone.cancel()
        return await batcher.results(rows(2))

    answers, sizes, batcher = run(scenario)
    assert answers == ["4.0"]
    assert batcher.rows == 0
    assert sum(sizes) <= 2
