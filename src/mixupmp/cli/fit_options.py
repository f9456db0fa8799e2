"""The options of `mixupmp fit` and `mixupmp select` that stand for settings, and others that both have."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer.models import OptionInfo

from mixupmp.cli import options
from mixupmp.cli.catalogs import names
from mixupmp.cli.options import HOW, WHAT, WHERE, option

_DATA = (
    f"A dataset by name ({names('mixupmp.data.catalog.DATASETS')}); a folder of images or .wav files with one "
    "subfolder for each class; a .npz, .csv, .tsv or .parquet file; or, with --text, a .csv, .tsv or .jsonl file of "
    "sentences."
)
_RATIO = "r: the amount of Mixup blends for each training row, from 0 (deep ensemble) to inf (Mixup ensemble)."
_CONFIG = "More settings, in tables \\[data] \\[network] \\[method] \\[recipe] \\[checkpoints]; options override them."
_RATE = "The peak learning rate. The schedule is one-cycle for images and constant for tables."
_RATES = "0.005 for images, 0.002 for tables"
_ALPHA = "The share of each row in a Mixup blend is drawn from Beta(alpha, alpha)."
_MEMBERS = "4; for tables 16 that share weights, 4 from 30,000 rows on; for dropout and Laplace 20"
_EPOCHS = "chosen for tables, else by the size of the data"
_CALIBRATE = "Fit a temperature to the averaged probabilities on held-out rows."
_NETWORK = f"One of {names('mixupmp.networks.catalog.NETWORKS')}."
_TOKENS = f"What sentences are split into: {names('mixupmp.core.tokenizers.TOKENIZERS')}."
_BASE = f"The base measure, with --method martingale-posterior: {names('mixupmp.core.base_measures.BASE_MEASURES')}."
_LABEL = "The column that holds the labels."
_ROWS = "Train on this many rows only, chosen by stratified sampling."
_DOWNLOAD = "Download a missing dataset from its publisher."


class SettingOption(NamedTuple):
    """An option that stands for a setting: its place in a settings document, its type, and how it is shown."""

    place: str
    kind: type
    shown: OptionInfo


SETTINGS = {
    "data": SettingOption("data.name", str, option(WHAT, _DATA, "digits")),
    "data_root": SettingOption("data.root", str, options.DATA_ROOT),
    "download": SettingOption("data.download", bool, option(WHAT, _DOWNLOAD, "", "--download")),
    "text": SettingOption("data.text", str, option(WHAT, "The column that holds the sentences.", metavar="COLUMN")),
    "tokens": SettingOption("data.tokens", str, option(WHAT, _TOKENS, "words")),
    "label": SettingOption("data.label", str, option(WHAT, _LABEL, "the last", metavar="COLUMN")),
    "rows": SettingOption("data.rows", int, option(WHAT, _ROWS, "all")),
    "network": SettingOption("network.name", str, option(WHAT, _NETWORK, "cnn for images, tabular for tables")),
    "method": SettingOption(
        "method.name",
        str,
        option(WHAT, "A method that `mixupmp methods` lists.", "mixup-mp; for tables shared-mixup-mp"),
    ),
    "base": SettingOption("method.base", str, option(WHAT, _BASE, "mixup")),
    "ratio": SettingOption("method.ratio", float, option(WHAT, _RATIO, "chosen")),
    "alpha": SettingOption("method.alpha", float, option(WHAT, _ALPHA, "chosen")),
    "members": SettingOption("method.members", int, option(WHAT, "B: the number of posterior samples.", _MEMBERS)),
    "epochs": SettingOption("recipe.epochs", int, option(HOW, "Passes over the training rows.", _EPOCHS)),
    "batch_size": SettingOption(
        "recipe.batch_size", int, option(HOW, "Training rows in a step, and as many Mixup rows.", "128")
    ),
    "learning_rate": SettingOption("recipe.learning_rate", float, option(HOW, _RATE, _RATES)),
    "calibrate": SettingOption("calibrate", bool, option(HOW, _CALIBRATE, "yes", "--calibrate/--no-calibrate")),
    "seed": SettingOption("seed", int, option(HOW, "The same seed gives the same bits.", "0")),
    "engine": SettingOption("engine", str, option(HOW, "auto, inline, vectorized, processes or ray.", "auto")),
    "device": SettingOption(
        "device", str, option(HOW, "cpu, cuda, cuda:1 and so on; auto uses a GPU if there is one.", "cpu")
    ),
}
"""Every setting that is an option, by the option's name."""

Address = Annotated[str | None, option(HOW, "The address of a Ray cluster, with --engine ray.")]
Config = Annotated[Path | None, option(HOW, _CONFIG, metavar="FILE.toml")]
Out = Annotated[Path | None, option(WHERE, "The folder to create.", "runs/<data>-<method>", metavar="RUN")]


def takes_settings(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command have the options of `SETTINGS` but these; it is given those that are used as one document."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        taken = {name: setting for name, setting in SETTINGS.items() if name not in left_out}
        _, *own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def with_settings(**given: Any) -> None:
            document: dict[str, Any] = {}
            for name, setting in taken.items():
                if (value := given.pop(name)) is not None:
                    *tables, key = setting.place.split(".")
                    (document.setdefault(tables[0], {}) if tables else document)[key] = value
            command(document, **given)

        kind = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter(name, kind, default=None, annotation=Annotated[setting.kind | None, setting.shown])
            for name, setting in taken.items()
        ]
        with_settings.__signature__ = inspect.Signature([*shared, *(p.replace(kind=kind) for p in own)])  # type: ignore[attr-defined]
        return with_settings

    return decorate
