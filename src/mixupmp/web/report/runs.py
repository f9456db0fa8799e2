"""From a run's folder to a report's subject: its answers on the test rows are worked out once and kept beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mixupmp.core.errors import BadRun
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Summary
from mixupmp.core.rows import Dataset
from mixupmp.store.folder import RunFolder, checked_config, parse_member
from mixupmp.store.load import load
from mixupmp.store.lock import RunLocked
from mixupmp.store.manifest import Sealed
from mixupmp.web.report.evaluation import Evaluation, evaluate, keep, kept
from mixupmp.web.report.page import write_report
from mixupmp.web.report.subject import Subject, subject_of, title_of


def read_run(
    folder: str | Path,
    dataset: Dataset | Callable[[], Dataset],
    *,
    shifts: Sequence[tuple[str, int]] = (),
    title: str | None = None,
) -> Subject:
    """A finished run as a report's subject.

    The evaluation that an earlier report sealed into the run is used where it is of the same members and has these
    shifts; otherwise the run is loaded and evaluated. `dataset` may be a function, called only where it is needed.
    """
    sealed = Sealed(folder)
    config = checked_config(sealed.json("config.json"), sealed.path)
    hashes, stories = _members(sealed)
    evaluation = kept(sealed, hashes)
    if evaluation is None or not _covers(evaluation, dataset, shifts):
        given = dataset if isinstance(dataset, Dataset) else dataset()
        evaluation = evaluate(load(sealed.path), given, shifts)
        # A run that is signed, on a read-only disk or in use by another report can be reported too, only not changed.
        with suppress(OSError, BadRun, RunLocked), RunFolder(folder).locked():
            keep(evaluation, sealed.path, hashes)
    description = config["plan"]
    survivors = sum(story.diverged_at is None for story in stories)
    wanted = int(config.get("wanted", len(stories)))
    lost = [f"member {s.member} diverged at step {s.diverged_at}" for s in stories if s.diverged_at is not None]
    return Subject(
        title or title_of(description), description, evaluation, tuple(stories),
        "" if survivors == wanted else f"{survivors} of {wanted}", tuple(map(str, config.get("notes", lost))),
        str(sealed.path.absolute()), config,
    )  # fmt: skip


def keep_evaluation(
    folder: str | Path, posterior: Posterior, dataset: Dataset, shifts: Sequence[tuple[str, int]] = ()
) -> Evaluation:
    """Evaluate a posterior that is in memory and keep the answers in its run's folder, for a report to find."""
    run = RunFolder(folder)
    evaluation = evaluate(posterior, dataset, shifts)
    with run.locked():
        keep(evaluation, run.path, _members(Sealed(folder))[0])
    return evaluation


def report_fits(
    fits: Sequence[tuple[str, Plan, Posterior]],
    dataset: Dataset,
    path: str | Path,
    shifts: Sequence[tuple[str, int]] = (),
    title: str | None = None,
) -> Path:
    """The report of fits that are in memory - (name, plan, posterior) - on a dataset's test rows; returns its path."""
    subjects = [
        subject_of(plan, posterior, evaluate(posterior, dataset, shifts), name) for name, plan, posterior in fits
    ]
    return write_report(subjects, path, title)


def _members(sealed: Sealed) -> tuple[list[str | None], list[Summary]]:
    """Hashes of the members' weights, and the summaries of their fits."""
    names = sealed.names(r"members/\d{3,6}\.json")
    if not names:
        raise BadRun(f"{sealed.path} has no finished member. Go on with: mixupmp fit --resume {sealed.path}")
    records = [parse_member(sealed.json(name), sealed.path / name) for name in names]
    return [digest for _, digest in records], [summary for summary, _ in records]


def _covers(
    evaluation: Evaluation, dataset: Dataset | Callable[[], Dataset], shifts: Sequence[tuple[str, int]]
) -> bool:
    """Whether what was kept answers what is asked now."""
    if isinstance(dataset, Dataset) and dataset.test.fingerprint() != evaluation.fingerprint:
        return False
    return set(shifts) <= {(point.corruption, point.severity) for point in evaluation.shifts}
