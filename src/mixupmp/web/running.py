"""Both servers under uvicorn: a bound socket, bounded connections, and an orderly end."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import h11
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mixupmp.core.errors import InvalidArgument
from mixupmp.web.pages import asset

# asyncio accepts up to so many connections at once, before any of them is counted: they need open files too.
BACKLOG = 64
_CLOSE = b"content-length: 0\r\nconnection: close\r\n\r\n"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n" + _CLOSE
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\n" + _CLOSE


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only on sockets that name it; without it each small
    # response waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument("port", port, f"free on {host}", f"{reason}. Choose another, or 0 for any.") from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def add_scripts(app: FastAPI, names: tuple[str, ...]) -> None:
    """Serve these scripts under /static."""

    @app.get("/static/{name}", include_in_schema=False)
    async def script(name: str) -> Response:
        if name not in names:
            raise HTTPException(404, "There is no such script.")
        return Response(asset(name), media_type="text/javascript")


class Server(uvicorn.Server):
    """A uvicorn server with at most `connections` connections, that calls `ready` once it is up.

    SIGTERM and SIGINT stop it: it takes no more requests, answers those it has within `drain` seconds, and `run`
    returns. (uvicorn would then raise the signal again, and the process would end by it.)
    """

    def __init__(
        self,
        app: ASGIApp,
        ready: Callable[[], None],
        drain: float = 10.0,
        connections: int = 256,
        header_seconds: float = 10.0,
    ) -> None:
        protocol = partial(
            BoundedProtocol, max_connections=_within_open_files(connections), header_seconds=header_seconds
        )
        config = uvicorn.Config(
            app,
            http=protocol,  # type: ignore[arg-type]
            ws="none",
            lifespan="on",
            log_level="error",  # warnings are of what clients send: any of them could fill the log
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            backlog=BACKLOG,
            timeout_graceful_shutdown=round(drain),
        )
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT, without raising them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _within_open_files(connections: int) -> int:
    """As many connections as requested, or as the limit on open files leaves room for."""
    with suppress(ImportError):  # Windows has no such limit to read
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return min(connections, max(8, soft - BACKLOG - 64))
    return connections


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with a bound on connections, and on the seconds in which a client does nothing.

    Within `header_seconds` a client has to send a request's headers, and to read some of what was sent to it. Where a
    connection too many is made, the one that has kept the server waiting longest - for headers, for a body, for a next
    request, or to read - is closed, so that slow clients cannot lock out others. One whose request is being worked on
    is never closed.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        max_connections: int,
        header_seconds: float,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.max_connections, self.header_seconds = max_connections, header_seconds
        self.deadline: asyncio.TimerHandle | None = None
        self.read_deadline: asyncio.TimerHandle | None = None
        self.unread = 0
        self.waiting_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused while anything waits for the client to read
        self._start_waiting()
        if len(self.connections) > self.max_connections:
            others = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
            waiting = [one for one in others if one.waits_for_client()]
            min(waiting, key=lambda one: one.waiting_since, default=self).close_with(BUSY)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.deadline is None and self.conn.their_state is h11.IDLE:
            self._start_waiting()
        super().data_received(data)
        # There is no cycle where the first request is invalid: it was answered, and the connection is being closed.
        if self.conn.their_state is not h11.IDLE and self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.waiting_since = self.loop.time()
        if self.conn.their_state is h11.SEND_BODY:  # refused before its body was read, which need not come to its end
            self._start_waiting()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.read_deadline is not None:
            self.read_deadline.cancel()
            self.read_deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def waits_for_client(self) -> bool:
        """Whether it is the client's turn: to read, or to send headers, a body or the next request."""
        to_send = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()
        return self.flow.write_paused or to_send

    def close_with(self, response: bytes) -> None:
        """Close the connection, with this response where one is due and none was begun."""
        if self.flow.write_paused:  # closing would wait until all is read
            self.resume_writing()
            self.transport.abort()
            return
        if self.deadline is not None and self.conn.their_state is h11.IDLE:
            self.transport.write(response)
        self._stop_waiting()
        self.transport.close()

    def _start_waiting(self) -> None:
        self._stop_waiting()
        self.waiting_since = self.loop.time()
        self.deadline = self.loop.call_later(self.header_seconds, self.close_with, TOO_SLOW)

    def _wait_for_reading(self) -> None:
        self.waiting_since, self.unread = self.loop.time(), self.transport.get_write_buffer_size()
        self.read_deadline = self.loop.call_later(self.header_seconds, self._check_reading)

    def _check_reading(self) -> None:
        if self.transport.get_write_buffer_size() < self.unread:
            self._wait_for_reading()  # a large response on a slow line
        else:
            self.close_with(TOO_SLOW)

    def _stop_waiting(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
