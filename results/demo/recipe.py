"""The demonstration's recipe: the one that serves the deep ensemble best, by NLL on validation rows.

    python experiments/demo_recipe.py

The rival is to be at its strongest, and no test row is looked at: r and alpha are chosen later, by the demonstration
itself, among the paper's values.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import torch
from mixupmp.metrics.summary import summarize

from mixupmp import __version__, data
from mixupmp.cli.demonstration import Demo, Repeat
from mixupmp.train.progress import Callback

TRIED = [("sgd", rate) for rate in (0.01, 0.02, 0.05, 0.1)] + [("adamw", rate) for rate in (0.001, 0.003, 0.01, 0.03)]


def main() -> None:
    torch.set_num_threads(1)
    demo, whole = Demo(), data.load("digits")
    lines = [
        "# The demonstration's recipe",
        "",
        "Command: `python experiments/demo_recipe.py`. The lowest is taken: a rival at its strongest.",
        "",
        "| optimizer | learning rate | validation NLL of the deep ensemble, ± over seeds |",
        "|---|---:|---:|",
    ]
    for optimizer, rate in TRIED:
        recipe = replace(demo.recipe, optimizer=optimizer, learning_rate=rate)
        rivals = replace(demo, ratios=(0.0,), trial_members=demo.members, recipe=recipe)
        repeats = [Repeat(rivals, whole, seed, "inline", Callback()) for seed in rivals.seeds]
        found = summarize([{"nll": repeat.search()[rivals.candidates[0]]} for repeat in repeats])["nll"]
        lines.append(f"| {optimizer} | {rate} | {found.mean:.3f} ± {found.standard_error:.3f} |")
        print(lines[-1], flush=True)
    versions = f"mixupmp {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    lines += [
        "",
        f"{demo.recipe.epochs} epochs of {demo.rows} rows, {demo.members} members, seeds {demo.seeds}. {versions}.",
        "",
    ]
    folder = Path("results/demo")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
