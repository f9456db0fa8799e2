"""Means over repeats, and what tables show."""

from __future__ import annotations

import math

import pytest
import torch

from mixupmp.core.errors import InvalidArgument
from mixupmp.metrics import Scores, display, summarize


def test_means_and_standard_errors_over_repeats() -> None:
    results = [{"acc": 0.9, "mutual_information": None}, {"acc": 0.8, "mutual_information": 0.1}, {"acc": 0.85}]
    summary = summarize(results)
    assert set(summary) == {"acc"}, "a measure that a repeat lacks has no mean"
    assert summary["acc"].mean == pytest.approx(0.85)
    assert summary["acc"].standard_error == pytest.approx(0.05 / math.sqrt(3))
    alone = summarize([Scores(2).update(torch.tensor([[0.25, 0.75]]), torch.tensor([1])).result()])
    assert alone["nll"].mean == pytest.approx(math.log(4 / 3))
    assert alone["nll"].standard_error is None
    assert alone["nll"].repeats == 1
    with pytest.raises(InvalidArgument, match="results"):
        summarize([])


def test_tables_show_percent_where_the_paper_does() -> None:
    assert display("ece", 0.0467) == ("ECE (%)", pytest.approx(4.67))
    assert display("nll", 0.53) == ("NLL", 0.53)
    assert display("adaptive_ece", 0.01) == ("Adaptive ECE (%)", pytest.approx(1.0))
    assert display("mutual_information", 0.2) == ("Mutual information", 0.2)
