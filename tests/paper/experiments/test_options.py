"""--protocol, --device, --precision and --compile: every experiment applies each, or refuses it before any work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.plan import Plan
from mixupmp.paper import AUTHORS
from mixupmp.paper.experiments import EXPERIMENTS, experiment_named
from mixupmp.paper.experiments.clinc import EPOCHS, LINES, made_up, prepared
from mixupmp.paper.members import Wanted
from mixupmp.paper.study import Study
from mixupmp.train.plans import plan_for

ASKED: dict[str, dict[str, object]] = {
    "protocol": {"protocol": AUTHORS},
    "device": {"devices": ("cpu:0",)},
    "precision": {"precision": "bfloat16"},
    "compile": {"compiled": True},
}
APPLIED: dict[str, Callable[[Plan], bool]] = {
    "protocol": lambda plan: plan.method.predictive.normalize == "rows",
    "device": lambda plan: plan.device == "cpu:0",
    "precision": lambda plan: plan.recipe.precision == "bfloat16",
    "compile": lambda plan: plan.recipe.compile,
}
TRAIN_NOTHING = ("claims", "complexity")  # and take the protocol


class _Training(Exception):
    """Raised where an experiment would train."""


def first_plan(monkeypatch: pytest.MonkeyPatch, study: Study) -> Plan:
    """What the experiment would train first."""
    found: list[Plan] = []

    def train(self: Study, wanted: list[Wanted], on_progress: object = None) -> None:
        found.append(wanted[0].plan)
        raise _Training

    monkeypatch.setattr(Study, "train", train)
    with pytest.raises(_Training):
        experiment_named(study.name).run(study)
    return found[0]


@pytest.mark.parametrize("option", ASKED)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_applies_or_refuses_an_option(name: str, option: str, study, monkeypatch) -> None:
    one = replace(study(name), **ASKED[option])
    taken = getattr(experiment_named(name).load(), "OPTIONS", tuple(ASKED))
    if option not in taken:
        with pytest.raises(InvalidArgument, match=rf"^{option} must be .* in the experiment {name}, got "):
            experiment_named(name).run(one)
        assert not one.results.exists()
        assert not one.cache.path.exists()
    elif name not in TRAIN_NOTHING:
        assert APPLIED[option](first_plan(monkeypatch, one))


def test_the_options_that_are_refused() -> None:
    taken = {name: getattr(experiment_named(name).load(), "OPTIONS", None) for name in EXPERIMENTS}
    limited = {name: options for name, options in taken.items() if options is not None}
    training = ("device", "precision", "compile")
    assert limited == {
        **dict.fromkeys(("illustration-mp", "illustration-r", "illustration-alpha"), ("protocol", *training[:2])),
        **dict.fromkeys(("clinc", "spoken-digits", "blends"), training),
        **dict.fromkeys(("claims", "complexity"), ("protocol",)),
        **dict.fromkeys(("margins", "tables"), ()),
    }


def test_a_refusal_says_what_can_be_asked_for(study) -> None:
    one = replace(study("margins"), devices=("cuda:0", "cuda:1"))
    with pytest.raises(InvalidArgument) as refused:
        experiment_named("margins").run(one)
    assert str(refused.value) == (
        "device must be 'cpu' in the experiment margins, got 'cuda:0, cuda:1' (str). "
        "Leave --device out: of protocol, device, precision and compile it takes none."
    )
    with pytest.raises(InvalidArgument, match=r"--protocol out: .* it takes device, precision, compile\.$"):
        experiment_named("clinc").run(replace(study("clinc"), protocol=AUTHORS))


def test_the_default_options_leave_a_plan_as_it_is(study, monkeypatch) -> None:
    dataset, *_ = prepared(made_up())
    plan = plan_for(dataset, next(iter(LINES.values())), None, {"epochs": EPOCHS})
    assert Wanted(first_plan(monkeypatch, study("clinc"))).key == Wanted(plan).key


def test_a_scale_that_an_experiment_does_not_have_is_refused(study) -> None:
    with pytest.raises(InvalidArgument, match="scale must be one of smoke, cpu in the experiment blends, got 'paper'"):
        experiment_named("blends").run(replace(study("blends"), scale="paper"))
