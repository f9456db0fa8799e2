"""The server against clients that are slow, many, or from elsewhere."""

from __future__ import annotations

import http.client
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from mixupmp.core.errors import BadRun, InvalidArgument
from mixupmp.web.serve import Limits, create_app, served_model

from .live import served
from .models import image_model, image_posterior, images
from .test_process import memory, process, run

__all__ = ["run"]  # the fixture
LOCAL = "127.0.0.1"


def connected(address: str, stack: ExitStack) -> socket.socket:
    where = urlsplit(address)
    made = stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=30))
    assert isinstance(made, socket.socket)
    return made


def health(address: str) -> int:
    return httpx.get(address + "healthz", timeout=5).status_code


def test_slow_clients_and_unfinished_bodies_stop_nobody(run: Path) -> None:
    """300 half-sent headers, then 150 bodies of 8 MB that never end."""
    with process(run, files=256) as (server, address), ExitStack() as stack:
        for _ in range(300):
            connected(address, stack).sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert health(address) == 200
        before = memory(server)
        body = b" " * (8 * 2**20 - 1)
        heads = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1)

        def send() -> None:
            with ExitStack() as mine:
                link = connected(address, mine)
                try:
                    link.sendall(heads + body)
                    held.wait(20)
                except OSError:  # refused and closed before it was all sent
                    refused.append(1)

        held = threading.Event()
        refused: list[int] = []
        senders = [threading.Thread(target=send) for _ in range(150)]
        for sender in senders:
            sender.start()
        most = before
        for _ in range(30):
            time.sleep(0.1)
            most = max(most, memory(server))
            assert health(address) == 200
        held.set()
        for sender in senders:
            sender.join(30)
        assert most - before < 400, f"{before:.0f} -> {most:.0f} MB"


def test_half_sent_headers_time_out() -> None:
    with served(create_app(image_model(held_out=False)), header_seconds=0.3) as address, ExitStack() as stack:
        silent, partial = connected(address, stack), connected(address, stack)
        partial.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        for link in (silent, partial):
            assert link.recv(100).startswith(b"HTTP/1.1 408")
        again = connected(address, stack)  # the second request of a connection has no longer than the first
        again.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b'{"status":"ok"}'):
            answer += again.recv(10_000)
        again.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        started = time.monotonic()
        assert again.recv(100).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - started < 5
        assert health(address) == 200


def test_a_connection_too_many_closes_the_slowest_and_not_one_in_work() -> None:
    model = image_model(held_out=False)
    gate = threading.Event()

    def wait(inputs: object) -> object:
        gate.wait(20)
        return model.members(inputs)  # type: ignore[arg-type]

    app = create_app(replace(model, members=wait))  # type: ignore[arg-type]
    with served(app, connections=4) as address, ExitStack() as stack:
        answers: list[int] = []
        body = {"inputs": images(1).tolist()}
        working = threading.Thread(
            target=lambda: answers.append(httpx.post(address + "predict", json=body, timeout=30).status_code)
        )
        working.start()
        time.sleep(0.3)
        slow = [connected(address, stack) for _ in range(6)]
        for link in slow[-3:]:
            link.sendall(b"GET / HTTP/1.1\r\n")
        assert slow[0].recv(100).startswith(b"HTTP/1.1 503")
        assert health(address) == 200
        gate.set()
        working.join(30)
        assert answers == [200]


def not_reading(address: str, stack: ExitStack) -> socket.socket:
    """A client that asks again and again for a page, and reads none."""
    where = urlsplit(address)
    link = stack.enter_context(socket.socket())
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    link.connect((where.hostname, where.port))
    link.setblocking(False)
    with suppress(BlockingIOError):
        for _ in range(60):
            link.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
            time.sleep(0.001)
    return link


def test_clients_that_do_not_read_lock_out_nobody() -> None:
    with served(create_app(image_model(held_out=False)), connections=4) as address, ExitStack() as stack:
        for _ in range(6):
            not_reading(address, stack)
        time.sleep(0.5)
        assert [health(address) for _ in range(6)] == [200] * 6


def test_a_client_that_does_not_read_is_disconnected() -> None:
    with served(create_app(image_model(held_out=False)), header_seconds=0.3) as address, ExitStack() as stack:
        link, poll = not_reading(address, stack), select.poll()
        poll.register(link, select.POLLERR)
        assert poll.poll(10_000), "still connected"


def test_a_client_that_reads_slowly_gets_all_of_it() -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 16 * 2**20})

    with served(large, header_seconds=0.5) as address, ExitStack() as stack:
        link = connected(address, stack)
        link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received, started = 0, time.monotonic()
        while chunk := link.recv(2**20):
            received += chunk.count(b"x")
            if time.monotonic() - started < 2:
                time.sleep(0.1)
        assert received == 16 * 2**20


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -3\r\n\r\nabcd",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    ],
    ids=["two hosts", "two lengths", "negative length", "TLS"],
)
def test_an_invalid_first_request_is_refused_and_not_logged(
    request_: bytes, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        link = connected(address, stack)
        link.sendall(request_)
        assert link.recv(100).startswith(b"HTTP/1.1 400")
        while link.recv(1000):
            continue
    assert not caplog.records


def test_the_sum_of_bodies_is_bounded_and_given_back() -> None:
    limits = Limits(body=200_000, bodies=300_000, seconds=20)
    with served(create_app(image_model(held_out=False), limits)) as address, ExitStack() as stack:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 190000\r\n\r\n"
        links = [connected(address, stack) for _ in range(3)]
        for link in links:
            link.sendall(head + b" " * 189_000)
            time.sleep(0.3)
        assert links[2].recv(100).startswith(b"HTTP/1.1 503")
        small = {"inputs": images(1).tolist()}
        assert httpx.post(address + "predict", json=small).status_code == 200, "small bodies are not locked out"
        for link in links:
            link.close()
        time.sleep(0.5)
        large = b'{"inputs": [[1]]}' + b" " * 150_000
        assert httpx.post(address + "predict", content=large, timeout=30).status_code == 422


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(create_app(image_model(held_out=False))) as where:
        yield where


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9101@evil.com", 400),
        ("localhost:@evil.com:80", 400),
        ("localhost/evil.com", 400),
        ("localhost:99999999", 400),
        ("evil.com", 421),
        ("127.0.0.1.evil.com:80", 421),
        ("localhost:9101", 200),
        ("[::1]:9101", 200),
    ],
)
def test_a_host_is_a_name_and_a_port_and_nothing_else(address: str, host: str, status: int) -> None:
    assert httpx.get(address + "metadata", headers={"host": host}).status_code == status


def test_other_sites_pages_may_not_ask(address: str) -> None:
    body = {"inputs": images(1).tolist()}
    own = address.rstrip("/")
    for origin in ("https://evil.com", "null", own + ".evil.com", own + "@evil.com", "http://127.0.0.1:1"):
        assert httpx.post(address + "predict", json=body, headers={"origin": origin}).status_code == 403, origin
    for origin in (own, own.replace("http:", "https:")):
        assert httpx.post(address + "predict", json=body, headers={"origin": origin}).status_code == 200


def test_pages_allow_no_inline_code_but_their_own(address: str) -> None:
    for path in ("", "docs"):
        answer = httpx.get(address + path)
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert policy.count("'sha256-") == 2
        assert " style=" not in answer.text
        assert " onclick=" not in answer.text


def test_a_rate_limit_answers_429_and_recovers() -> None:
    with served(create_app(image_model(held_out=False), rate=5)) as address, httpx.Client(base_url=address) as client:
        statuses = [client.get("/metadata").status_code for _ in range(12)]
        assert statuses[:5] == [200] * 5
        assert 429 in statuses
        assert client.get("/healthz").status_code == 200
        time.sleep(0.5)
        assert client.get("/metadata").status_code == 200
    with pytest.raises(InvalidArgument, match="rate"):
        create_app(image_model(held_out=False), rate=0)


def test_two_host_headers_are_refused(address: str) -> None:
    where = urlsplit(address)
    link = http.client.HTTPConnection(LOCAL, where.port, timeout=10)
    link.putrequest("GET", "/metadata", skip_host=True)
    link.putheader("Host", "localhost")
    link.putheader("Host", "evil.com")
    link.endheaders()
    assert link.getresponse().status == 400
    link.close()


def test_class_names_that_are_not_as_many_as_the_outputs_are_refused_when_the_run_is_loaded() -> None:
    posterior = image_posterior(classes=4)
    posterior.task = replace(posterior.task, classes=("a", "b", "c"))
    with pytest.raises(BadRun, match=r"3 class names.*4 outputs"):
        served_model(posterior)


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "prometheus_client", "python_multipart"])
def test_without_its_extra_the_command_says_what_to_install(missing: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from mixupmp.cli import main; main(['serve', 'nowhere'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert "pip install 'mixupmp[serve]'" in ended.stderr
