"""`mixupmp detect`: which rows are unlike those that a run was fitted to."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from mixupmp.cli.catalogs import names
from mixupmp.cli.options import OTHER_DATA, DataRoot, FalseAlarm, Input, InsteadOfInput, Json, Resize, Run
from mixupmp.cli.output import SHOWN, check_out, csv_file, first_rows, json_file, remark, show
from mixupmp.core.errors import BadRun, InvalidArgument

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mixupmp.core.posterior import Posterior
    from mixupmp.decide.detect import Detected, Detector
    from mixupmp.metrics import Detection

_HELD_OUT = f"Data not used for training, for an exact rate: {OTHER_DATA}. \\[the rows that the fit held out]"
_SCORE = f"{names('mixupmp.decide.detect.SCORES')}, or auto: nearest if the held-out rows have it, else entropy."
_METRICS = "Also print how well the score separates these rows from the run's test rows: AUROC, AUPR, FPR95."


def command(
    run: Run,
    given: Input = None,
    data: InsteadOfInput = None,
    data_root: DataRoot = None,
    false_alarm: FalseAlarm = 0.05,
    score: Annotated[str, typer.Option(help=_SCORE)] = "auto",
    held_out: Annotated[str | None, typer.Option(metavar="DATA", help=_HELD_OUT)] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help=_METRICS)] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to .json or .csv.")] = None,
    resize: Resize = False,
    as_json: Json = False,
) -> None:
    """Flag rows unlike the training data, with a bound on the rate of false alarms.

    A row's p-value is the share of held-out rows that are as strange; it is flagged where that is at most the rate.

    [bold]Examples[/bold]

        mixupmp detect runs/first --input digits.npy --false-alarm 0.01 --out flags.csv
        mixupmp detect runs/first --data mnist --metrics
        mixupmp detect runs/first --input photo.png --score nearest --held-out more-photos/
    """
    from mixupmp.cli.inputs import test_inputs, wanted_inputs
    from mixupmp.cli.scoring import classes_of
    from mixupmp.core.files import write_atomically
    from mixupmp.store.load import load

    if (given is None) == (data is None):
        raise InvalidArgument("--input", given, "given, or --data, and not both")
    check_out(out, (".json", ".csv"))
    posterior = load(run)
    classes_of(posterior)
    detector = _detector(run, posterior, held_out, data_root)
    inputs, files = wanted_inputs(run, posterior.task, given, resize, data, data_root)
    found = detector.detect(posterior, inputs, score, false_alarm)
    if out is not None:
        write_atomically(out, (csv_file if out.suffix == ".csv" else json_file)(_records(found, files)))
    apart = None
    if metrics:
        own = test_inputs(run, None, data_root, posterior.task)
        apart = _separation(detector.detect(posterior, own, found.score, false_alarm), found)
    result: dict[str, object] = {
        "run": str(run),
        "rows": len(inputs),
        "score": found.score,
        "false_alarm": false_alarm,
        "threshold": found.threshold,
        "flagged": int(found.flagged.sum()),
        "guarantee": detector.guarantee(false_alarm),
        "metrics": None if apart is None else asdict(apart),
        "out": None if out is None else str(out),
    }
    if as_json and out is None:
        result["detected"] = _records(found, files)
    show(as_json, result, _lines(found, files, detector, apart, out))


def _detector(run: Path, posterior: Posterior, held_out: str | None, root: str | None) -> Detector:
    from mixupmp.cli.inputs import test_inputs
    from mixupmp.decide.detect import fit_detector, read_detector
    from mixupmp.store.manifest import Sealed

    kept = read_detector(Sealed(run))
    if held_out is not None:
        rows = test_inputs(run, held_out, root, posterior.task)
        return fit_detector(posterior, rows, None if kept is None else kept.reference)
    if kept is None or not kept.held_out:
        raise BadRun(f"{run} was fitted without held-out rows: give some that it was not trained on, --held-out DATA")
    if kept.refitted:
        remark("note: members were fitted again after rows were held out: the rate is approximate without --held-out")
    return kept


def _separation(familiar: Detected, found: Detected) -> Detection:
    import torch

    from mixupmp.metrics import detection

    return detection(torch.from_numpy(familiar.scores), torch.from_numpy(found.scores))


def _records(found: Detected, files: tuple[str, ...], most: int | None = None) -> list[dict[str, Any]]:
    columns = (found.scores, found.p_values, found.flagged)
    lines = zip(*(column[:most].tolist() for column in columns), strict=True)
    names = [{"row": row, **({"file": files[row]} if files else {})} for row in range(len(found.scores))]
    return [name | {"score": s, "p_value": p, "flagged": f} for name, (s, p, f) in zip(names, lines, strict=False)]


def _lines(
    found: Detected, files: tuple[str, ...], detector: Detector, apart: Detection | None, out: Path | None
) -> list[RenderableType]:
    rows, flagged = len(found.flagged), int(found.flagged.sum())
    guarantee = detector.guarantee(found.false_alarm)
    head = f"{flagged} of {rows} rows are flagged ({100 * flagged / rows:.1f}%) by {found.score}."
    lines: list[RenderableType] = [Text(f"{head} {guarantee[0].upper()}{guarantee[1:]}.")]
    if apart is not None:
        shown = ", ".join(f"{name.replace('_', ' ').upper()} {value:.3f}" for name, value in asdict(apart).items())
        lines.append(Text(f"Against the run's own test rows: {shown}"))
    if out is not None:
        return [*lines, Text(f"Scores, p-values and flags are in {out}")]
    table = [
        {
            "file" if files else "row": str(one.get("file", one["row"])),
            "score": f"{one['score']:.4g}",
            "p-value": f"{one['p_value']:.3g}",
            "flagged": "yes" if one["flagged"] else "",
        }
        for one in _records(found, files, SHOWN)
    ]
    return [*lines, *first_rows(table, rows)]
