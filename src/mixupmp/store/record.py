"""What a run's config.json says of its fit, decoded: what model cards and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mixupmp.core.foreign import Foreign, Json
from mixupmp.core.methods import Method
from mixupmp.core.posterior import Task
from mixupmp.core.recipe import Recipe
from mixupmp.core.spec import decode, shown
from mixupmp.networks import Network
from mixupmp.networks.catalog import own_classes


@dataclass(frozen=True)
class FitRecord:
    """A fit as it was written down; what is not this package's own is there as a `Foreign`."""

    method: Method
    task: Task
    network: Network | Foreign
    recipe: Recipe | None  # None: the networks did not come from a fit
    seed: int
    rows: int | None
    sha256: str | None  # of the training rows
    versions: Mapping[str, str]


def read_record(document: Mapping[str, Json]) -> FitRecord:
    """The fit of a run's config.json, or of `Plan.document`."""
    spec, fingerprints = document["spec"], document.get("fingerprints", {})
    network = spec["network"]
    path = network.get("path") if isinstance(network, Mapping) else None
    own = isinstance(path, str) and path in own_classes()
    recipe = spec.get("recipe")
    return FitRecord(
        decode(spec["method"], Method, "method", keep_foreign=True),
        decode(spec["task"], Task, "task"),
        decode(network, Network, "network") if own else Foreign(shown(network)),
        None if recipe is None else decode(recipe, Recipe, "recipe"),
        decode(spec["seed"], int, "seed"),
        decode(rows, int, "fingerprints.rows") if (rows := fingerprints.get("rows")) is not None else None,
        decode(sha256, str, "fingerprints.sha256") if (sha256 := fingerprints.get("sha256")) is not None else None,
        document.get("versions", {}),
    )
