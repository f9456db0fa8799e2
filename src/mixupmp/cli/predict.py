"""`mixupmp predict`: probabilities, and how sure they are, for rows without labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from mixupmp.cli.options import DataRoot, Input, InsteadOfInput, Json, Resize, Run
from mixupmp.cli.output import SHOWN, check_out, first_rows, show
from mixupmp.core.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import Tensor

    from mixupmp.cli.predicted import Predicted
    from mixupmp.core.posterior import Posterior
    from mixupmp.decide.calibrators import Calibrator

ENDINGS = (".npy", ".npz", ".json", ".csv")
_OUT = "Write to .npy, .npz, .json or .csv. \\[print the first rows]"


def command(
    run: Run,
    given: Input = None,
    data: InsteadOfInput = None,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=_OUT)] = None,
    resize: Resize = False,
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
    check_out(out, ENDINGS)
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


def _lines(predicted: Predicted, out: Path | None) -> list[RenderableType]:
    if out is not None:
        return [Text(f"{len(predicted.entropy)} predictions are in {out}")]
    shown = [
        {
            "file" if predicted.files else "row": str(record.get("file", record["row"])),
            "predicted": record["predicted"],
            "probability": f"{max(record['probabilities'].values()):.3f}",
            "entropy": f"{record['entropy']:.3f}",
            "mutual information": f"{record['mutual_information']:.3f}",
        }
        for record in predicted.records(SHOWN)
    ]
    return first_rows(shown, len(predicted.entropy), ("file", "predicted"))
