"""How to repeat a run: its description as the Python that would make it again."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from mixupmp.core.methods import method_names
from mixupmp.core.recipe import Recipe


def snippet(description: dict[str, Any], dataset: str, settings: dict[str, Any] | None = None) -> str | None:
    """Python that fits the same plan: same method, network, recipe and seed. None where a run does not tell them.

    `settings` are those of a run that the command line started, which say where its rows come from.
    """
    if not description.keys() >= {"method", "recipe", "network", "data", "seed"}:
        return None
    return "\n".join(
        (
            "import mixupmp",
            "import mixupmp.data",
            *(["import mixupmp.train.planning"] if ((settings or {}).get("data") or {}).get("rows") else []),
            "",
            *_data(description, dataset, (settings or {}).get("data") or {}),
            f"method = {method_call(description['method'])}",
            f"recipe = {recipe_call(description['recipe'])}",
            f"network = {network_call(description['network'])}",
            f"plan = mixupmp.plan_for(dataset, method, network, recipe, seed={description['seed']})",
            "posterior = mixupmp.fit(plan)",
        )
    )


def _data(description: dict[str, Any], dataset: str, told: dict[str, Any]) -> list[str]:
    """How the rows are come by."""
    name, count = told.get("name", dataset), description["data"]["rows"]
    given = {key: told[key] for key in ("label", "size") if told.get(key)}
    if "/" in name or given:
        given |= {"test_fraction": told.get("test_fraction", 0.2), "seed": told.get("seed", 0)}
        words = "".join(f", {key}={value!r}" for key, value in given.items())
        lines = [f"dataset = mixupmp.data.load_path({name!r}{words})"]
    else:
        seed = f", seed={told['seed']}" if told.get("seed") else ""
        lines = [f"dataset = mixupmp.data.load({name!r}{seed})  # {count} training rows"]
    if told.get("rows"):
        lines.append(
            f"dataset = mixupmp.train.planning.fewer_rows(dataset, {told['rows']}, seed={told.get('seed', 0)})"
        )
    if told.get("validation"):
        lines.append(f"# {told['validation']:g} of the rows were kept for validation")
    return lines


def method_call(method: dict[str, Any]) -> str:
    """A method's constructor with what it was given."""
    constructor = method_names().get(method["name"])
    if constructor is None:
        return f"...  # a method of your own: {method['name']}"
    predictive, sampler = method["predictive"], method["sampler"]
    base, weights = predictive.get("base") or {}, predictive.get("weights") or {}
    known = {**_parts(weights), **_parts(sampler), **_parts(base), "ratio": predictive["ratio"],
             "dropout": method["dropout"], "validation_fraction": method["validation_fraction"]}  # fmt: skip
    kernel = predictive.get("kernel")
    given = [
        f"{name}={_value(known[name])}"
        for name, parameter in inspect.signature(constructor).parameters.items()
        if name in known and (known[name] != parameter.default or name in ("ratio", "alpha", "members"))
    ]
    own = "" if str(kernel).endswith("identity") else f"  # kernel: {kernel}"
    return f"mixupmp.{constructor.__name__}({', '.join(given)}){own}"


def recipe_call(recipe: dict[str, Any]) -> str:
    """The recipe, where it differs from the default one."""
    given = []
    for entry in fields(Recipe):
        value = recipe.get(entry.name, entry.default)
        default = list(entry.default) if isinstance(entry.default, tuple) else entry.default
        if value != default or entry.name in ("epochs", "learning_rate"):
            given.append(f"{entry.name}={_value(value)}")
    return f"mixupmp.Recipe({', '.join(given)})"


def network_call(network: Any) -> str:
    """A network by its import path and arguments; the user's own factory by its name."""
    if isinstance(network, dict) and network.get("type") == "Network":
        return f"mixupmp.networks.Network({network['path']!r}, {network['arguments']!r})"
    return f"...  # your own: {network}"


def _parts(value: Any) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != "type"} if isinstance(value, dict) else {}


def _value(value: Any) -> str:
    return "float('inf')" if value == "inf" else repr(value)
