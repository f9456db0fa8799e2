"""Finding and running experiment files: one for each table or figure, each with a title, its datasets and `run`.

    TITLE = "what it shows"
    DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist",), "paper": ("fmnist", "cifar10")}   # optional
    def run(study, dataset): ...                                                            # or run(study)

The paper's are in `mixupmp/paper/experiments/` and listed in `EXPERIMENTS`; a file of yours is run by its path.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mixupmp.core.errors import BadData, DataNotFound, UnknownName, check
from mixupmp.paper.settings import SCALES
from mixupmp.paper.study import Study

EXPERIMENTS = (
    "illustration-mp",
    "illustration-r",
    "illustration-alpha",
    "bb-vs-de",
    "comparison",
    "ablation",
    "shift",
    "out-of-distribution",
    "complexity",
    "claims",
)


@dataclass(frozen=True)
class Experiment:
    """An experiment file."""

    name: str
    path: Path

    def load(self) -> ModuleType:
        """Its module. The file is run: only run experiment files that you trust."""
        spec = importlib.util.spec_from_file_location(f"experiment_{self.name.replace('-', '_')}", self.path)
        assert spec is not None
        assert spec.loader is not None
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

    def run(self, study: Study, datasets: Sequence[str] = ()) -> None:
        """Run it, on all of its datasets or on these."""
        check(study.scale in SCALES, "scale", study.scale, f"one of {', '.join(SCALES)}")
        module, known = self.load(), self.datasets(study.scale)
        for name in datasets:
            if name not in known:
                raise UnknownName(f"dataset of {self.name} at scale {study.scale}", name, known)
        if not known:
            module.run(study)
        for name in datasets or known:
            module.run(study.on(name), name)


def all_experiments() -> dict[str, Experiment]:
    """Every experiment of the paper, by name, in the paper's order."""
    folder = Path(__file__).parent / "experiments"
    return {name: Experiment(name, folder / f"{name.replace('-', '_')}.py") for name in EXPERIMENTS}


def experiment_named(name: str) -> Experiment:
    """One of ours by name, or a file of the user's by path."""
    if name.endswith(".py"):
        path = Path(name)
        if not path.exists():
            raise DataNotFound(f"there is no experiment file {path}.")
        return Experiment(path.stem.replace("_", "-"), path)
    known = all_experiments()
    if name not in known:
        raise UnknownName("experiment", name, known)
    return known[name]
