"""The short version of `make fuzz`: the same cases each time, and those that failed once."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("PIL")

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.trial import SECONDS, Trial, corpus, try_cases

CASES = 40


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_case_is_read_or_refused(target: Target, tmp_path: Path) -> None:
    check, trial = target.prepare(tmp_path), Trial(target.name)
    for content in target.valid():  # cases near a file that is refused as it is would try nothing
        check(content)
        trial.read.append(content)
    for path in corpus(target.name):
        trial.run(check, path.read_bytes())
    for seed in range(4):  # what Hypothesis draws depends on the process, and can be refused throughout
        try_cases(target, check, trial, CASES, seed, lambda content: None, around=2)
        if trial.accepted:
            break
    assert trial.cases >= CASES
    # Where all are refused, nothing behind the first checks is tried. Any change of a manifest is damage.
    assert trial.accepted or target.name == "manifest"
    assert trial.cpu < SECONDS
    assert not trial.failures, "\n".join(f"{what}: {case[:200]!r}" for what, case in trial.failures.items())
