"""A member whose outputs do not depend on its inputs is found, named and left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mixupmp import Posterior, Recipe, deep_ensemble, load, plan_for
from mixupmp.core.member_summary import MemberSummary, left_out
from mixupmp.core.plan import Plan, initial_weights
from mixupmp.train.run import Engine, RunFolder, fit
from small_data import small_table

SHORT = Recipe(epochs=1, batch_size=16, learning_rate=1e-4)
NOTE = "member {} collapsed: its outputs do not depend on its inputs"


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
    assert posterior.notes == (NOTE.format(1),)
    assert "2 of 3" in repr(posterior)
    assert [summary.collapsed for summary in posterior.summaries] == [False, True, False]
    assert NOTE.format(1) in (tmp_path / "run" / "README.md").read_text()
    resumed = fit(plan((1,), engine), engine=engine, run=tmp_path / "run", resume=True)
    back = load(tmp_path / "run", lambda: network(engine == "vectorized"))
    rows = small_table().test.inputs
    assert torch.equal(resumed.probabilities(rows), posterior.probabilities(rows))
    assert torch.equal(back.probabilities(rows), posterior.probabilities(rows))
    assert back.notes == posterior.notes


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_it_is_kept_where_that_is_asked_for(engine: Engine, tmp_path: Path) -> None:
    posterior = fit(plan((1,), engine), engine=engine, run=tmp_path, keep_collapsed=True)
    assert posterior.members == 3
    assert posterior.notes == ()
    assert load(tmp_path, lambda: network(engine == "vectorized")).members == 3
    assert RunFolder(tmp_path).summary(1) is not None


def test_where_all_have_collapsed_they_are_kept_and_named() -> None:
    posterior = fit(plan((0, 1), "inline", members=2), engine="inline")
    assert posterior.members == 2
    assert posterior.notes == tuple(f"{NOTE.format(member)} (kept, as all collapsed)" for member in (0, 1))


def ended(*accuracies: tuple[float, bool]) -> list[MemberSummary]:
    return [MemberSummary(m, 1, 1, 0.0, accuracy, one_class=one) for m, (accuracy, one) in enumerate(accuracies)]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([(1.0, False), (0.575, True), (0.99, False)], [1]),
        ([(0.57, False), (0.575, True), (0.58, False)], []),  # the others have learned nothing either
        ([(0.955, False), (0.95, True), (0.96, False)], []),  # uneven classes: hardly worse than the others
        ([(1.0, False), (0.575, True), (0.575, True)], []),  # most of them: that is no accident
    ],
)
def test_one_class_for_all_rows_is_a_collapse_where_most_others_have_learned(members, expected) -> None:
    assert list(left_out(ended(*members))) == expected


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_a_member_that_predicts_the_majority_class_alone_is_left_out(engine: Engine, tmp_path: Path) -> None:
    table = small_table()
    made = plan((), engine)
    longer = replace(made, recipe=replace(SHORT, epochs=60, learning_rate=0.1))
    trained = initial_weights(fit(longer, engine=engine))
    bias = next(name for name in trained[1] if name.endswith("2.bias"))
    trained[1][bias][0] += 1e3  # class 0 for every row, though the outputs still depend on it
    posterior = fit(replace(made, initial=trained), engine=engine, run=tmp_path)
    assert posterior.notes == ("member 1 collapsed: it predicts one class for all rows",)
    assert posterior.members == load(tmp_path, lambda: network(engine == "vectorized")).members == 2
    kept = fit(replace(made, initial=trained), engine=engine, keep_collapsed=True)
    assert kept.members == 3
    assert kept.probabilities(table.test.inputs).shape == (len(table.test), 3)


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_a_member_that_has_hardly_learned_is_not_collapsed(engine: Engine) -> None:
    posterior = fit(plan((), engine), engine=engine)
    assert members_of(posterior) == [0, 1, 2]
    assert posterior.notes == ()
