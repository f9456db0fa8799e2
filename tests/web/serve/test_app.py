from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import torch

from mixupmp.core.errors import InvalidArgument
from mixupmp.web.png import png
from mixupmp.web.serve import Limits
from mixupmp.web.serve.app import create_app

from .live import served
from .models import image_model, images

LIMITS = Limits(body=100_000, rows=50, pixels=4096, waiting=200, batch=64, seconds=20)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with served(create_app(image_model(), LIMITS)) as address, httpx.Client(base_url=address, timeout=60) as running:
        yield running


def as_npy(inputs: torch.Tensor) -> bytes:
    content = io.BytesIO()
    np.save(content, inputs.numpy())
    return content.getvalue()


def test_json_npy_image_and_form_agree_with_the_posterior(client: httpx.Client) -> None:
    inputs = images(3, seed=5)
    expected = image_model().posterior.member_probabilities(inputs)
    binary, picture = {"content-type": "application/octet-stream"}, {"content-type": "image/png"}
    one = png(inputs[0])
    asked = [
        (client.post("/predict", json={"inputs": inputs.tolist()}), expected),
        (client.post("/predict", content=as_npy(inputs), headers=binary), expected),
        (client.post("/predict", content=one, headers=picture), expected[:, :1]),
        (client.post("/predict", files={"file": ("x.png", one, "image/png")}), expected[:, :1]),
        (client.post("/predict", files={"file": ("x.npy", as_npy(inputs), "application/x-npy")}), expected),
    ]
    for answer, wanted in asked:
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["classes"] == ["kind 0", "kind 1", "kind 2", "kind 3"]
        members = torch.tensor([row["members"] for row in told["predictions"]]).transpose(0, 1)
        assert torch.allclose(members, wanted, atol=1e-6)


def test_requests_at_once_are_answered_as_if_alone(client: httpx.Client) -> None:
    inputs = images(40, seed=6)
    expected = image_model().posterior.probabilities(inputs)
    with ThreadPoolExecutor(16) as crowd:
        asked = list(crowd.map(lambda row: client.post("/predict", json={"inputs": row.tolist()}).json(), inputs))
    found = torch.tensor([told["predictions"][0]["probabilities"] for told in asked])
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (422, b"", "application/json"),
        (422, b'{"inputs": [NaN]}', "application/json"),
        (422, b'{"inputs": [1e999]}', "application/json"),
        (422, b"not a form", "multipart/form-data"),
        (422, b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x"),
        (422, b"\x89PNG", "image/png"),
        (413, b'{"inputs": [' + b"1," * 60_000 + b"1]}", "application/json"),
        (413, as_npy(torch.zeros(51, 1, 8, 8)), "application/octet-stream"),
        (413, png(torch.zeros(1, 65, 65, dtype=torch.uint8)), "image/png"),
        (415, b"<xml/>", "text/xml"),
        (422, as_npy(torch.full((1, 1, 8, 8), 3e38)), "application/octet-stream"),
    ],
)
def test_what_cannot_be_answered_is_refused(client: httpx.Client, status: int, content: bytes, kind: str) -> None:
    answer = client.post("/predict", content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert len(answer.json()["detail"]) > 10
    assert client.get("/healthz").json() == {"status": "ok"}


def test_a_body_of_unsaid_length_is_cut_off_too(client: httpx.Client) -> None:
    answer = client.post("/predict", content=(b"[" * 1000 for _ in range(200)))
    assert answer.status_code == 413


def test_resize_is_asked_for_in_words(client: httpx.Client) -> None:
    large = png(torch.zeros(1, 16, 16, dtype=torch.uint8))
    headers = {"content-type": "image/png"}
    assert client.post("/predict", content=large, headers=headers).status_code == 422
    assert client.post("/predict?resize=true", content=large, headers=headers).status_code == 200
    assert client.post("/predict?resize=maybe", content=large, headers=headers).status_code == 422


def test_it_tells_what_it_is_and_counts_what_it_does(client: httpx.Client) -> None:
    about = client.get("/metadata").json()
    assert about["input_shape"] == [1, 8, 8]
    assert about["members"] == 3
    assert about["limits"]["rows"] == 50
    assert "90%" in about["decisions"]["guarantee"]
    client.post("/predict", json={"inputs": images(2).tolist()})
    counted = client.get("/metrics").text
    assert 'mixupmp_requests_total{status="200"}' in counted
    assert "mixupmp_batch_rows_bucket" in counted
    assert client.get("/docs").status_code == 200
    assert "/predict" in client.get("/openapi.json").json()["paths"]
    examples = client.get("/examples").json()
    assert len(examples) == 12
    assert all(one["image"].startswith("data:image/png") for one in examples)


def test_a_token_guards_everything_but_the_empty_page_and_the_watchdogs_path() -> None:
    secret = "0123456789abcdef"
    app = create_app(image_model(held_out=False), LIMITS, token=secret, host="0.0.0.0")
    with served(app) as address, httpx.Client(base_url=address, headers={"host": "machine.example"}) as outside:
        for path in ("/", "/healthz", "/static/serve.js"):
            assert outside.get(path).status_code == 200
        for path in ("/metadata", "/metrics", "/examples", "/docs", "/openapi.json"):
            assert outside.get(path).status_code == 401
        assert outside.post("/predict", json={"inputs": images(1).tolist()}).status_code == 401
        known = {"authorization": f"Bearer {secret}"}
        assert outside.post("/predict", json={"inputs": images(1).tolist()}, headers=known).status_code == 200


def test_addresses_of_others_want_a_token_and_names_of_others_are_refused(client: httpx.Client) -> None:
    with pytest.raises(InvalidArgument, match="token"):
        create_app(image_model(held_out=False), host="0.0.0.0")
    with pytest.raises(InvalidArgument, match="16"):
        create_app(image_model(held_out=False), token="short", host="0.0.0.0")
    assert client.get("/metadata", headers={"host": "rebound.example"}).status_code == 421


def test_random_bodies_never_break_it(client: httpx.Client) -> None:
    """A short form of the ten thousand bodies of the slow test."""
    from .fuzz import bodies

    for kind, body in bodies(150, seed=1):
        answer = client.post("/predict?resize=true", content=body, headers={"content-type": kind})
        assert answer.status_code in (200, 413, 415, 422, 503), (kind, body[:80], answer.text)
        json.loads(answer.text)


def test_a_body_that_trickles_in_is_given_up() -> None:
    def trickle() -> Iterator[bytes]:
        yield b'{"inputs": '
        time.sleep(3)
        yield b"[1]}"

    with served(create_app(image_model(held_out=False), Limits(seconds=0.2))) as address:
        answer = httpx.post(address + "predict", content=trickle(), timeout=30)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert httpx.get(address + "healthz").status_code == 200
