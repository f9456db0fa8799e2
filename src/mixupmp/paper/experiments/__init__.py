"""The experiments: one file for each table or figure, each with a title, its datasets and `run`.

    TITLE = "what it shows"
    DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist",), "paper": ("fmnist", "cifar10")}   # optional
    OPTIONS = ("device", "precision")     # optional: those that it applies, where not all; others are refused
    IN_PAPER = False                      # optional: it is an extension
    COST = "minutes of a CPU"             # optional: at scale paper, where there is no `work`
    def run(study, dataset): ...                                                            # or run(study)
    def work(dataset, scale): ...         # optional: the settings and lines to train, for estimates of GPU-hours

Ours are listed in `EXPERIMENTS`; a file of your own is run by its path.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mixupmp.core.errors import BadData, DataNotFound, check, check_known
from mixupmp.paper.estimate import gpu_hours
from mixupmp.paper.protocols import TEXT
from mixupmp.paper.settings import SCALES
from mixupmp.paper.study import Study

EXPERIMENTS = (
    "illustration-mp",
    "illustration-r",
    "illustration-alpha",
    "bb-vs-de",
    "separability",
    "margins",
    "comparison",
    "ablation",
    "shift",
    "out-of-distribution",
    "human-labels",
    "complexity",
    "claims",
    "tables",  # MixupMP and its rivals on tables
    "clinc",  # intents, and sentences that are out of scope
    "spoken-digits",  # spectrograms, and other speakers
    "blends",  # warped Mixup and CutMix, clean, shifted and foreign rows
)
OPTIONS = ("protocol", "device", "precision", "compile")  # how networks are trained


@dataclass(frozen=True)
class Experiment:
    """One of ours, or with a path a file of the user's."""

    name: str
    path: Path | None = None

    def load(self) -> ModuleType:
        """Its module. A file of the user's is executed: only run those that you trust."""
        module_name = self.name.replace("-", "_")
        if self.path is None:
            return importlib.import_module(f"{__name__}.{module_name}")
        spec = importlib.util.spec_from_file_location(f"experiment_{module_name}", self.path)
        if spec is None or spec.loader is None:
            raise BadData(f"{self.path} is no Python file.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if not callable(getattr(module, "run", None)):
            raise BadData(f"{self.path} is no experiment: it has no function `run(study)`.")
        return module

    @property
    def title(self) -> str:
        return str(getattr(self.load(), "TITLE", ""))

    def datasets(self, scale: str) -> tuple[str, ...]:
        """Its datasets at this scale; none where it takes no choice."""
        return tuple(getattr(self.load(), "DATASETS", {}).get(scale, ()))

    @property
    def in_paper(self) -> bool:
        """Whether the paper has it, or it is an extension."""
        return bool(getattr(self.load(), "IN_PAPER", True))

    @property
    def cost(self) -> str | None:
        """At scale paper, in words; None where `gpu_hours` has a number."""
        return getattr(self.load(), "COST", None)

    def gpu_hours(self, scale: str) -> float | None:
        """An estimate for all of its datasets, without what other experiments share; None where it needs no GPU."""
        work = getattr(self.load(), "work", None)
        if work is None:
            return None
        return sum(gpu_hours(*work(name, scale)) for name in self.datasets(scale) or ("",))

    def run(self, study: Study, datasets: Sequence[str] = ()) -> None:
        """Run it, on all of its datasets or on these."""
        check(study.scale in SCALES, "scale", study.scale, f"one of {', '.join(SCALES)}")
        module, known = self.load(), self.datasets(study.scale)
        self._check_options(study, getattr(module, "OPTIONS", OPTIONS))
        scales = tuple(getattr(module, "DATASETS", SCALES))
        must = f"one of {', '.join(scales)} in the experiment {self.name}"
        check(study.scale in scales, "scale", study.scale, must)
        for name in datasets:
            check_known(f"dataset of {self.name} at scale {study.scale}", name, known)
        if not known:
            module.run(study)
        for name in datasets or known:
            module.run(study.on(name), name)

    def _check_options(self, study: Study, taken: Sequence[str]) -> None:
        """Before any work: an option that is not applied would stand in run.json all the same."""
        asked: dict[str, tuple[str | bool, str | bool]] = {
            "protocol": (study.protocol.name, TEXT.name),
            "device": (", ".join(study.devices), "cpu"),
            "precision": (study.precision, "float32"),
            "compile": (study.compiled, False),
        }
        for name, (value, default) in asked.items():
            found = f"of protocol, device, precision and compile it takes {', '.join(taken) or 'none'}."
            must, hint = f"{default!r} in the experiment {self.name}", f"Leave --{name} out: {found}"
            check(name in taken or value == default, name, value, must, hint)


def all_experiments() -> dict[str, Experiment]:
    """Every experiment of ours by name, the paper's in its order."""
    return {name: Experiment(name) for name in EXPERIMENTS}


def experiment_named(name: str) -> Experiment:
    """One of ours by name, or a file of the user's by path."""
    if name.endswith(".py"):
        path = Path(name)
        if not path.exists():
            raise DataNotFound(f"there is no experiment file {path}.")
        return Experiment(path.stem.replace("_", "-"), path)
    check_known("experiment", name, EXPERIMENTS)
    return Experiment(name)
