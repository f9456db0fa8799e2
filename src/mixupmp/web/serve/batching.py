"""Concurrent requests computed together.

One thread computes. Requests that arrive while it computes a batch form the next one: a single request is computed at
once, and many share the cost of calling the networks. No request waits for others to arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from fastapi import HTTPException
from torch import Tensor

from mixupmp.core.errors import MixupMPError
from mixupmp.web.serve.schemas import Limits

Result = TypeVar("Result")


@dataclass(eq=False)
class QueuedRequest(Generic[Result]):
    """The rows of one request, and the future of their results."""

    inputs: Tensor
    results: asyncio.Future[Sequence[Result]]


class Batcher(Generic[Result]):
    """Queues the rows of concurrent requests and computes them in batches.

    Parameters
    ----------
    compute
        From a batch of rows to one result for each.
    limits
        Of the queue, a batch and a request's seconds.
    observe
        Called with the size of each batch.
    """

    def __init__(
        self,
        compute: Callable[[Tensor], Sequence[Result]],
        limits: Limits,
        observe: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self.compute, self.limits, self.observe = compute, limits, observe
        self.queue: deque[QueuedRequest[Result]] = deque()
        self.rows = 0  # queued, or being computed
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, "mixupmp-predict", torch.set_num_threads, (1,))
        self.worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Compute no further batch. The server has answered its requests before."""
        if self.worker is not None:
            self.worker.cancel()
            await asyncio.gather(self.worker, return_exceptions=True)
        for request in self.queue:
            request.results.cancel()
        self.thread.shutdown(wait=True)

    async def results(self, inputs: Tensor) -> Sequence[Result]:
        """The results of these rows; status 503 where the queue is full, or after `limits.seconds`."""
        count = len(inputs)
        if self.rows + count > self.limits.waiting:
            raise busy(f"{self.rows} rows are waiting already. Try again in a moment.")
        request: QueuedRequest[Result] = QueuedRequest(inputs, asyncio.get_running_loop().create_future())
        self.queue.append(request)
        self.rows += count
        self.arrived.set()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await request.results
        except TimeoutError:
            raise busy(f"No answer within {self.limits.seconds:g} seconds. Try again, or send fewer rows.") from None
        finally:
            self.rows -= count

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.arrived.wait()
            batch = self._next_batch()
            if not batch:
                self.arrived.clear()
                continue
            inputs = torch.cat([request.inputs for request in batch]) if len(batch) > 1 else batch[0].inputs
            self.observe(len(inputs))
            try:
                found = await loop.run_in_executor(self.thread, self.compute, inputs)
            except Exception as error:  # noqa: BLE001 - the requests get it, and the worker goes on
                await self._one_by_one(batch, error)
                continue
            first = 0
            for request in batch:
                last = first + len(request.inputs)
                if not request.results.done():
                    request.results.set_result(found[first:last])
                first = last

    async def _one_by_one(self, batch: list[QueuedRequest[Result]], error: Exception) -> None:
        """A request that cannot be computed, as one with an unknown token, must not fail those it came with."""
        loop = asyncio.get_running_loop()
        for request in batch:
            if request.results.done():
                continue
            if len(batch) == 1 or not isinstance(error, MixupMPError):
                request.results.set_exception(error)
                continue
            try:
                request.results.set_result(await loop.run_in_executor(self.thread, self.compute, request.inputs))
            except Exception as own:  # noqa: BLE001 - the request gets it
                request.results.set_exception(own)

    def _next_batch(self) -> list[QueuedRequest[Result]]:
        """The requests to compute now: first come first served, of one dtype, as many as fit."""
        batch: list[QueuedRequest[Result]] = []
        rows = 0
        while self.queue:
            request = self.queue[0]
            if request.results.done():  # its client has left
                self.queue.popleft()
                continue
            fits = rows + len(request.inputs) <= self.limits.batch or not batch
            if not fits or (batch and request.inputs.dtype != batch[0].inputs.dtype):
                break
            batch.append(self.queue.popleft())
            rows += len(request.inputs)
        return batch


def busy(detail: str) -> HTTPException:
    """Status 503, with when to try again."""
    return HTTPException(503, detail, {"retry-after": "1"})
