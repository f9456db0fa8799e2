"""The README.md of a run or of a saved posterior: what it is, how it was made, what it is worth, how to load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mixupmp.core.posterior import Summary, left_out
from mixupmp.metrics import display

SHOWN = ("acc", "nll", "brier", "ece", "oe", "ue")


def model_card(config: Mapping[str, Any], stories: Sequence[Summary], evaluations: Sequence[Mapping[str, Any]]) -> str:
    """The card, from what config.json says, how the members' fits ended, and what was measured."""
    plan = config.get("plan", {})
    method = plan.get("method", {})
    parts = [
        f"# {method.get('name', 'A posterior')}",
        _what_it_is(plan, stories),
        "## How it was trained",
        _how_trained(plan, stories),
        "## What it is worth",
        _worth(evaluations),
        "## How to load it",
        _how_to_load(plan.get("network")),
    ]
    return "\n\n".join(parts) + "\n"


def _what_it_is(plan: Mapping[str, Any], stories: Sequence[Summary]) -> str:
    task = plan.get("task", {})
    sampler = plan.get("method", {}).get("sampler", {})
    likelihood = task.get("likelihood", {})
    shape = " x ".join(map(str, task.get("input_shape", ())))
    about = f"one of {likelihood['classes']} classes" if "classes" in likelihood else "a number with its variance"
    names = ", ".join(task.get("classes", [])[:20])
    about += f": {names}" if names else ""
    kept = len(stories) - len(left_out(stories))
    lines = [
        f"A martingale posterior: {kept} trained network{'s' if kept != 1 else ''}, whose predictions are averaged, "
        f"by the sampler `{sampler.get('type', 'unknown')}` with {sampler.get('members', kept)} members.",
        f"It takes raw inputs of shape {shape} (it scales them itself) and predicts {about}.",
    ]
    lost = [f"member {member} {reason}" for member, reason in left_out(stories).items()]
    if lost:
        lines.append(f"Left out: {'; '.join(lost)}.")
    return "\n".join(lines)


def _how_trained(plan: Mapping[str, Any], stories: Sequence[Summary]) -> str:
    lines = []
    predictive = plan.get("method", {}).get("predictive")
    if predictive:
        base = predictive.get("base")
        base_text = _call(base) if base else "none"
        lines.append(f"- which future: ratio r = {predictive.get('ratio')}, base measure {base_text}")
        lines.append(
            f"- augmentation kernel: {_call(predictive.get('kernel'))}; weights {_call(predictive['weights'])}"
        )
    lines.append(f"- network: `{_network(plan.get('network'))}`")
    if "recipe" in plan:
        lines.append(f"- recipe: `{_call(plan['recipe'])}`")
    if "data" in plan:
        lines.append(f"- data: {plan['data'].get('rows')} rows, SHA-256 {plan['data'].get('sha256', 'not taken')}")
    lines.append(f"- seed: {plan.get('seed', 'unknown')}")
    accuracies = [f"{s.training_accuracy:.4f}" for s in stories if s.training_accuracy is not None]
    if accuracies:
        lines.append(f"- training accuracy of each network: {', '.join(accuracies)}")
    versions = plan.get("versions", {})
    if versions:
        lines.append("- versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    return "\n".join(lines)


def _worth(evaluations: Sequence[Mapping[str, Any]]) -> str:
    if not evaluations:
        return "It was given no metrics."
    shown = [name for name in SHOWN if any(e["metrics"].get(name) is not None for e in evaluations)]
    # Names that we do not know are kept too: a user's own metrics are as good as ours.
    shown += sorted({name for e in evaluations for name in e["metrics"] if not shown and name != "rows"})
    heading = ["on", "rows", *(display(name, 0.0)[0] for name in shown)]
    table = [heading, ["---", *["---:"] * (len(heading) - 1)]]
    for evaluation in evaluations:
        metrics = evaluation["metrics"]
        table.append([evaluation["on"], str(metrics.get("rows", "")), *(_shown(n, metrics.get(n)) for n in shown)])
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def _how_to_load(network: Any) -> str:
    given = isinstance(network, Mapping) and str(network.get("path", "")).startswith("mixupmp.networks.")
    argument = "" if given else ", network=MyNetwork"
    needs = (
        ""
        if given
        else "\n`MyNetwork` is the class or factory that built the network; loading imports no code by itself.\n"
    )
    return (
        f'```python\nimport mixupmp\n\nposterior = mixupmp.load("this folder"{argument})\n'
        f"posterior.probabilities(inputs)  # (rows, classes)\n```\n{needs}\n"
        "Weights are safetensors; `manifest.json` holds the SHA-256 of every file, and loading checks them all."
    )


def _network(network: Any) -> str:
    if isinstance(network, Mapping) and "path" in network:
        arguments = ", ".join(f"{name}={value}" for name, value in network.get("arguments", {}).items())
        return f"{network['path']}({arguments})"
    return str(network)


def _call(value: Any) -> str:
    """A described dataclass as the call that makes it."""
    if not isinstance(value, Mapping):
        return str(value)
    arguments = ", ".join(f"{name}={_call(item)}" for name, item in value.items() if name != "type")
    return f"{value.get('type', '')}({arguments})"


def _shown(name: str, value: float | None) -> str:
    return "" if value is None else f"{display(name, value)[1]:.4g}"
