"""Where the demonstration's calibration errors come from, on rows that are none of its test rows.

    python results/demo/development.py 110 118

For each seed 200 of the digits' 899 training rows are fitted, as the demonstration does, and the other 699 are scored,
clean and under each of its corruptions. Prints two tables, and keeps every number in development.json.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

import mixupmp.decide.select as selecting
from mixupmp import data
from mixupmp.cli.demonstration import CLASSIFIERS, CLEAN, FAMILIES
from mixupmp.core.rows import Rows
from mixupmp.data.corruptions import corrupt
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.calibrators import Temperature
from mixupmp.metrics import evaluate
from mixupmp.train.settings import fewer_rows

SEVERITY = 4
MEASURES = ("acc", "gap", "nll", "ece")


def measured(probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy, confidence less accuracy, NLL and ECE."""
    found = evaluate(probabilities, labels)
    gap = float(probabilities.amax(1).mean()) - float(found["acc"])
    return {"acc": float(found["acc"]), "gap": gap, "nll": float(found["nll"]), "ece": float(found["ece"])}


def others(train: Rows, few: Rows) -> Rows:
    """The training rows that were not drawn."""
    drawn = {row.numpy().tobytes() for row in few.inputs}
    left = torch.tensor([row.numpy().tobytes() not in drawn for row in train.inputs])
    return train.take(left.nonzero().squeeze(1))


def temperatures(classifier: Any, few: Rows, seed: int) -> tuple[Any, dict[str, Temperature]]:
    """The default classifier, and its temperature from two parts of a fifth of the rows and from all it held out."""
    parts: list[Any] = []
    plain = selecting.calibration

    def recorded(held: Any, outputs: Any) -> Any:
        parts[:] = [plain(held[:2], outputs[:2])[0], plain(held, outputs)[0]]
        return plain(held, outputs)

    selecting.calibration = recorded
    try:
        model = classifier(random_state=seed).fit(few.inputs, few.labels)
    finally:
        selecting.calibration = plain
    return model, {"none": Temperature(1.0), "two parts": parts[0], "all parts": parts[1]}


def one_seed(seed: int) -> list[dict[str, Any]]:
    whole = data.load("digits")
    few = fewer_rows(whole, 200, seed).train
    test = others(whole.train, few)
    corruptions = {
        f"{family}: {name}": corrupt(test.inputs, name, SEVERITY) for family in FAMILIES for name in FAMILIES[family]
    }
    sets = {CLEAN: test.inputs} | corruptions
    for family, names in FAMILIES.items():  # as the demonstration has them: corruptions take turns
        images = test.inputs.clone()
        for turn, name in enumerate(names):
            images[turn :: len(names)] = corruptions[f"{family}: {name}"][turn :: len(names)]
        sets[family] = images
    records = []
    for name in ("DE", "MixupMP"):
        model, found = temperatures(CLASSIFIERS[name], few, seed)
        members = {key: model.posterior_.member_probabilities(images).double().mean(0) for key, images in sets.items()}
        best = fit_temperature(members[CLEAN], test.labels, prior_deviation=float("inf"), standard_errors=None)
        found["best on these rows"] = best
        for which, temperature in found.items():
            scores = {key: measured(temperature(raw), test.labels) for key, raw in members.items()}
            own = {"seed": seed, "classifier": name, "temperature from": which, "temperature": temperature.temperature}
            records.append(own | {"scores": scores})
        print(seed, name, {which: round(t.temperature, 2) for which, t in found.items()}, file=sys.stderr, flush=True)
    return records


def tables(records: list[dict[str, Any]]) -> list[str]:
    """By where the temperature comes from; and by corruption."""
    values: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for record in records:
        for key, scores in record["scores"].items():
            for measure in MEASURES:
                values[record["classifier"], record["temperature from"], key, measure].append(scores[measure])
    kinds = list(dict.fromkeys(record["temperature from"] for record in records))
    lines = [
        "| rows | temperature from | NLL: DE | MixupMP | ECE (%): DE | MixupMP | difference |",
        "|---|---|" + "---:|" * 5,
    ]
    for key in (CLEAN, *FAMILIES):
        for kind in kinds:
            nll = [f"{fmean(values[name, kind, key, 'nll']):.3f}" for name in ("DE", "MixupMP")]
            ece = [[100 * v for v in values[name, kind, key, "ece"]] for name in ("DE", "MixupMP")]
            paired = [ours - theirs for theirs, ours in zip(*ece, strict=True)]
            error = stdev(paired) / len(paired) ** 0.5 if len(paired) > 1 else float("nan")
            cells = [*nll, *(f"{fmean(e):.1f}" for e in ece), f"{fmean(paired):+.1f} ± {error:.1f}"]
            lines.append(f"| {key} | {kind} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| corruption | ACC (%): DE | MixupMP | confidence - ACC: DE | MixupMP | ECE (%): DE | MixupMP |",
        "|---|" + "---:|" * 6,
    ]
    for key in (key for key in records[0]["scores"] if ":" in key or key == CLEAN):
        cells = [
            f"{100 * fmean(values[name, 'all parts', key, measure]):.1f}"
            for measure in ("acc", "gap", "ece")
            for name in ("DE", "MixupMP")
        ]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    torch.set_num_threads(1)
    records = [record for seed in range(*map(int, sys.argv[1:3])) for record in one_seed(seed)]
    Path(__file__).with_suffix(".json").write_text(json.dumps(records, indent=1) + "\n")
    print("\n".join(tables(records)))


if __name__ == "__main__":
    main()
