"""The playground's server: one page, its scripts, and a stream of frames."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, StreamingResponse

from mixupmp.core.errors import MixupMPError
from mixupmp.web.pages import content_security_policy, render
from mixupmp.web.playground.futures import PAPER, others
from mixupmp.web.playground.live import frames, seen
from mixupmp.web.playground.scene import Scene
from mixupmp.web.running import Server, add_scripts, address_of, bound_socket
from mixupmp.web.security import BodyLimit, Guard, check_exposure, is_loopback

SCRIPTS = ("colors.js", "playground.js", "scene.js", "stream.js", "draw.js")
LARGEST_BODY = 256 * 1024
TRAINED_AT_ONCE = 2  # one more stops the oldest


class TrainingQueue:
    """The scenes in training. A page that requests a new one stops watching the old one."""

    def __init__(self, at_once: int = TRAINED_AT_ONCE) -> None:
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


def create_app(token: str | None = None, host: str = "127.0.0.1") -> FastAPI:
    """The playground as an ASGI app."""
    check_exposure(host, token)
    queue = TrainingQueue()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # The first fit in a process imports much of torch: done here, it does not delay the first picture.
        await run_in_threadpool(lambda: list(frames(Scene(steps=1, members=2))))
        yield
        queue.close()

    app = FastAPI(title="mixupmp playground", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.add_middleware(BodyLimit, each=LARGEST_BODY, together=16 * LARGEST_BODY)
    policy = content_security_policy(served=True)
    app.add_middleware(Guard, policy=policy, token=token, any_host=not is_loopback(host))
    add_scripts(app, SCRIPTS)

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(render("playground.html.j2", paper=PAPER, others=others()))

    @app.get("/healthz")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/clusters")
    async def clusters() -> list[list[float]]:
        return seen(Scene().plan())  # a link to a changed copy of them says only what was changed

    @app.post("/train")
    async def train(request: Request) -> StreamingResponse:
        try:
            scene = Scene.from_json(await request.body())
            scene.plan()
        except MixupMPError as error:
            raise HTTPException(422, str(error)) from None
        return StreamingResponse(queue.train(scene), media_type="application/octet-stream")

    return app


def serve_playground(
    host: str = "127.0.0.1",
    port: int = 8712,
    token: str | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the playground until it is stopped; `ready` is called with its address."""
    app = create_app(token, host)
    listener = bound_socket(host, port)
    Server(app, lambda: ready(address_of(listener)), drain=2).run(sockets=[listener])
