"""`mixupmp serve`: a model, bound and running."""

from __future__ import annotations

from collections.abc import Callable

from mixupmp.web.serve.guard import check_exposure
from mixupmp.web.serve.limits import Limits
from mixupmp.web.serve.model import Model
from mixupmp.web.serve.running import address, bound, run


def serve_model(
    model: Model,
    *,
    host: str = "127.0.0.1",
    port: int = 8713,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a model until SIGTERM or SIGINT, then finish what was asked; `ready` is told the address when it is up."""
    check_exposure(host, token)
    from mixupmp.web.serve.app import create_app

    limits = limits or Limits()
    app = create_app(model, limits, token=token, host=host)
    listener = bound(host, port)
    run(app, listener, lambda: ready(address(listener)), drain=limits.seconds + 2)
