"""A member whose predictions do not depend on its inputs is always named, and left out where others have learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mixupmp import Posterior, Recipe, Rows, deep_ensemble, load, plan_for
from mixupmp.core.member_summary import MemberSummary, left_out, member_notes
from mixupmp.core.plan import Plan, initial_weights
from mixupmp.store.folder import RunFolder
from mixupmp.train.run import Engine, fit
from small_data import small_table

SHORT = Recipe(epochs=1, batch_size=16, learning_rate=1e-4)
COLLAPSED = "collapsed: the outputs do not depend on the inputs"


class Wrapped(nn.Module):
    """Keeps a network from being vectorized."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs)


def network(vectorized: bool) -> nn.Module:
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return inner if vectorized else Wrapped(inner)


def plan(dead: tuple[int, ...], engine: str, members: int = 3) -> Plan:
    """Members that start with all units dead, which no gradient can bring back, and others."""
    vectorized = engine == "vectorized"
    made = plan_for(small_table(), deep_ensemble(members), lambda: network(vectorized), SHORT)
    initial = []
    for member in range(members):
        torch.manual_seed(member)
        state = network(vectorized).state_dict()
        if member in dead:
            bias = next(name for name in state if name.endswith("0.bias"))
            state[bias].fill_(-1e6)
        initial.append(state)
    return replace(made, initial=initial)


def members_of(posterior: Posterior) -> list[int]:
    return [s.member for s in posterior.summaries if not s.collapsed]


@pytest.mark.parametrize("engine", ["inline", "vectorized", "processes"])
def test_a_collapsed_member_is_left_out_and_named(engine: Engine, tmp_path: Path) -> None:
    posterior = fit(plan((1,), engine), engine=engine, run=tmp_path / "run")
    assert posterior.members == 2
    assert posterior.notes == (f"member 1 {COLLAPSED}; left out",)
    assert "2 of 3" in repr(posterior)
    assert [summary.collapsed for summary in posterior.summaries] == [False, True, False]
    assert f"Note: member 1 {COLLAPSED}; left out." in (tmp_path / "run" / "README.md").read_text()
    resumed = fit(plan((1,), engine), engine=engine, run=tmp_path / "run", resume=True)
    back = load(tmp_path / "run", lambda: network(engine == "vectorized"))
    rows = small_table().test.inputs
    assert torch.equal(resumed.probabilities(rows), posterior.probabilities(rows))
    assert torch.equal(back.probabilities(rows), posterior.probabilities(rows))
    assert back.notes == posterior.notes


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_it_is_kept_where_that_is_asked_for_and_still_named(engine: Engine, tmp_path: Path) -> None:
    posterior = fit(plan((1,), engine), engine=engine, run=tmp_path, keep_collapsed=True)
    back = load(tmp_path, lambda: network(engine == "vectorized"))
    assert posterior.members == back.members == 3
    assert posterior.notes == back.notes == (f"member 1 {COLLAPSED}; kept, as keep_collapsed says",)
    summary = RunFolder(tmp_path).summary(1)
    assert summary is not None
    assert summary.collapsed
    assert summary.keep


@pytest.mark.parametrize(("members", "named"), [(1, "member 0"), (2, "members 0, 1")])
def test_where_all_have_collapsed_they_are_kept_and_named_with_what_to_do(members: int, named: str) -> None:
    posterior = fit(plan((0, 1), "inline", members), engine="inline")
    assert posterior.members == members
    (note,) = posterior.notes
    assert note.startswith(f"{named} {COLLAPSED}; kept")
    assert note.endswith("lower the learning rate or train longer")


LEARNED, CONSTANT = (0.99, False), (0.1, True)


def ended(*accuracies: tuple[float, bool], keep: bool = False) -> list[MemberSummary]:
    return [
        MemberSummary(m, 1, 1, 0.0, accuracy, one_class=one, keep=keep) for m, (accuracy, one) in enumerate(accuracies)
    ]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([(1.0, False), (0.575, True), (0.99, False)], [1]),
        ([(0.57, False), (0.575, True), (0.58, False)], []),  # the others have learned nothing either
        ([(0.955, False), (0.95, True), (0.96, False)], []),  # uneven classes: hardly worse than the others
        ([(1.0, False), (0.575, True), (0.575, True)], []),  # most of them: that is no accident
        ([LEARNED, CONSTANT], [1]),
        ([LEARNED] * 5 + [CONSTANT] * 5, [5, 6, 7, 8, 9]),
        ([LEARNED] + [CONSTANT] * 9, [1, 2, 3, 4, 5, 6, 7, 8, 9]),  # a tenth of the rows is no majority
        ([(0.4, False), CONSTANT], [1]),  # little is learned, but it is
        ([(0.6, False), (0.333, True), (0.62, False)], []),  # all have hardly begun
        ([CONSTANT], []),
        ([(0.95, True)] * 4, []),  # uneven classes: they agree
        ([(1.0, True)] * 2, []),  # there is one class
    ],
)
def test_one_class_for_all_rows_is_left_out_where_others_have_learned(members, expected) -> None:
    assert list(left_out(ended(*members))) == expected
    assert left_out(ended(*members, keep=True)) == {}
    collapsed = sum(one and accuracy < 1 for accuracy, one in members)
    for keep in (False, True):
        named = [note.split(" predicted")[0].split(" ", 1)[1] for note in member_notes(ended(*members, keep=keep))]
        assert sum(len(numbers.split(", ")) for numbers in named) == collapsed


def test_what_is_kept_is_named_with_its_share_and_what_to_do() -> None:
    (note,) = member_notes(ended(CONSTANT))
    assert note.startswith("member 0 predicted one class for all training rows, right for 10.0%; kept")
    assert note.endswith("lower the learning rate or train longer")
    (note,) = member_notes(ended(*[(0.95, True)] * 3))
    assert note.startswith("members 0, 1, 2 predicted one class")
    assert "uneven" in note


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_a_rare_class_that_is_predicted_now_and_then_is_seen(engine: Engine) -> None:
    """One row in 600 is of another class, and is told from the others: more rows than are looked at for constancy."""
    inputs = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(600, dtype=torch.int64)
    inputs[1], labels[1] = 50.0, 1
    state = network(engine == "vectorized").state_dict()
    for name, value in state.items():
        value.zero_()
        if name.endswith("0.weight"):
            value[0] = 1.0
        elif name.endswith("2.weight"):
            value[1, 0] = 1.0
        elif name.endswith("2.bias"):
            value[0] = 100.0
    made = replace(plan((), engine, members=1), train=Rows(inputs, labels), initial=[state])
    (summary,) = fit(made, engine=engine).summaries
    assert summary.training_accuracy == 1
    assert not summary.one_class


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_a_member_that_predicts_the_majority_class_alone_is_left_out(engine: Engine, tmp_path: Path) -> None:
    table = small_table()
    made = plan((), engine)
    longer = replace(made, recipe=replace(SHORT, epochs=60, learning_rate=0.1))
    trained = initial_weights(fit(longer, engine=engine))
    bias = next(name for name in trained[1] if name.endswith("2.bias"))
    trained[1][bias][0] += 1e3  # class 0 for every row, though the outputs still depend on it
    posterior = fit(replace(made, initial=trained), engine=engine, run=tmp_path)
    (note,) = posterior.notes
    assert note.startswith("member 1 predicted one class for all training rows")
    assert note.endswith("; left out")
    assert posterior.members == load(tmp_path, lambda: network(engine == "vectorized")).members == 2
    kept = fit(replace(made, initial=trained), engine=engine, keep_collapsed=True)
    assert kept.members == 3
    assert kept.notes == (note.replace("left out", "kept, as keep_collapsed says"),)
    assert kept.probabilities(table.test.inputs).shape == (len(table.test), 3)


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_a_member_that_has_hardly_learned_is_not_collapsed(engine: Engine) -> None:
    posterior = fit(plan((), engine), engine=engine)
    assert members_of(posterior) == [0, 1, 2]
    assert posterior.notes == ()
