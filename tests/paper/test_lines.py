"""Lines of the tables that cannot be run here are named, and the others are run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mixupmp import laplace, single_network
from mixupmp.paper import lines
from mixupmp.paper.lines import SINGLE, Line
from mixupmp.paper.report import on_test_rows, run_lines
from mixupmp.paper.settings import setting_named
from mixupmp.paper.study import Study


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
