"""What the 2-D figures say of their differences from the paper's."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.methods import deep_ensemble
from mixupmp.core.posterior import Posterior
from mixupmp.paper.experiments import experiment_named, landscape
from mixupmp.paper.study import Evaluation, Study


def ended(diverged: int, collapsed: int) -> Evaluation:
    return {"panel": "one", "diverged": diverged, "collapsed": collapsed, "networks": 10}


@pytest.mark.parametrize(("diverged", "collapsed"), [(0, 0), (1, 0), (0, 2)])
def test_members_are_said_to_be_left_out_where_some_are(diverged: int, collapsed: int) -> None:
    found = "; ".join(landscape.differences([ended(0, 0), ended(diverged, collapsed)]))
    assert ("left out" in found) == (diverged + collapsed > 0)
    assert "places and spread of the clusters are ours" in found


@pytest.mark.parametrize(
    ("name", "part", "has", "has_not"),
    [
        ("illustration-mp", "paper-recipe", ("N(0, 4) has variance 4", "c = n beside", "two panels more"), "infinity"),
        ("illustration-mp", "rate-0.1", ("N(0, 4) has variance 4", "c = n beside"), "two panels more"),
        ("illustration-r", "", ("r = 0, .1, 1, 10 and infinity",), "N(0, 4)"),
        ("illustration-alpha", "", ("the clusters are ours",), "infinity"),
    ],
)
def test_a_figure_lists_its_own_differences_in_caption_and_record(
    study: Callable[..., Study], name: str, part: str, has: tuple[str, ...], has_not: str
) -> None:
    one = study(name)
    experiment_named(name).run(one, [part] if part else [])
    folder = one.folder / part
    listed = "; ".join(json.loads((folder / "run.json").read_text())["differences"])
    assert all(words in listed for words in has)
    assert has_not not in listed
    assert f"Differs from the paper: {listed}." in (folder / "regions.md").read_text()


def test_a_panel_can_be_of_the_networks_alone_that_interpolate() -> None:
    half, collapsed = 0.61, MemberSummary(1, 10, 1, 0.1, 0.2, collapsed=True)
    ended = [MemberSummary(0, 10, 1, 0.1, 1.0), collapsed, MemberSummary(2, 10, 1, 0.1, half)]
    ended += [MemberSummary(3, 5, 1, 0.1, None, diverged_at=5), MemberSummary(4, 10, 1, 0.1, 0.99)]
    posterior = cast(Posterior, SimpleNamespace(summaries=ended))  # whose networks are those of members 0, 2 and 4
    every = landscape.Panel("all that are left", deep_ensemble(5))
    some = landscape.Panel("interpolating", deep_ensemble(5), interpolating=True)
    assert every.members_of(posterior) == [0, 1, 2]
    assert some.members_of(posterior) == [0, 2]
    found = landscape._those_left_out(posterior, [0, 2])
    assert found == {"training_accuracy": pytest.approx(0.995), "collapsed": 2}
