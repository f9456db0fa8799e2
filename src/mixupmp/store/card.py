"""The README.md of a run or of a saved posterior: what it is, how it was made, what it is worth, how to load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mixupmp.core.foreign import Json
from mixupmp.core.member_summary import MemberSummary, left_out, member_notes
from mixupmp.core.spec import encode, shown
from mixupmp.metrics import display
from mixupmp.networks import Network
from mixupmp.store.record import FitRecord, read_record

SHOWN = ("acc", "nll", "brier", "ece", "oe", "ue")


def model_card(
    config: Mapping[str, Json], summaries: Sequence[MemberSummary], evaluations: Sequence[Mapping[str, Json]]
) -> str:
    """The card, from what config.json says, how the members' fits ended, and what was measured."""
    record = read_record(config)
    parts = [
        f"# {record.method.name}",
        _what_it_is(record, summaries),
        "## How it was trained",
        _how_trained(record, summaries),
        "## What it is worth",
        _worth(evaluations),
        "## How to load it",
        _how_to_load(isinstance(record.network, Network)),
    ]
    return "\n\n".join(parts) + "\n"


def _what_it_is(record: FitRecord, summaries: Sequence[MemberSummary]) -> str:
    task, sampler = record.task, record.method.sampler
    shape = " x ".join(map(str, task.input_shape))
    classes = task.likelihood.classes
    about = "a number with its variance" if classes is None else f"one of {classes} classes"
    about += f": {', '.join(task.classes[:20])}" if task.classes else ""
    kept = len(summaries) - len(left_out(summaries))
    lines = [
        f"A martingale posterior: {kept} trained network{'s' if kept != 1 else ''}, whose predictions are averaged, "
        f"by the sampler `{shown(encode(sampler))}`.",
        f"It takes raw inputs of shape {shape} (it scales them itself) and predicts {about}.",
    ]
    return "\n".join([*lines, *(f"Note: {note}." for note in member_notes(summaries))])


def _how_trained(record: FitRecord, summaries: Sequence[MemberSummary]) -> str:
    predictive = record.method.predictive
    base = "none" if predictive.base is None else shown(encode(predictive.base))
    kernel, weights = shown(encode(predictive.kernel)), shown(encode(predictive.weights))
    lines = [
        f"- which future: ratio r = {predictive.ratio}, base measure {base}",
        f"- augmentation kernel: {kernel}; weights {weights}",
        f"- network: `{shown(encode(record.network))}`",
    ]
    if record.recipe is not None:
        lines.append(f"- recipe: `{shown(encode(record.recipe))}`")
    if record.rows is not None:
        lines.append(f"- data: {record.rows} rows, SHA-256 {record.sha256 or 'not taken'}")
    lines.append(f"- seed: {record.seed}")
    accuracies = [f"{s.training_accuracy:.4f}" for s in summaries if s.training_accuracy is not None]
    if accuracies:
        lines.append(f"- training accuracy of each network: {', '.join(accuracies)}")
    if record.versions:
        lines.append("- versions: " + ", ".join(f"{name} {version}" for name, version in record.versions.items()))
    return "\n".join(lines)


def _worth(evaluations: Sequence[Mapping[str, Json]]) -> str:
    if not evaluations:
        return "It was given no metrics."
    shown = [name for name in SHOWN if any(e["metrics"].get(name) is not None for e in evaluations)]
    # A user's own metrics, whose names are not in the catalog, are shown where there are no others.
    shown += sorted({name for e in evaluations for name in e["metrics"] if not shown and name != "rows"})
    heading = ["on", "rows", *(display(name, 0.0)[0] for name in shown)]
    table = [heading, ["---", *["---:"] * (len(heading) - 1)]]
    for evaluation in evaluations:
        metrics = evaluation["metrics"]
        table.append([evaluation["on"], str(metrics.get("rows", "")), *(_value(n, metrics.get(n)) for n in shown)])
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def _how_to_load(own_network: bool) -> str:
    argument = "" if own_network else ", network=MyNetwork"
    needs = "`MyNetwork` is the class or factory that built the network; loading imports no code by itself.\n"
    return (
        f'```python\nimport mixupmp\n\nposterior = mixupmp.load("this folder"{argument})\n'
        f"posterior.probabilities(inputs)  # (rows, classes)\n```\n\n{'' if own_network else needs}"
        "Weights are safetensors; `manifest.json` holds the SHA-256 of every file, and loading checks them all."
    )


def _value(name: str, value: float | None) -> str:
    return "" if value is None else f"{display(name, value)[1]:.4g}"
