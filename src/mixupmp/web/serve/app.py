"""The server: POST /predict, the pages, and what monitoring needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.requests import ClientDisconnect

from mixupmp.core.column_warnings import collected_warnings
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Standardize
from mixupmp.core.version import __version__
from mixupmp.web.pages import content_security_policy, render
from mixupmp.web.png import data_uri, is_picture
from mixupmp.web.running import Server, add_scripts, address_of, bound_socket
from mixupmp.web.security import BodyLimit, Guard, check_exposure, is_loopback
from mixupmp.web.serve.batching import Batcher, busy
from mixupmp.web.serve.inputs import (
    ARRAY_TYPES,
    FORM_TYPE,
    IMAGE_TYPES,
    JSON_TYPE,
    SOUND_TYPES,
    RowReader,
    takes,
    unusable,
)
from mixupmp.web.serve.model import ServedModel
from mixupmp.web.serve.schemas import (
    Example,
    InputField,
    Limits,
    Metadata,
    Networks,
    Prediction,
    PredictRequest,
    PredictResponse,
    Refusal,
)
from mixupmp.web.serve.telemetry import CONTENT_TYPE, Telemetry

SCRIPTS = ("colors.js", "serve.js")
# The page has nothing of the model in it; its script asks for the token.
OPEN = frozenset({"/", *(f"/static/{name}" for name in SCRIPTS)})
ABOUT = "A martingale posterior behind HTTP: probabilities, each member's, and when not to trust them."
PREDICT = (
    "Rows as JSON or as a .npy file, sentences as JSON, one image, or one WAV file. Integers 0..255 are pixels; other "
    "numbers are taken as they are. A model of several inputs takes them by name in JSON: input_fields of /metadata "
    "has their names and shapes. A row of a table with categories may be an object by column name."
)
REFUSALS: Mapping[int, str] = {
    400: "A Host header that is not a host name.",
    401: "The token is missing or wrong.",
    403: "A request from another site's page.",
    413: "More bytes, rows or pixels than are accepted.",
    415: "A content type that is not accepted.",
    421: "A host name that is not this machine's.",
    422: "Inputs that cannot be used; the detail says why.",
    429: "More requests a second than are answered.",
    503: "Too many rows wait, or it took too long.",
}


def create_app(
    model: ServedModel,
    limits: Limits | None = None,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    rate: float | None = None,
) -> FastAPI:
    """A model as an ASGI app.

    Parameters
    ----------
    model
        See `served_model`.
    limits
        On requests and on the queue.
    token
        What clients send as a bearer token; needed where `host` is an address that others can reach.
    host
        The address it will listen on.
    rate
        Requests a second from one client address; None is unlimited.
    """
    check_exposure(host, token, rate)
    limits = limits or Limits()
    telemetry = Telemetry(model.runtime)
    batcher: Batcher[Prediction | None] = Batcher(model.predict, limits, telemetry.batches.observe)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.close()

    app = FastAPI(
        title=f"mixupmp: {model.title}",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers={RequestValidationError: _invalid},
    )
    app.add_middleware(BodyLimit, each=limits.body, together=limits.bodies)
    policy = content_security_policy(served=True)
    app.add_middleware(Guard, policy=policy, token=token, any_host=not is_loopback(host), open_paths=OPEN, rate=rate)
    _add_predict(app, model, limits, batcher, telemetry)
    _add_about(app, model, limits)
    _add_pages(app)

    @app.get("/metrics", response_class=Response, summary="Prometheus metrics")
    async def metrics() -> Response:
        telemetry.waiting.set(batcher.rows)
        return Response(telemetry.text(), media_type=CONTENT_TYPE)

    return app


def serve_model(
    model: ServedModel,
    *,
    host: str = "127.0.0.1",
    port: int = 8713,
    token: str | None = None,
    limits: Limits | None = None,
    rate: float | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a model until SIGTERM or SIGINT, then answer the requests it has; `ready` is called with the address."""
    limits = limits or Limits()
    app = create_app(model, limits, token=token, host=host, rate=rate)
    listener = bound_socket(host, port)
    Server(
        app,
        lambda: ready(address_of(listener)),
        drain=limits.seconds + 2,
        connections=limits.connections,
        header_seconds=limits.header_seconds,
    ).run(sockets=[listener])


def _add_predict(
    app: FastAPI, model: ServedModel, limits: Limits, batcher: Batcher[Prediction | None], telemetry: Telemetry
) -> None:
    reader = RowReader(model.posterior.task, limits, model.pixels_only)

    async def answer(request: Request, resize: bool) -> Response:
        with collected_warnings() as warnings:
            rows = await reader.read(request, resize)
        try:
            results = await batcher.results(rows)
        except InvalidArgument as error:  # a token that the network does not know
            raise unusable(str(error)) from None
        predictions = [one for one in results if one is not None]
        if len(predictions) < len(results):
            raise unusable(f"Row {results.index(None)} has numbers so large that the output is not finite.")
        telemetry.rows.inc(len(predictions))
        telemetry.abstained.inc(sum(not one.accepted for one in predictions))
        response = PredictResponse.model_construct(
            predictions=predictions, classes=list(model.classes), coverage=model.rule.coverage, warnings=warnings
        )
        return Response(response.model_dump_json(), media_type=JSON_TYPE)

    @app.post(
        "/predict",
        response_model=PredictResponse,
        responses={status: {"model": Refusal, "description": text} for status, text in REFUSALS.items()},
        response_description="The predictions.",
        summary="Predict rows or an image",
        description=PREDICT,
        openapi_extra={"requestBody": _request_body()},
    )
    async def predict(request: Request, resize: bool = False) -> Response:
        started, status = time.perf_counter(), 500
        try:
            # Reading and decoding count too, so that a body that trickles in is given up.
            async with asyncio.timeout(limits.seconds + 1):
                response = await answer(request, resize)
            status = response.status_code
            return response
        except HTTPException as error:
            status = error.status_code
            raise
        except ClientDisconnect:
            status = 422
            raise unusable("The client closed the connection.") from None
        except TimeoutError:
            status = 503
            raise busy("The request took too long.") from None
        finally:
            telemetry.requests.labels(str(status)).inc()
            telemetry.seconds.observe(time.perf_counter() - started)


def _request_body() -> dict[str, Any]:
    """The OpenAPI of /predict's body, which FastAPI cannot tell from its signature: it has several content types."""
    binary = {"type": "string", "format": "binary"}
    form = {"type": "object", "required": ["file"], "properties": {"file": binary}}
    content: dict[str, object] = {JSON_TYPE: {"schema": PredictRequest.model_json_schema()}}
    content |= {kind: {"schema": binary} for kind in (*ARRAY_TYPES, *IMAGE_TYPES, *SOUND_TYPES)}
    return {"required": True, "content": content | {FORM_TYPE: {"schema": form}}}


def _add_about(app: FastAPI, model: ServedModel, limits: Limits) -> None:
    posterior = model.posterior
    about = Metadata(
        title=model.title,
        version=__version__,
        runtime=model.runtime,
        classes=list(model.classes),
        input_shape=list(posterior.task.input_shape),
        takes=takes(posterior.task),
        input_fields=_input_fields(posterior.task),
        members=posterior.members,
        networks=Networks(there=len(posterior.networks), wanted=posterior.wanted),
        notes=list(posterior.notes),
        decisions=model.rule.guarantee(),
        limits=limits,
    )
    images = [Example(image=data_uri(row), label=label) for row, label in model.examples if is_picture(row)]

    @app.get("/healthz", summary="Whether it runs")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metadata", summary="What is served, and what it guarantees")
    async def metadata() -> Metadata:
        return about

    @app.get("/examples", summary="Held-out images to try")
    async def examples() -> list[Example]:
        return images


def _input_fields(task: Task) -> list[InputField]:
    """The inputs of tokens and of several inputs; none for a single tensor of numbers."""
    if isinstance(task.standardize, Standardize):
        return []
    return [InputField(name=f.name, shape=list(f.shape), dtype=f.dtype) for f in task.standardize.fields]


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def front() -> HTMLResponse:
        return HTMLResponse(render("server.html.j2"))

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(render("api_docs.html.j2", openapi=app.openapi(), base=str(request.base_url)))

    add_scripts(app, SCRIPTS)


async def _invalid(_: Request, error: Exception) -> Response:
    """A parameter that is not of its type, as a sentence like other refusals."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return JSONResponse({"detail": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, 422)
