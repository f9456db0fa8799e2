"""Running one of our apps: bound first, told when it is up, drained when it is asked to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from mixupmp.core.errors import InvalidArgument, MissingExtra


def bound(host: str, port: int) -> socket.socket:
    """A listening socket. Port 0 takes a free one; one in use is told before anything else is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once (TCP_NODELAY) only on sockets that name it;
    # else each waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument("port", port, f"free on {host}", f"{reason}. Choose another, or 0 for any.") from error
    listener.listen(512)
    listener.setblocking(False)
    return listener


def address(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def run(app: Any, listener: socket.socket, ready: Callable[[], None], drain: float = 10.0) -> None:
    """Serve until SIGTERM or SIGINT; then answer what was asked and take no more, for at most `drain` seconds."""
    server_of(app, ready, drain).run(sockets=[listener])


def server_of(app: Any, ready: Callable[[], None], drain: float) -> Any:
    """A uvicorn server that tells when it is up."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve", "Serving pages") from error

    class Told(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=round(drain), server_header=False,
        timeout_keep_alive=30, lifespan="on",
    )  # fmt: skip
    return Told(config)
