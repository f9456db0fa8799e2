from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from serve.live import served

from mixupmp.core.errors import InvalidArgument
from mixupmp.web.playground.app import LARGEST_BODY, TrainingQueue, create_app
from mixupmp.web.playground.scene import Scene

from .test_live import unpacked
from .test_scene import TWO_HEAPS


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with served(create_app()) as address, httpx.Client(base_url=address, timeout=60) as running:
        yield running


def test_the_page_and_its_scripts_are_there(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    for name in ("playground.js", "scene.js", "stream.js", "draw.js", "colors.js"):
        script = client.get(f"/static/{name}")
        assert script.status_code == 200
        assert script.headers["content-type"].startswith("text/javascript")
    assert client.get("/static/app.py").status_code == 404
    assert client.get("/static/..%2Fapp.py").status_code == 404


def test_a_scene_is_trained_to_its_end(client: httpx.Client) -> None:
    scene = {"members": 2, "steps": 7, "points": [list(point) for point in TWO_HEAPS]}
    told = list(unpacked(client.post("/train", json=scene).content))
    assert told[-1][0]["step"] == 7


@pytest.mark.parametrize("body", [b"", b"[", b"null", b'{"ratio": 1e999, "alpha": NaN}', b"\xff" * 10, b"[" * 9000])
def test_bad_scenes_are_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/train", content=body)
    assert answer.status_code == 422
    assert answer.json()["detail"]


def test_a_scene_that_is_too_large_is_refused(client: httpx.Client) -> None:
    assert client.post("/train", content=b" " * (LARGEST_BODY + 1)).status_code == 413


def test_only_this_machine_is_answered(client: httpx.Client) -> None:
    assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 421
    with pytest.raises(InvalidArgument, match="token"):
        create_app(host="0.0.0.0")


def test_a_token_is_wanted_where_one_is_set() -> None:
    app = create_app(token="a long enough secret", host="0.0.0.0")
    with served(app) as address, httpx.Client(base_url=address, headers={"host": "machine.example"}) as outside:
        assert outside.get("/healthz").status_code == 200
        assert outside.get("/").status_code == 401
        assert outside.get("/", headers={"authorization": "Bearer a long enough secret"}).status_code == 200
        assert outside.get("/", headers={"authorization": "Bearer a long enough secreT"}).status_code == 401


def test_a_third_scene_stops_the_first() -> None:
    queue = TrainingQueue(at_once=2)
    scene = Scene(members=1, steps=20_000, points=TWO_HEAPS)
    running = [queue.train(scene) for _ in range(3)]
    for stream in running:
        next(stream)
    with pytest.raises(StopIteration):
        next(running[0])
    assert len(queue.active) == 2
    for stream in running[1:]:
        assert next(unpacked(next(stream)))[0]["step"] > 0
        stream.close()  # type: ignore[attr-defined]
    assert not queue.active
