"""Lines of the tables that cannot be run here are named, and the others are run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from torch import nn

from mixupmp import laplace, mc_dropout, single_network
from mixupmp.core.posterior import Posterior
from mixupmp.paper import lines
from mixupmp.paper.lines import Line, open_choices
from mixupmp.paper.protocols import AUTHORS, TEXT, Protocol
from mixupmp.paper.reference import IMPLICIT, SINGLE
from mixupmp.paper.report import _over, made_with, on_test_rows, run_lines, training_notes
from mixupmp.paper.settings import on_shared_repeats, setting_named
from mixupmp.paper.study import Evaluation, Study


def test_a_line_whose_package_is_not_installed_is_left_out_and_named(
    study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "find_spec", lambda name: None)
    setting = setting_named("fmnist", "smoke")
    setting = replace(setting, recipe=replace(setting.recipe, epochs=1))
    both = [Line(SINGLE, "NN", single_network()), Line(SINGLE, "Laplace", laplace(2))]
    evaluated, missing = run_lines(study(), setting, both, on_test_rows(setting))
    assert [line.label for line, _ in evaluated] == ["NN"]
    assert missing == ["Laplace (the package laplace is not installed)"]


@pytest.mark.parametrize(
    ("name", "protocol", "place"),
    [
        ("fmnist", TEXT, "after the linear layers"),
        ("fmnist", AUTHORS, "after the convolutions and the linear layers"),
        ("cifar10", TEXT, "between the two convolutions of a block"),
        ("cifar10", AUTHORS, "between the two convolutions of a block"),
    ],
)
def test_what_the_text_leaves_open_depends_on_network_and_protocol(name: str, protocol: Protocol, place: str) -> None:
    setting = setting_named(name, "cpu").under(protocol)
    listed = "; ".join(open_choices(setting))
    assert f"dropout is {place}, as" in listed
    assert "single models are members of the ensembles" in listed
    # As many as a network built from the setting has: the CNN has two linear layers before its head.
    network = setting.sized_network((1, 28, 28) if name == "fmnist" else (3, 32, 32), 10, 0.3)()
    found = sum(isinstance(module, nn.Dropout) for module in network.modules())
    assert found == {"after the linear layers": 2, "after the convolutions and the linear layers": 4}.get(place, 6)


class _Stopped(Exception):
    pass


@dataclass(frozen=True)
class _StopsAt:
    """An evaluator of which the so-manieth call raises, as a run that is stopped does."""

    calls: list[str]
    last: int
    key: str = "stops"

    def __call__(self, posterior: Posterior) -> Evaluation:
        if len(self.calls) == self.last:
            raise _Stopped
        self.calls.append(type(posterior).__name__)
        return {"acc": 0.5}


def test_evaluations_are_written_one_by_one_and_implicit_ensembles_come_last(study: Callable[..., Study]) -> None:
    setting = setting_named("fmnist", "smoke")
    setting = replace(setting, recipe=replace(setting.recipe, epochs=1))
    both = [Line(IMPLICIT, "MC Dropout", mc_dropout(2)), Line(SINGLE, "NN", single_network())]
    one, written = study(), []
    run_lines(one, setting, both, on_test_rows(setting))  # trains them
    stops = _StopsAt([], 3)
    with pytest.raises(_Stopped):
        run_lines(one, setting, both, lambda seed: stops, lambda evaluated, missing: written.append(missing))
    assert stops.calls == ["EnsemblePosterior"] * 2 + ["DropoutPosterior"]
    assert written == [
        ["MC Dropout (0 of 2 runs)", "NN (1 of 2 runs)"],
        ["MC Dropout (0 of 2 runs)"],
        ["MC Dropout (1 of 2 runs)"],
    ]
    evaluated, missing = run_lines(one, setting, both, lambda seed: _StopsAt([], 1))  # goes on where it was stopped
    assert ([len(found) for _, found in evaluated], missing) == ([2, 2], [])


def test_an_unfinished_table_compares_lines_on_the_repeats_that_all_have() -> None:
    whole, begun = [{"seed": n, "acc": n / 10} for n in range(4)], [{"seed": n, "acc": 0.5} for n in (2, 0)]
    assert on_shared_repeats([whole, begun]) == [[whole[0], whole[2]], begun]
    # One shared repeat has no error: then each line keeps its own, as single models beside ensembles do.
    assert on_shared_repeats([whole, begun[:1]]) == [whole, begun[:1]]
    assert on_shared_repeats([[{"acc": 0.1}], whole]) == [[{"acc": 0.1}], whole]
    assert on_shared_repeats([]) == []


def test_an_unfinished_table_says_where_its_lines_have_other_repeats() -> None:
    line, three = Line(SINGLE, "NN", single_network()), [{"seed": n} for n in range(3)]
    assert _over([(line, three), (line, three[::-1])]).startswith("Over the repeats that all lines have")
    assert _over([(line, three), (line, three[:1])]).startswith("Lines have repeats of their own")


def test_a_report_tells_with_what_its_evaluations_were_made() -> None:
    line = Line(SINGLE, "NN", single_network())
    old, new = {"date": "2026-01-01", "torch": "2.6"}, {"date": "2026-03-01", "torch": "2.13"}
    also_old = {**old, "date": "2026-02-01"}
    found = made_with([(line, [{"made": new}, {"made": old}]), (line, [{"made": also_old}, {"acc": 0.9}])])
    assert found == [
        {"evaluations": 1, "first": "2026-03-01", "last": "2026-03-01", "torch": "2.13"},
        {"evaluations": 2, "first": "2026-01-01", "last": "2026-02-01", "torch": "2.6"},
        {"evaluations": 1, "first": "not recorded", "last": "not recorded"},
    ]


@pytest.mark.parametrize(
    ("share", "shown"), [(1.0, "100.00"), (0.99995, "99.995"), (0.9999, "99.99"), (0.9651, "96.51")]
)
def test_a_few_wrong_rows_are_not_shown_as_none(share: float, shown: str) -> None:
    assert training_notes([{"training_accuracy": share, "networks": 1}])["train ACC (%)"].startswith(shown)
