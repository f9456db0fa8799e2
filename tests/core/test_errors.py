from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mixupmp.core.errors import (
    BadData,
    BadRun,
    DataNotFound,
    InvalidArgument,
    MissingExtra,
    MixupMPError,
    UnknownName,
)
from mixupmp.train.job import FitInterrupted


@pytest.mark.parametrize(
    "error",
    [
        MixupMPError("plain"),
        InvalidArgument("alpha", -1, "positive", "Try 1."),
        UnknownName("method", "mixupmp", ["mixup-mp", "mixup"]),
        MissingExtra("ray", "ray", "The engine 'ray'"),
        DataNotFound("not here"),
        BadData("truncated"),
        BadRun("damaged"),
        FitInterrupted(Path("run"), 15),
    ],
)
def test_errors_come_back_whole_from_a_worker_process(error: MixupMPError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_an_unknown_name_gets_the_nearest_one() -> None:
    assert "Did you mean 'mixup-mp'?" in str(UnknownName("method", "mixupmp", ["mixup-mp", "deep-ensemble"]))


def test_a_bad_argument_says_what_it_was_and_what_it_must_be() -> None:
    message = str(InvalidArgument("ratio", -0.5, "in [0, infinity]"))
    assert message == "ratio must be in [0, infinity], got -0.5 (float)."
