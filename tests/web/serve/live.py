"""A real server in a thread, on a free port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mixupmp.web.running import Server, address_of, bound_socket


@contextmanager
def served(app: Any, **limits: Any) -> Iterator[str]:
    """The app's address while it runs."""
    listener = bound_socket("127.0.0.1", 0)
    up = threading.Event()
    server = Server(app, up.set, drain=2, **limits)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    assert up.wait(60), "the server did not start"
    try:
        yield address_of(listener)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"
