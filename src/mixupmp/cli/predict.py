"""`mixupmp predict`: probabilities, and how sure they are, for rows without labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from mixupmp.cli.options import OTHER_DATA, DataRoot, Json, Run
from mixupmp.cli.output import show
from mixupmp.core.errors import InvalidArgument, check

if TYPE_CHECKING:
    from torch import Tensor

    from mixupmp.cli.predicted import Predicted
    from mixupmp.core.posterior import Posterior
    from mixupmp.decide.calibrators import Calibrator

ENDINGS = (".npy", ".npz", ".json", ".csv")
SHOWN = 10  # rows on the terminal
_INPUT = (
    "An array (.npy, .npz), a table of features (.csv, with or without the labels), an image or sound (.wav), "
    "a folder of them, or sentences (.txt)."
)
_DATA = f"Instead of --input: {OTHER_DATA}."
_OUT = "Write to .npy, .npz, .json or .csv. \\[print the first rows]"


def command(
    run: Run,
    given: Annotated[Path | None, typer.Option("--input", metavar="FILE", help=_INPUT)] = None,
    data: Annotated[str | None, typer.Option(help=_DATA)] = None,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=_OUT)] = None,
    resize: Annotated[bool, typer.Option("--resize", help="Resize images that do not have the run's size.")] = False,
    as_json: Json = False,
) -> None:
    """Predict probabilities, the most probable class, entropy and mutual information (disagreement).

    [bold]Examples[/bold]

        mixupmp predict runs/first --input digits.npy --out predicted.csv
        mixupmp predict runs/first --input photos/ --resize --out predicted.csv
        mixupmp predict runs/first --data digits
    """
    from mixupmp.cli.inputs import wanted_inputs
    from mixupmp.cli.predicted import write_predicted
    from mixupmp.cli.scoring import classes_of
    from mixupmp.decide.calibrators import calibrator_of
    from mixupmp.store.folder import RunFolder
    from mixupmp.store.load import load

    if (given is None) == (data is None):
        raise InvalidArgument("--input", given, "given, or --data, and not both")
    if out is not None:
        check_out(out)
    posterior = load(run)
    classes_of(posterior)
    inputs, files = wanted_inputs(run, posterior.task, given, resize, data, data_root)
    predicted = replace(_predict(posterior, inputs, calibrator_of(RunFolder(run).config())), files=files)
    if out is not None:
        write_predicted(predicted, out)
    result: dict[str, object] = {"run": str(run), "rows": len(inputs), "out": None if out is None else str(out)}
    if as_json and out is None:
        result["predictions"] = predicted.records()
    show(as_json, result, _lines(predicted, out))


def check_out(out: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Before any work: whether the file can be written, and would be new."""
    check(out.suffix in endings, "--out", str(out), f"a file that ends in {', '.join(endings)}")
    check(not out.exists(), "--out", str(out), "a new file", "Nothing is written over.")
    check(out.parent.is_dir(), "--out", str(out), "in a folder that exists")


def _predict(posterior: Posterior, inputs: Tensor, calibrator: Calibrator | None) -> Predicted:
    import torch

    from mixupmp.cli.predicted import Predicted
    from mixupmp.cli.scoring import predictions
    from mixupmp.decide.calibrators import pool
    from mixupmp.metrics import mutual_information, predictive_entropy

    parts = []
    for members in predictions(posterior, inputs, "predicting"):
        pooled = members.mean(0) if calibrator is None else pool(members, calibrator).float()
        parts.append((pooled, predictive_entropy(pooled), mutual_information(members)))
    probabilities, entropy, information = (torch.cat(column) for column in zip(*parts, strict=True))
    classes = posterior.task.classes or tuple(map(str, range(probabilities.shape[1])))
    return Predicted(classes, probabilities, entropy, information)


def _lines(predicted: Predicted, out: Path | None) -> list[Any]:
    if out is not None:
        return [Text(f"{len(predicted.entropy)} predictions are in {out}")]
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("file" if predicted.files else "row", "predicted", "probability", "entropy", "mutual information"):
        table.add_column(heading, justify="left" if heading in ("file", "predicted") else "right")
    for record in predicted.records(SHOWN):
        top = max(record["probabilities"].values())
        table.add_row(
            Text(record.get("file", str(record["row"]))),
            Text(record["predicted"]),
            f"{top:.3f}",
            f"{record['entropy']:.3f}",
            f"{record['mutual_information']:.3f}",
        )
    left = len(predicted.entropy) - SHOWN
    return [table, *([Text(f"... and {left} rows more: --out FILE keeps them all")] if left > 0 else [])]
