"""From a run's folder to an `EvaluatedRun`; its predictions on the test rows are computed once and sealed into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from mixupmp.core.errors import BadRun
from mixupmp.core.member_summary import MemberSummary, left_out, member_notes
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset
from mixupmp.decide.calibrators import Calibrator, calibrator_of
from mixupmp.decide.detect import read_detector
from mixupmp.store.folder import RunFolder, checked_config, parse_member
from mixupmp.store.load import load
from mixupmp.store.lock import RunLocked
from mixupmp.store.manifest import Sealed
from mixupmp.store.record import read_record
from mixupmp.web.report.evaluated import EvaluatedRun, evaluated_run, method_title
from mixupmp.web.report.evaluation import Evaluation, evaluate, keep, kept
from mixupmp.web.report.page import write_report

Shifts = Sequence[tuple[str, int]]  # (corruption, severity)


def read_run(
    folder: str | Path,
    dataset: Dataset | Callable[[Posterior], Dataset],
    *,
    shifts: Shifts = (),
    title: str | None = None,
    same_data: bool = True,
) -> EvaluatedRun:
    """A finished run for a report. It is loaded once, and not at all where an earlier report's predictions serve.

    Parameters
    ----------
    folder
        The run's.
    dataset
        Its test rows, or a function that reads them for the run's posterior.
    shifts
        Corruptions of the test rows to evaluate too.
    title
        In the report; by default the method's name.
    same_data
        Whether `dataset`, where it is a function, reads what earlier predictions are of; else it is read and compared.
    """
    sealed = Sealed(folder)
    config = checked_config(sealed.json("config.json"), sealed.path)
    hashes, summaries = _members(sealed)
    posterior = cache(lambda: load(sealed.path))
    if callable(dataset) and not same_data:
        dataset = dataset(posterior())
    calibrator = calibrator_of(config)
    evaluation = kept(sealed, hashes, calibrator)
    if evaluation is None or not _covers(evaluation, dataset, shifts):
        evaluation = evaluate(posterior(), dataset(posterior()) if callable(dataset) else dataset, shifts, calibrator)
        # A run that is signed, on a read-only disk or in use by another report can be reported too, only not changed.
        with suppress(OSError, BadRun, RunLocked), RunFolder(folder).locked():
            keep(evaluation, sealed.path, hashes)
    record = read_record(config)
    survivors = len(summaries) - len(left_out(summaries))
    wanted = int(config.get("wanted", len(summaries)))
    return EvaluatedRun(
        title or method_title(record.method),
        record,
        evaluation,
        tuple(summaries),
        "" if survivors == wanted else f"{survivors} of {wanted}",
        tuple(map(str, config.get("notes", member_notes(summaries)))),
        str(sealed.path.absolute()),
        config,
        detector=read_detector(sealed),
    )


def keep_evaluation(folder: str | Path, posterior: Posterior, dataset: Dataset, shifts: Shifts = ()) -> Evaluation:
    """Evaluate a posterior that is in memory and seal its predictions into its run's folder, for a report to find."""
    run = RunFolder(folder)
    evaluation = evaluate(posterior, dataset, shifts, calibrator_of(run.config()))
    with run.locked():
        keep(evaluation, run.path, _members(Sealed(folder))[0])
    return evaluation


def report_fits(
    fits: Sequence[tuple[str, Posterior, Calibrator | None]],
    dataset: Dataset,
    path: str | Path,
    shifts: Shifts = (),
    title: str | None = None,
) -> Path:
    """Write the report of fits that are in memory, (name, posterior, calibrator), on a dataset's test rows."""
    runs = [evaluated_run(posterior, evaluate(posterior, dataset, shifts, c), name) for name, posterior, c in fits]
    return write_report(runs, path, title)


def _members(sealed: Sealed) -> tuple[list[str | None], list[MemberSummary]]:
    """Hashes of the members' weights, and the summaries of their fits."""
    names = sealed.names(r"members/\d{3,6}\.json")
    if not names:
        raise BadRun(f"{sealed.path} has no finished member. Continue with: mixupmp fit --resume {sealed.path}")
    records = [parse_member(sealed.json(name), sealed.path / name) for name in names]
    return [digest for _, digest in records], [summary for summary, _ in records]


def _covers(evaluation: Evaluation, dataset: Dataset | Callable[[Posterior], Dataset], shifts: Shifts) -> bool:
    """Whether an evaluation is of these test rows and shifts."""
    if isinstance(dataset, Dataset) and dataset.test.fingerprint() != evaluation.fingerprint:
        return False
    return set(shifts) <= {(point.corruption, point.severity) for point in evaluation.shifts}
