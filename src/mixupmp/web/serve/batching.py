"""Concurrent requests answered together.

One thread computes. While it is at one batch, whatever arrives waits, and forms the next: alone, a request is answered
at once; in a crowd, the cost of calling the network is shared. Nobody is made to wait for company.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from mixupmp.web.serve.limits import Limits, busy

Answers = list[str | None]


@dataclass(eq=False)
class Waiting:
    """Rows of one request, and where their answers go."""

    inputs: Tensor
    answers: asyncio.Future[Answers]


class Batcher:
    """Takes rows from many requests and answers them in batches."""

    def __init__(
        self, answer: Callable[[Tensor], Answers], limits: Limits, observe: Callable[[int], None] = lambda rows: None
    ) -> None:
        self.answer, self.limits, self.observe = answer, limits, observe
        self.waiting: deque[Waiting] = deque()
        self.rows = 0  # that wait, or are being computed
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, "mixupmp-answers", torch.set_num_threads, (1,))
        self.worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Stop taking batches up. The server has drained its requests before."""
        if self.worker is not None:
            self.worker.cancel()
            await asyncio.gather(self.worker, return_exceptions=True)
        for request in self.waiting:
            request.answers.cancel()
        self.thread.shutdown(wait=True)

    async def answers(self, inputs: Tensor) -> Answers:
        """The answers to these rows; refused at once where too many wait, and later where it takes too long."""
        count = len(inputs)
        if self.rows + count > self.limits.waiting:
            raise busy(f"{self.rows} rows are waiting already. Try again in a moment.")
        request = Waiting(inputs, asyncio.get_running_loop().create_future())
        self.waiting.append(request)
        self.rows += count
        self.arrived.set()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await request.answers
        except TimeoutError:
            raise busy(
                f"There was no answer within {self.limits.seconds:g} seconds. Try again, or send less."
            ) from None
        finally:
            self.rows -= count

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.arrived.wait()
            batch = self._next()
            if not batch:
                self.arrived.clear()
                continue
            inputs = torch.cat([request.inputs for request in batch]) if len(batch) > 1 else batch[0].inputs
            self.observe(len(inputs))
            try:
                found = await loop.run_in_executor(self.thread, self.answer, inputs)
            except Exception as error:  # noqa: BLE001 - those who wait must hear of it, and the worker go on
                for request in batch:
                    if not request.answers.done():
                        request.answers.set_exception(error)
                continue
            done = 0
            for request in batch:
                following = done + len(request.inputs)
                if not request.answers.done():
                    request.answers.set_result(found[done:following])
                done = following

    def _next(self) -> list[Waiting]:
        """The requests to answer now: in their order, of one type, as many as fit."""
        batch: list[Waiting] = []
        rows = 0
        while self.waiting:
            request = self.waiting[0]
            if request.answers.done():  # nobody waits for it any more
                self.waiting.popleft()
                continue
            fits = rows + len(request.inputs) <= self.limits.batch or not batch
            if not fits or (batch and request.inputs.dtype != batch[0].inputs.dtype):
                break
            batch.append(self.waiting.popleft())
            rows += len(request.inputs)
        return batch
