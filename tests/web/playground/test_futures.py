from __future__ import annotations

from dataclasses import dataclass

import httpx
import pytest
from serve.live import served
from torch import Generator

from mixupmp.core.base_measures import BASE_MEASURES, AtLayer, CutMix
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument, MixupMPError
from mixupmp.web.playground.app import create_app
from mixupmp.web.playground.futures import PAPER, futures
from mixupmp.web.playground.live import frames
from mixupmp.web.playground.scene import Scene
from playground.toys import Mirrored

from .test_live import unpacked
from .test_scene import TWO_HEAPS

# In links that people have: none may ever be lost.
LINKED = {
    "mixup-mp", "bayesian-bootstrap", "dp-mp-perturbed", "dp-mp-uniform", "warped-mixup", "smote", "gaussian-copula",
    "feature-swap",
}  # fmt: skip


@dataclass(frozen=True)
class Shapeless:
    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        raise InvalidArgument("inputs", tuple(seen.inputs.shape), "volumes")


def test_no_name_of_a_link_is_lost() -> None:
    assert futures().keys() >= LINKED


def test_every_base_measure_for_tables_can_be_chosen() -> None:
    for name, base in BASE_MEASURES.items():
        if type(base).__module__.endswith((".tables", ".warped")):
            assert name in futures()
    assert not futures().keys() & {"cutmix", "mixup-cutmix", "mixup-at-layer", "sentence-splice", "mixup"}


def test_titles_and_descriptions_are_short_and_different() -> None:
    for one in futures().values():
        assert 0 < len(one.title) <= 24
        assert 0 < len(one.description) <= 80
    assert len({one.title for one in futures().values()}) == len(futures())


def test_one_line_in_the_list_brings_a_measure_to_the_playground(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MixupMPError, match="mirrored"):
        Scene.from_json(b'{"predictive": "mirrored"}')
    monkeypatch.setitem(BASE_MEASURES, "mirrored", Mirrored())
    found = futures()["mirrored"]
    assert (found.title, found.description) == ("Mirror MixupMP", "blends of pairs, seen from behind")
    assert found.settings == ("ratio", "alpha")
    scene = Scene("mirrored", ratio=2.0, alpha=0.3, members=2, steps=3, points=TWO_HEAPS)
    assert scene.method().predictive.base == Mirrored(0.3)
    told = list(unpacked(b"".join(frames(scene))))
    assert told[-1][0]["step"] == 3
    with served(create_app()) as address, httpx.Client(base_url=address, timeout=60) as client:
        page = client.get("/").text
        assert 'value="mirrored" data-settings="ratio alpha" data-heading="Mirror MixupMP"' in page
        assert "blends of pairs, seen from behind" in page
        sent = {"predictive": "mirrored", "members": 2, "steps": 2, "points": [list(point) for point in TWO_HEAPS]}
        assert client.post("/train", json=sent).status_code == 200


def test_measures_that_do_not_take_points_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(futures())
    for name, base in (("shapeless", Shapeless()), ("boxes", CutMix(0.5)), ("deep", AtLayer(Mirrored(), "body"))):
        monkeypatch.setitem(BASE_MEASURES, name, base)
    assert list(futures()) == before


def test_the_page_has_every_future_once() -> None:
    with served(create_app()) as address:
        page = httpx.get(address, timeout=60).text
    for name in futures():
        assert page.count(f'value="{name}"') == 1
    first, _, others = page.partition("Other futures")
    for one in PAPER:
        assert f'value="{one.name}"' in first
    assert 'value="warped-mixup"' in others
