"""What the command line lists: every method, and the names that its options take.

They are kept in catalogs.json, so that help and completion do not wait for torch. Write that file again with
``python -m mixupmp.cli.catalogs`` when one of them changes; a test holds it to the code.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any, TypedDict

FILE = Path(__file__).with_name("catalogs.json")
LISTS = (
    "mixupmp.core.base_measures.BASE_MEASURES",
    "mixupmp.core.tokenizers.TOKENIZERS",
    "mixupmp.data.catalog.DATASETS",
    "mixupmp.decide.detect.SCORES",
    "mixupmp.decide.search.ALPHAS",
    "mixupmp.decide.search.RATIOS",
    "mixupmp.metrics.catalog.evaluated_metrics",
    "mixupmp.networks.catalog.NETWORKS",
)


class MethodEntry(TypedDict):
    """A method's name, the docstring of its constructor, and its options with their defaults."""

    name: str
    what: str
    options: dict[str, object]


def methods() -> list[MethodEntry]:
    """Every method."""
    return json.loads(FILE.read_text())["methods"]


def names(which: str) -> str:
    """One of `LISTS`, with commas: as kept, but as it is if its module is imported, for then it may have grown."""
    kept: str = json.loads(FILE.read_text())[which]
    return _read(which) if which.rpartition(".")[0] in sys.modules else kept


def described() -> dict[str, Any]:
    """All of it as it is in the code, which imports torch."""
    from mixupmp.core.methods import method_names
    from mixupmp.core.spec import encode

    listed = [
        MethodEntry(
            name=name,
            what=inspect.getdoc(constructor) or "",
            options={
                option.name: encode(option.default)
                for option in inspect.signature(constructor).parameters.values()
                if option.name != "kernel"
            },
        )
        for name, constructor in method_names().items()
    ]
    return {"methods": listed, **{which: _read(which) for which in LISTS}}


def _read(which: str) -> str:
    module, _, name = which.rpartition(".")
    listed = getattr(importlib.import_module(module), name)
    return ", ".join(one if isinstance(one, str) else f"{one:g}" for one in (listed() if callable(listed) else listed))


if __name__ == "__main__":
    FILE.write_text(json.dumps(described(), indent=2, ensure_ascii=False) + "\n")
