"""The playground's server: one page, its scripts, and a stream of frames."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from mixupmp.core.errors import MissingExtra, MixupMPError
from mixupmp.web.pages import asset
from mixupmp.web.playground.live import frames
from mixupmp.web.playground.page import page
from mixupmp.web.playground.scene import Scene
from mixupmp.web.serve.guard import Guard, check_exposure, is_loopback

try:
    from fastapi import FastAPI, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
except ImportError as error:
    raise MissingExtra("fastapi", "serve", "The playground") from error

SCRIPTS = {
    "colors.js": "mixupmp.web.pages",
    "playground.js": "mixupmp.web.playground",
    "scene.js": "mixupmp.web.playground",
    "stream.js": "mixupmp.web.playground",
    "draw.js": "mixupmp.web.playground",
}
LARGEST_BODY = 256 * 1024
AT_ONCE = 2  # scenes that train at the same time; a new one beyond stops the oldest


class Studio:
    """The scenes in training. A page that asks for a new one has lost interest in the old."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self.active: deque[threading.Event] = deque()
        self.lock = threading.Lock()

    def train(self, scene: Scene) -> Iterator[bytes]:
        """The frames of a scene."""
        stop = threading.Event()
        with self.lock:
            self.active.append(stop)
            for old in list(self.active)[: -self.at_once]:
                old.set()
        try:
            yield from frames(scene, stop.is_set)
        finally:
            with self.lock:
                self.active.remove(stop)

    def close(self) -> None:
        with self.lock:
            for stop in self.active:
                stop.set()


def create_app(token: str | None = None, host: str = "127.0.0.1") -> Any:
    """The playground as an ASGI app."""
    check_exposure(host, token)
    studio = Studio()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # The first fit in a process imports much of torch: done here, it does not hold up the first picture.
        await run_in_threadpool(lambda: list(frames(Scene(steps=1, members=2))))
        yield
        studio.close()

    app = FastAPI(title="mixupmp playground", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.add_middleware(Guard, token=token, any_host=not is_loopback(host))
    app.add_api_route("/", lambda: HTMLResponse(page()), methods=["GET"], response_class=HTMLResponse)
    app.add_api_route("/healthz", lambda: {"status": "ok"}, methods=["GET"])
    app.add_api_route("/static/{name}", _script, methods=["GET"], response_class=Response)
    app.add_api_route("/train", _trainer(studio), methods=["POST"], response_class=StreamingResponse)
    return app


def _script(name: str) -> Response:
    if name not in SCRIPTS:
        return JSONResponse({"detail": "There is no such script."}, 404)
    return Response(asset(name, SCRIPTS[name]), media_type="text/javascript")


def _trainer(studio: Studio) -> Callable[[Request], Any]:
    async def train(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_BODY:
                return JSONResponse({"detail": f"A scene may have at most {LARGEST_BODY} bytes."}, 413)
        try:
            scene = Scene.from_json(json.loads(body))
            scene.plan()
        except (MixupMPError, ValueError, RecursionError) as error:
            return JSONResponse({"detail": str(error)}, 422)
        return StreamingResponse(studio.train(scene), media_type="application/octet-stream")

    return train
