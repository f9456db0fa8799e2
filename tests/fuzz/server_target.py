"""Requests to a server, through its ASGI app in this process. A case is the content type, a line end, and the body."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import httpx
import numpy as np
import torch
from hypothesis import strategies as st
from tests.fuzz.mutate import mutated, mutated_json
from tests.fuzz.nearby import near_image, near_json, near_named
from tests.fuzz.target import Check, Target
from tests.web.serve.fuzz import KINDS
from tests.web.serve.models import image_model, images

from mixupmp.core.errors import BadData
from mixupmp.web.png import png
from mixupmp.web.serve import Limits
from mixupmp.web.serve.app import create_app

STATUSES = {200, 413, 415, 422}
JSON, ARRAY, FORM = KINDS[0], KINDS[1], "multipart/form-data; boundary=b"


def _prepare(scratch: Path) -> Check:
    app = create_app(image_model(), Limits(body=200_000))
    loop = asyncio.new_event_loop()
    lifespan = app.router.lifespan_context(app)
    loop.run_until_complete(lifespan.__aenter__())
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")  # raises its errors

    def check(content: bytes) -> None:
        kind, _, body = content.partition(b"\n")
        answer = loop.run_until_complete(
            client.post("/predict?resize=true", content=body, headers={b"content-type": kind})
        )
        assert answer.status_code in STATUSES, answer.text
        document = answer.json()
        if answer.status_code == 200:
            for prediction in document["predictions"]:
                assert abs(sum(prediction["probabilities"]) - 1) < 1e-4
        else:
            assert isinstance(document["detail"], str)
            raise BadData(document["detail"])

    return check


def _bodies() -> dict[str, list[bytes]]:
    rows = images(2)
    array, numbers = io.BytesIO(), io.BytesIO()
    np.save(array, rows.numpy())
    np.save(numbers, rows.numpy().astype("f8"))
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\nContent-Type: image/png\r\n\r\n'
    return {
        JSON: [json.dumps({"inputs": rows[:1].tolist()}).encode()],
        ARRAY: [array.getvalue(), numbers.getvalue()],
        "image/png": [png(rows[0]), png(torch.zeros(3, 30, 20, dtype=torch.uint8))],
        FORM: [head + png(rows[0]) + b"\r\n--b--\r\n"],
    }


def _cases() -> st.SearchStrategy[bytes]:
    bodies = _bodies()
    # A form's own header may be anything that HTTP allows in one: visible ASCII.
    types = st.sampled_from(KINDS).map(str.encode) | mutated([FORM.encode(), JSON.encode()]).map(
        lambda kind: bytes(byte for byte in kind[:200] if 32 <= byte < 127).strip()
    )
    whole = [kind.encode() + b"\n" + body for kind, seeds in bodies.items() for body in seeds]
    near = st.one_of(
        *(mutated(seeds).map(lambda body, kind=kind: kind.encode() + b"\n" + body) for kind, seeds in bodies.items()),
        mutated_json(bodies[JSON]).map(lambda body: JSON.encode() + b"\n" + body),
    )
    other = st.builds(lambda kind, case: kind + b"\n" + case.partition(b"\n")[2], types, near)
    return st.one_of(near, near, other, st.sampled_from(whole))


near = near_named(lambda kind: near_json if kind == JSON.encode() else near_image)
TARGETS = (Target("server", _prepare, _cases, near),)
