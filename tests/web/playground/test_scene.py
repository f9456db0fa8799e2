from __future__ import annotations

import json
from math import inf

import pytest
import torch

from mixupmp import Posterior
from mixupmp.core.errors import BadData, MixupMPError
from mixupmp.train.vectorized.engine import VectorizedFit
from mixupmp.web.playground.futures import futures
from mixupmp.web.playground.scene import MOST_POINTS, Scene

TWO_HEAPS = tuple((x / 10, y / 10, label) for label, x, y in ((0, -50, -41), (0, -40, -52), (1, 45, 50), (1, 52, 47)))


@pytest.mark.parametrize("predictive", futures())
@pytest.mark.parametrize("points", [None, TWO_HEAPS])
def test_the_snippet_fits_the_members_that_the_page_shows(predictive: str, points: object) -> None:
    scene = Scene(predictive=predictive, ratio=0.5, members=2, steps=3, seed=4, points=points)  # type: ignore[arg-type]
    made: dict[str, object] = {}
    exec(scene.snippet(), {}, made)
    posterior = made["posterior"]
    assert isinstance(posterior, Posterior)
    live = VectorizedFit(scene.plan(), [(0,), (1,)])
    live.advance(3)
    inputs = torch.randn(5, 2)
    assert torch.allclose(posterior.member_outputs(inputs), live.outputs(inputs), atol=1e-5)
    live.close()


def test_a_scene_from_json_is_the_same_scene() -> None:
    told = {"predictive": "dp-mp-perturbed", "ratio": "inf", "variance": 2, "points": [list(p) for p in TWO_HEAPS]}
    scene = Scene.from_json(json.dumps(told).encode())
    assert scene == Scene("dp-mp-perturbed", inf, variance=2, points=TWO_HEAPS)
    assert Scene.from_json(b"{}") == Scene()


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ([], "scene"), ({"color": 1}, "color"), ({"predictive": "magic"}, "magic"), ({"ratio": -1}, "ratio"),
        ({"ratio": float("nan")}, "ratio"), ({"ratio": "much"}, "ratio"), ({"alpha": 0}, "alpha"),
        ({"alpha": float("inf")}, "alpha"), ({"members": 17}, "members"), ({"members": 2.5}, "members"),
        ({"members": True}, "members"), ({"steps": 10**9}, "steps"), ({"seed": -1}, "seed"), ({"points": 3}, "points"),
        ({"points": [[1, 2]]}, "points"), ({"points": [[99, 0, 0], [0, 0, 1]]}, "points"),
        ({"points": [[float("nan"), 0, 0], [0, 0, 1]]}, "points"), ({"points": [[0, 0, 9], [0, 0, 1]]}, "points"),
        ({"points": [["a", 0, 0], [0, 0, 1]]}, "points"), ({"points": [[0, 0, 0]] * (MOST_POINTS + 1)}, "points"),
    ],
)  # fmt: skip
def test_what_a_page_must_not_ask_for_is_named(told: object, named: str) -> None:
    with pytest.raises(MixupMPError, match=named):
        Scene.from_json(json.dumps(told).encode())


def test_one_class_leaves_nothing_to_learn() -> None:
    with pytest.raises(BadData, match="second one"):
        Scene(points=((0, 0, 1), (1, 1, 1))).plan()
