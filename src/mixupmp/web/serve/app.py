"""The server: POST /predict and what surrounds it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mixupmp.core.errors import MissingExtra
from mixupmp.core.version import __version__
from mixupmp.web.pages import asset
from mixupmp.web.report.png import data_uri, is_picture
from mixupmp.web.serve.batching import Batcher
from mixupmp.web.serve.description import PREDICT, metadata_of
from mixupmp.web.serve.docs import docs_page
from mixupmp.web.serve.guard import Guard, check_exposure, is_loopback
from mixupmp.web.serve.limits import Limits, Refused, unusable
from mixupmp.web.serve.model import Model
from mixupmp.web.serve.page import page
from mixupmp.web.serve.requests import rows_of
from mixupmp.web.serve.telemetry import CONTENT_TYPE, Telemetry

try:
    from fastapi import FastAPI, Request
    from fastapi.responses import HTMLResponse, JSONResponse, Response
except ImportError as error:
    raise MissingExtra("fastapi", "serve", "The server") from error

SCRIPTS = {"colors.js": "mixupmp.web.pages", "serve.js": "mixupmp.web.serve"}
# The page holds nothing of the model; its script asks for the token.
OPEN = frozenset({"/", *(f"/static/{name}" for name in SCRIPTS)})


def create_app(
    model: Model, limits: Limits | None = None, *, token: str | None = None, host: str = "127.0.0.1"
) -> FastAPI:
    """A model as an ASGI app."""
    check_exposure(host, token)
    limits = limits or Limits()
    telemetry = Telemetry(model.runtime)
    batcher = Batcher(model.answers, limits, telemetry.batches.observe)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.close()

    about = "A martingale posterior behind HTTP: probabilities, each member's, and when not to trust them."
    app = FastAPI(title=f"mixupmp: {model.title}", version=__version__, description=about, lifespan=lifespan,
                  docs_url=None, redoc_url=None)  # fmt: skip
    app.add_middleware(Guard, token=token, any_host=not is_loopback(host), open_paths=OPEN)
    predict = _predictor(model, limits, batcher, telemetry)
    app.add_api_route("/predict", predict, methods=["POST"], openapi_extra=PREDICT, response_class=Response,
                      summary="Predict rows or an image", tags=["predict"])  # fmt: skip
    _add_surroundings(app, model, limits, batcher, telemetry)
    return app


def _add_surroundings(app: FastAPI, model: Model, limits: Limits, batcher: Batcher, telemetry: Telemetry) -> None:
    about = metadata_of(model, limits)
    pictures = [
        {"image": data_uri(inputs), "label": label} for inputs, label in model.examples if is_picture(inputs)
    ]  # fmt: skip

    async def metrics() -> Response:
        telemetry.waiting.set(batcher.rows)
        return Response(telemetry.text(), media_type=CONTENT_TYPE)

    async def script(name: str) -> Response:
        if name not in SCRIPTS:
            return JSONResponse({"detail": "There is no such script."}, 404)
        return Response(asset(name, SCRIPTS[name]), media_type="text/javascript")

    async def health() -> dict[str, str]:
        return {"status": "ok"}

    async def metadata() -> dict[str, Any]:
        return about

    async def examples() -> list[dict[str, str]]:
        return pictures

    async def docs(request: Request) -> Response:
        return HTMLResponse(docs_page(app.openapi(), str(request.base_url)))

    async def front() -> Response:
        return HTMLResponse(page())

    app.add_api_route("/healthz", health, methods=["GET"], summary="Whether it runs")
    app.add_api_route("/metadata", metadata, methods=["GET"], summary="What is served, and what it promises")
    app.add_api_route("/metrics", metrics, methods=["GET"], response_class=Response, summary="Prometheus metrics")
    app.add_api_route("/examples", examples, methods=["GET"], summary="Held-out pictures to try")
    app.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)
    app.add_api_route("/", front, methods=["GET"], include_in_schema=False)
    app.add_api_route("/static/{name}", script, methods=["GET"], include_in_schema=False)


def _predictor(
    model: Model, limits: Limits, batcher: Batcher, telemetry: Telemetry
) -> Callable[[Request], Awaitable[Response]]:
    tail = _tail(model)

    async def answered(request: Request) -> Response:
        inputs = await rows_of(request, model, limits)
        found = await batcher.answers(inputs)
        lost = [row for row, answer in enumerate(found) if answer is None]
        if lost:
            raise unusable(f"The numbers of row {lost[0]} are so large that the network's answer is not a number.")
        lines = [answer for answer in found if answer is not None]
        telemetry.rows.inc(len(lines))
        telemetry.abstained.inc(sum('"accepted": false' in line for line in lines))
        return Response(f'{{"predictions": [{", ".join(lines)}], {tail}}}', media_type="application/json")

    async def predict(request: Request) -> Response:
        started = time.perf_counter()
        try:
            # Reading and decoding count too: a body that trickles in holds nothing up for longer.
            async with asyncio.timeout(limits.seconds + 1):
                response = await answered(request)
        except Refused as refused:
            headers = {"retry-after": "1"} if refused.status == 503 else None
            response = JSONResponse({"detail": refused.detail}, refused.status, headers)
        except TimeoutError:
            response = JSONResponse({"detail": "The request took too long."}, 503, {"retry-after": "1"})
        telemetry.requests.labels(str(response.status_code)).inc()
        telemetry.seconds.observe(time.perf_counter() - started)
        return response

    return predict


def _tail(model: Model) -> str:
    """What is the same in every answer."""
    return f'"classes": {json.dumps(list(model.classes))}, "coverage": {model.promise.coverage}'
