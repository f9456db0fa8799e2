"""The options of `mixupmp fit` and `mixupmp select`: each with its help text and the setting that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from mixupmp.cli import options
from mixupmp.cli.catalogs import names
from mixupmp.cli.options import HOW, WHAT, WHERE, option


@dataclass(frozen=True)
class Place:
    """The place of an option's value in the settings: "recipe.epochs"."""

    place: str


_DATA = (
    f"A dataset by name ({names('mixupmp.data.catalog.DATASETS')}); a folder of images or .wav files with one "
    "subfolder for each class; a .npz, .csv, .tsv or .parquet file; or, with --text, a .csv, .tsv or .jsonl file of "
    "sentences."
)
_RATIO = "r: the amount of Mixup blends for each training row, from 0 (deep ensemble) to inf (Mixup ensemble)."
_CONFIG = "More settings, in tables \\[data] \\[network] \\[method] \\[recipe] \\[checkpoints]; options override them."
_RATE = "The peak learning rate. The schedule is one-cycle for images and constant for tables."
_ALPHA = "The share of each row in a Mixup blend is drawn from Beta(alpha, alpha)."
_MEMBERS = "4; for tables 16 that share weights, 4 from 30,000 rows on; for dropout and Laplace 20"
_EPOCHS = "chosen for tables, else by the size of the data"
_CALIBRATE = "Fit a temperature to the averaged probabilities on held-out rows."
_NETWORK = f"One of {names('mixupmp.networks.catalog.NETWORKS')}."
_TOKENS = f"What sentences are split into: {names('mixupmp.core.tokenizers.TOKENIZERS')}."
_MEASURES = names("mixupmp.core.base_measures.BASE_MEASURES")

Data = Annotated[str | None, option(WHAT, _DATA, "digits"), Place("data.name")]
DataRoot = Annotated[options.DataRoot, Place("data.root")]
Download = Annotated[
    bool | None,
    option(WHAT, "Download a missing dataset from its publisher.", "", "--download"),
    Place("data.download"),
]
Text = Annotated[str | None, option(WHAT, "The column that holds the sentences.", metavar="COLUMN"), Place("data.text")]
Tokens = Annotated[str | None, option(WHAT, _TOKENS, "words"), Place("data.tokens")]
Label = Annotated[
    str | None,
    option(WHAT, "The column that holds the labels.", "the last", "--label", metavar="COLUMN"),
    Place("data.label"),
]
RowCount = Annotated[
    int | None, option(WHAT, "Train on this many rows only, chosen by stratified sampling.", "all"), Place("data.rows")
]
NetworkName = Annotated[str | None, option(WHAT, _NETWORK, "cnn for images, tabular for tables"), Place("network.name")]
MethodName = Annotated[
    str | None,
    option(WHAT, "A method that `mixupmp methods` lists.", "mixup-mp; for tables shared-mixup-mp"),
    Place("method.name"),
]
Base = Annotated[
    str | None,
    option(WHAT, f"The base measure, with --method martingale-posterior: {_MEASURES}.", "mixup"),
    Place("method.base"),
]
Ratio = Annotated[float | None, option(WHAT, _RATIO, "chosen"), Place("method.ratio")]
Alpha = Annotated[float | None, option(WHAT, _ALPHA, "chosen"), Place("method.alpha")]
Members = Annotated[int | None, option(WHAT, "B: the number of posterior samples.", _MEMBERS), Place("method.members")]

Epochs = Annotated[int | None, option(HOW, "Passes over the training rows.", _EPOCHS), Place("recipe.epochs")]
BatchSize = Annotated[
    int | None, option(HOW, "Training rows in a step, and as many Mixup rows.", "128"), Place("recipe.batch_size")
]
LearningRate = Annotated[
    float | None, option(HOW, _RATE, "0.005 for images, 0.002 for tables"), Place("recipe.learning_rate")
]
Calibrate = Annotated[bool | None, option(HOW, _CALIBRATE, "yes", "--calibrate/--no-calibrate"), Place("calibrate")]
Seed = Annotated[int | None, option(HOW, "The same seed gives the same bits.", "0"), Place("seed")]
EngineName = Annotated[str | None, option(HOW, "auto, inline, vectorized, processes or ray.", "auto"), Place("engine")]
Device = Annotated[
    str | None, option(HOW, "cpu, cuda, cuda:1 and so on; auto uses a GPU if there is one.", "cpu"), Place("device")
]
Address = Annotated[str | None, option(HOW, "The address of a Ray cluster, with --engine ray.")]
Config = Annotated[Path | None, option(HOW, _CONFIG, metavar="FILE.toml")]

Out = Annotated[Path | None, option(WHERE, "The folder to create.", "runs/<data>-<method>", metavar="RUN")]
Resume = Annotated[
    Path | None, option(WHERE, "Continue an interrupted run; the result is the same, bit for bit.", metavar="RUN")
]
Override = Annotated[bool, option(WHERE, "Resume even if settings, data or versions have changed.", "", "--override")]
TensorBoard = Annotated[
    Path | None,
    option(
        WHERE, "Log losses, validation metrics and disagreement for TensorBoard.", "", "--tensorboard", metavar="FOLDER"
    ),
]


def settings_given(command: Callable[..., None], context: typer.Context) -> dict[str, Any]:
    """The settings that were given as options of this command, as a document."""
    document: dict[str, object] = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        places = [part.place for part in getattr(hint, "__metadata__", ()) if isinstance(part, Place)]
        value = context.params.get(name)
        if places and value is not None:
            _put(document, places[0], value)
    return document


def _put(document: dict[str, Any], place: str, value: object) -> None:
    table, _, rest = place.partition(".")
    if rest:
        _put(document.setdefault(table, {}), rest, value)
    else:
        document[table] = value
