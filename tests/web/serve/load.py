"""A bounded load on a server of this machine: connections that each ask one request after another for some seconds.

    python tests/serve/load.py http://127.0.0.1:8713/ --connections 64 --seconds 30

Prints requests a second, their statuses, and latencies; first alone (one connection), then the crowd.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import urlopen


@dataclass
class Load:
    """What happened."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    broken: int = 0  # connections that failed

    @property
    def rate(self) -> float:
        """Answered requests a second."""
        return self.statuses[200] / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def __str__(self) -> str:
        times = ", ".join(f"p{100 * share:g} {1000 * self.percentile(share):.1f} ms" for share in (0.5, 0.95, 0.99))
        return f"{self.rate:.0f} requests/s, statuses {dict(self.statuses)}, {times}, {self.broken} broken"


def request_for(address: str, shape: list[int]) -> bytes:
    """One row of pixels or numbers, as a whole HTTP request."""
    draws = random.Random(0)

    def nested(left: list[int]) -> object:
        return [nested(left[1:]) for _ in range(left[0])] if left else draws.randint(0, 255)

    body = json.dumps({"inputs": [nested(shape)]}).encode()
    host = urlsplit(address).netloc
    kind, length = "Content-Type: application/json", f"Content-Length: {len(body)}"
    lines = ("POST /predict HTTP/1.1", f"Host: {host}", kind, length)
    return "\r\n".join((*lines, "", "")).encode() + body


async def _connection(host: str, port: int, request: bytes, until: float, load: Load) -> None:
    reader = writer = None
    while time.perf_counter() < until:
        try:
            if writer is None or reader is None:
                reader, writer = await asyncio.open_connection(host, port)
            started = time.perf_counter()
            writer.write(request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await asyncio.wait_for(reader.readexactly(length), 30)
            load.latencies.append(time.perf_counter() - started)
            load.statuses[int(head[9:12])] += 1
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            load.broken += 1
            reader = writer = None
            await asyncio.sleep(0.05)
    if writer is not None:
        writer.close()


async def apply(address: str, request: bytes, connections: int, seconds: float) -> Load:
    """Load the server."""
    where = urlsplit(address)
    assert where.hostname is not None
    assert where.port is not None
    load = Load()
    started = time.perf_counter()
    work = [_connection(where.hostname, where.port, request, started + seconds, load) for _ in range(connections)]
    await asyncio.gather(*work)
    load.seconds = time.perf_counter() - started
    return load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    with urlopen(given.address + "metadata") as answer:
        request = request_for(given.address, json.load(answer)["input_shape"])
    alone = asyncio.run(apply(given.address, request, 1, min(given.seconds, 10)))
    print(f"1 connection: {alone}")
    crowd = asyncio.run(apply(given.address, request, given.connections, given.seconds))
    print(f"{given.connections} connections: {crowd}")
    print(f"{crowd.rate / alone.rate:.2f} times the throughput of one at a time")


if __name__ == "__main__":
    main()
