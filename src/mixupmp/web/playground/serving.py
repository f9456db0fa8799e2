"""`mixupmp playground`: the app, bound and running."""

from __future__ import annotations

from collections.abc import Callable

from mixupmp.web.serve.guard import check_exposure
from mixupmp.web.serve.running import address, bound, run


def serve_playground(
    host: str = "127.0.0.1", port: int = 8712, token: str | None = None, ready: Callable[[str], None] = lambda _: None
) -> None:
    """Serve the playground until it is stopped; `ready` is told the address when it is up."""
    check_exposure(host, token)
    from mixupmp.web.playground.app import create_app

    app = create_app(token, host)
    listener = bound(host, port)
    run(app, listener, lambda: ready(address(listener)), drain=2)
