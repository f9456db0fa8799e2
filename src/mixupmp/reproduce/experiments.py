"""Finding and running experiment files: one for each table or figure, each with a title, its datasets and `run`.

    TITLE = "what it shows"
    DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist",), "paper": ("fmnist", "cifar10")}   # optional
    def run(study, dataset): ...                                                            # or run(study)

The repository's own are in its folder `experiments/`; a file of yours is run by its path.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mixupmp.errors import BadData, DataNotFound, UnknownName, check
from mixupmp.reproduce.settings import SCALES
from mixupmp.reproduce.study import Study


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


def experiments_folder() -> Path:
    """$MIXUPMP_EXPERIMENTS, the working folder's experiments/, or that of the checkout this package lies in."""
    places = [Path.cwd() / "experiments", Path(__file__).resolve().parents[3] / "experiments"]
    if given := os.environ.get("MIXUPMP_EXPERIMENTS"):
        places.insert(0, Path(given))
    for place in places:
        if (place / "comparison.py").exists():
            return place
    looked = ", ".join(map(str, places))
    raise DataNotFound(
        f"the experiment files were not found; looked in {looked}. They are in the folder experiments/ of mixupmp's "
        "repository: run this inside a clone of it, or set MIXUPMP_EXPERIMENTS to that folder."
    )


def all_experiments() -> dict[str, Experiment]:
    """Every experiment file, by name."""
    # Other studies may lie there too; those of the paper have a `run` that takes a study.
    files = [path for path in sorted(experiments_folder().glob("*.py")) if "\ndef run(study: Study" in path.read_text()]
    found = [Experiment(path.stem.replace("_", "-"), path) for path in files]
    return {experiment.name: experiment for experiment in found}


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
