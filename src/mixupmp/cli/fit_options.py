"""The options of `mixupmp fit`, each with what its help says; defaults in brackets are those of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mixupmp.data import DATASETS
from mixupmp.networks import NETWORKS

WHAT, HOW, WHERE = "What to fit", "How to train it", "Where it is kept"


def _option(panel: str, text: str, default: str = "", *names: str, metavar: str | None = None) -> Any:
    shown = f"{text} \\[{default}]" if default else text
    return typer.Option(*names, help=shown.strip(), rich_help_panel=panel, metavar=metavar)


_DATA = (
    f"A name ({', '.join(DATASETS)}), or the path of a folder of images by class, or of a .npz, .csv, .tsv or .parquet "
    "file."
)
_RATIO = "r: how much Mixup data for each row seen, from 0 (the deep ensemble) to inf (the Mixup ensemble)."
_CONFIG = "Everything else, in tables \\[data] \\[network] \\[method] \\[recipe] \\[checkpoints]; flags go over it."

Data = Annotated[str | None, _option(WHAT, _DATA, "digits")]
Download = Annotated[bool, _option(WHAT, "Fetch a missing dataset from its publisher.", "", "--download")]
RowCount = Annotated[int | None, _option(WHAT, "Train on so many rows only, stratified.", "all")]
NetworkName = Annotated[str | None, _option(WHAT, f"One of {', '.join(NETWORKS)}.", "cnn for images, mlp for tables")]
MethodName = Annotated[str | None, _option(WHAT, "One that `mixupmp methods` lists.", "mixup-mp")]
Ratio = Annotated[float | None, _option(WHAT, _RATIO, "1")]
Alpha = Annotated[float | None, _option(WHAT, "Mixup's shares are Beta(alpha, alpha).", "2")]
Members = Annotated[int | None, _option(WHAT, "B: how many posterior samples.", "4, or 20 from one network")]

Epochs = Annotated[int | None, _option(HOW, "Passes over the training rows.", "20")]
BatchSize = Annotated[int | None, _option(HOW, "Rows seen in a step, and as many Mixup rows.", "128")]
LearningRate = Annotated[float | None, _option(HOW, "Its peak; the schedule is one-cycle unless set.", "0.05")]
Seed = Annotated[int | None, _option(HOW, "The same seed gives the same bits.", "0")]
EngineName = Annotated[str | None, _option(HOW, "auto, inline, vectorized, processes or ray.", "auto")]
Address = Annotated[str | None, _option(HOW, "Of a Ray cluster, with --engine ray.")]
Config = Annotated[Path | None, _option(HOW, _CONFIG, metavar="FILE.toml")]

Out = Annotated[Path | None, _option(WHERE, "A new folder.", "runs/<data>-<method>", metavar="RUN")]
Resume = Annotated[
    Path | None, _option(WHERE, "Go on with a run that was stopped: it ends with the same bits.", metavar="RUN")
]
Override = Annotated[bool, _option(WHERE, "Resume although settings, data or versions have changed.", "", "--override")]
TensorBoard = Annotated[
    Path | None,
    _option(WHERE, "Live curves: losses, validation NLL and ECE, disagreement.", "", "--tensorboard", metavar="FOLDER"),
]
