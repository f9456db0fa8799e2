"""The clients of the load test, run by Locust in a process of their own, as it patches the standard library.

Usage: python -m tests.load.users ADDRESS CASES SECONDS SERVER_PID

They compare every answer with the expected one. After so many seconds the server gets SIGTERM while they go on; what it
had accepted by then must be answered. Prints what happened as JSON.
"""

from __future__ import annotations

import locust  # first: it patches sockets and threads

# ruff: isort: split
import base64
import json
import os
import random
import signal
import socket
import struct
import sys
import time
from collections import Counter
from typing import Any, ClassVar
from urllib.parse import urlsplit

import gevent
from locust.contrib.fasthttp import FastHttpUser
from locust.env import Environment
from locust.exception import StopUser

USERS, SLOW, CANCELLING = 64, 10, 10
TOLERANCE = 1e-6  # rows are computed together with others', which changes the last bits
PAUSE = 0.02  # seconds between two bytes of a slow body
SURELY_READ = 1.0  # seconds after which a request that was sent has been read by the server
DRAINED = 30.0  # seconds after SIGTERM within which all must be over


class Load:
    """What is asked, and what happened."""

    cases: ClassVar[list[dict[str, Any]]]
    counts: ClassVar[Counter[str]] = Counter()
    statuses: ClassVar[Counter[int]] = Counter()
    stopped_at: ClassVar[float] = float("inf")

    @classmethod
    def stopping(cls) -> bool:
        return time.monotonic() >= cls.stopped_at

    @classmethod
    def answered(cls, kind: str, case: dict[str, Any], status: int, body: bytes) -> None:
        """Count an answer, and compare it."""
        cls.counts[kind] += 1
        cls.statuses[status] += 1
        cls.counts["answered after SIGTERM"] += cls.stopping()
        if status == 200:
            found = [row["probabilities"] for row in json.loads(body)["predictions"]]
            cls.counts["wrong"] += not same(found, case["probabilities"])

    @classmethod
    def unanswered(cls, accepted: bool) -> None:
        """Count a request that got no answer; one that the server had not accepted at SIGTERM may."""
        if not cls.stopping():
            cls.counts["broken"] += 1
            return
        cls.counts["lost at SIGTERM" if accepted else "not accepted after SIGTERM"] += 1
        raise StopUser


def same(found: list[list[float]], expected: list[list[float]]) -> bool:
    return len(found) == len(expected) and all(
        len(one) == len(other) and all(abs(a - b) < TOLERANCE for a, b in zip(one, other, strict=True))
        for one, other in zip(found, expected, strict=True)
    )


class Plain(FastHttpUser):
    """Asks one request after another over a connection that stays open."""

    network_timeout = connection_timeout = 30.0

    @locust.task
    def predict(self) -> None:
        case, started = random.choice(Load.cases), time.monotonic()
        headers = {"content-type": case["type"]}
        with self.client.post("/predict", data=case["body"], headers=headers, catch_response=True) as response:
            if response.status_code == 0:
                response.failure(str(response.error))
                Load.unanswered(accepted=started < Load.stopped_at - SURELY_READ)
            else:
                Load.answered("plain", case, response.status_code, response.content)


class RawUser(locust.User):
    """A client that writes to its own socket."""

    abstract = True

    def connect(self) -> socket.socket:
        where = urlsplit(self.host)
        try:
            return socket.create_connection((where.hostname, where.port), timeout=30)
        except OSError:
            Load.unanswered(accepted=False)
            gevent.sleep(0.1)
            raise locust.exception.RescheduleTask from None

    def head(self, case: dict[str, Any], *lines: str) -> bytes:
        kind, length = f"Content-Type: {case['type']}", f"Content-Length: {len(case['body'])}"
        host = f"Host: {urlsplit(self.host).netloc}"
        return "\r\n".join(("POST /predict HTTP/1.1", host, kind, length, *lines, "", "")).encode()


class Slow(RawUser):
    """Sends its body byte by byte. The server's "100 Continue" is the proof that it accepted the request."""

    fixed_count = SLOW

    @locust.task
    def predict(self) -> None:
        case, accepted, started = random.choice(Load.cases), False, time.monotonic()
        with self.connect() as link:
            try:
                link.sendall(self.head(case, "Expect: 100-continue", "Connection: close"))
                accepted = link.recv(4096).startswith(b"HTTP/1.1 100")
                for byte in case["body"][:200]:
                    link.sendall(bytes([byte]))
                    gevent.sleep(PAUSE)
                link.sendall(case["body"][200:])
                head, _, body = b"".join(iter(lambda: link.recv(65536), b"")).partition(b"\r\n\r\n")
                status = int(head[9:12])
            except (OSError, ValueError):
                Load.unanswered(accepted)
                return
        Load.answered("slow", case, status, body)
        taken = 1000 * (time.monotonic() - started)
        self.environment.events.request.fire(
            request_type="POST", name="slow", response_time=taken, response_length=len(body), context={}, exception=None
        )


class Cancelling(RawUser):
    """Closes its connection before the answer: in the middle of the body, after it, or while it is computed."""

    fixed_count = CANCELLING

    @locust.task
    def predict(self) -> None:
        case = random.choice(Load.cases)
        sent = random.choice((len(case["body"]) // 2, len(case["body"])))
        with self.connect() as link:
            try:
                link.sendall(self.head(case) + case["body"][:sent])
                gevent.sleep(random.choice((0, 0.002, 0.02, 0.1)))
                if random.random() < 0.5:  # a reset instead of an orderly end
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                Load.unanswered(accepted=False)
                return
        Load.counts["cancelled"] += 1
        gevent.sleep(0.05)


def main(address: str, cases: str, seconds: float, server: int) -> None:
    with open(cases) as file:
        Load.cases = [{**case, "body": base64.b64decode(case["body"])} for case in json.load(file)]
    environment = Environment(user_classes=[Plain, Slow, Cancelling], host=address.rstrip("/"))
    runner = environment.create_local_runner()
    runner.start(USERS, spawn_rate=USERS)
    gevent.sleep(seconds)
    plain, slow = (environment.stats.get(name, "POST") for name in ("/predict", "slow"))
    measured = {
        "rate": plain.total_rps,
        **{f"p{100 * p:g}": plain.get_response_time_percentile(p) for p in (0.5, 0.95, 0.99)},
        "slow p50": slow.get_response_time_percentile(0.5),
        "users": runner.user_count,
    }
    Load.stopped_at = time.monotonic()
    os.kill(server, signal.SIGTERM)
    while runner.user_count and time.monotonic() < Load.stopped_at + DRAINED:
        gevent.sleep(0.1)
    measured["users left"] = runner.user_count
    runner.quit()
    print(json.dumps({**measured, **Load.counts, "statuses": dict(Load.statuses)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
