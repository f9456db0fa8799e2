from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mixupmp.metrics import gini
from mixupmp.train.run import fit
from mixupmp.web.playground.live import SIDE, cells, frames, leads
from mixupmp.web.playground.scene import Scene

from .test_scene import TWO_HEAPS

CELLS = SIDE * SIDE


def unpacked(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Frames as the page takes them apart."""
    while data:
        size, words = struct.unpack_from("<II", data)
        yield json.loads(data[8 : 8 + words]), data[8 + words : 4 + size]
        data = data[4 + size :]


def test_frames_tell_the_scene_once_and_the_landscape_each_time() -> None:
    scene = Scene(members=3, steps=12, points=TWO_HEAPS)
    told = list(unpacked(b"".join(frames(scene))))
    assert len(told) >= 2
    first, last = told[0][0], told[-1][0]
    assert first["snippet"] == scene.snippet()
    assert first["seen"] == [list(point) for point in TWO_HEAPS]
    assert len(first["future"]) == 8
    assert "snippet" not in last
    assert last["step"] == last["steps"] == 12
    assert (last["members"], last["classes"], last["diverged"]) == (3, 2, [])
    for _, body in told:
        assert len(body) == CELLS * (2 + 3 * 2)


def test_the_last_landscape_is_that_of_a_fit() -> None:
    scene = Scene(members=2, steps=8, points=TWO_HEAPS)
    *_, (_, body) = unpacked(b"".join(frames(scene)))
    posterior = fit(scene.plan(), engine="vectorized")
    expected = gini(posterior.member_probabilities(cells()), rescale=True)
    shown = torch.frombuffer(bytearray(body[:CELLS]), dtype=torch.uint8) / 255
    assert torch.allclose(shown, expected, atol=1 / 254)
    likeliest = torch.frombuffer(bytearray(body[CELLS : 2 * CELLS]), dtype=torch.uint8)
    assert torch.equal(likeliest.long(), posterior.probabilities(cells()).argmax(1))


def test_a_class_leads_exactly_where_a_member_votes_for_it() -> None:
    outputs = torch.randn(3, 50, 4) * torch.tensor([1e-3, 1.0, 100.0]).view(3, 1, 1)
    lead = leads(outputs)
    assert lead.shape == (3, 4, 50)
    assert torch.equal(lead.argmax(1), outputs.argmax(-1))
    assert ((lead > 0).sum(1) == 1).all()


@pytest.mark.parametrize(("ratio", "rows", "weight"), [(0.0, 4, 1.0), (1.0, 8, 1.0), (float("inf"), 4, 1.0)])
def test_the_future_holds_the_rows_that_r_says(ratio: float, rows: int, weight: float) -> None:
    first, _ = next(unpacked(next(frames(Scene(ratio=ratio, members=1, steps=1, points=TWO_HEAPS)))))
    future = torch.tensor(first["future"])
    assert len(future) == rows
    assert future[:, 2].mean() == pytest.approx(weight, abs=0.01)
    assert torch.allclose(future[:, 3:].sum(1), torch.ones(rows), atol=0.01)


def test_it_stops_when_it_is_told_to() -> None:
    asked = iter([False, False, True])
    assert len(list(frames(Scene(members=1, steps=20_000, points=TWO_HEAPS), lambda: next(asked)))) == 2


def test_members_that_diverge_are_counted_out() -> None:
    points = tuple((15.0 * (1 if k % 2 else -1), 15.0 * (1 if k % 3 else -1), k % 2) for k in range(40))
    told = list(unpacked(b"".join(frames(Scene(learning_rate=5.0, members=6, steps=400, points=points)))))
    last, body = told[-1]
    assert last["members"] == 6 - len(last["diverged"])
    assert len(body) == (CELLS * (2 + 2 * last["members"]) if last["members"] else 0)
