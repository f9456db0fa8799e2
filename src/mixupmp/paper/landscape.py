"""The 2-D figures: a sample of F_inf above, the uncertainty that comes of it below."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from mixupmp.core import seeds
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import simulate
from mixupmp.data.clusters import CENTERS, DEVIATION, LIMIT
from mixupmp.metrics import gini
from mixupmp.paper.figures import pyplot, save
from mixupmp.paper.members import Wanted
from mixupmp.paper.settings import Setting, clusters
from mixupmp.paper.study import Study

SIDE = 151  # points along each axis of the landscape
SHOWN_ROWS = 870  # as many as were observed


@dataclass(frozen=True)
class Panel:
    """One column of a figure: a title and a method."""

    title: str
    method: Method


def draw_landscapes(study: Study, title: str, panels: Sequence[Panel]) -> None:
    """Train every panel's posterior, draw the figure and write what it shows as numbers."""
    started = time.time()
    setting = clusters(study.scale)
    wanted = [Wanted(setting.plan(panel.method, 0)) for panel in panels]
    study.train(wanted)
    ready = [(panel, one) for panel, one in zip(panels, wanted, strict=True) if study.available(one)]
    numbers = []
    plt = pyplot()
    figure, axes = plt.subplots(2, len(ready), figsize=(2.7 * len(ready) + 0.8, 5.4), squeeze=False, sharey="row")
    for (panel, one), (above, below) in zip(ready, axes.T, strict=True):
        above.set_title(panel.title)
        points = _draw_sample(above, one.plan)
        posterior = study.cache.posterior(one)
        if posterior is None:
            continue
        members = posterior.member_probabilities(_grid(), batch_size=4096)
        shading = _draw_uncertainty(below, gini(members, rescale=True))
        at_rows = posterior.member_probabilities(setting.dataset.train.inputs, batch_size=4096)
        numbers.append({"panel": panel.title, **study.training(one), **regions(members, at_rows)})
    _finish(figure, axes, points, shading, title)
    save(figure, study.folder, "landscapes")
    _write_numbers(study, title, numbers, setting)
    study.record([setting.reduced], [0], started, setting=setting.describe())


def sample_future(plan: Plan, count: int = SHOWN_ROWS) -> tuple[Tensor, Tensor, Tensor]:
    """Rows drawn from one simulated F_inf: inputs, labels on [0, K-1], and which of them repeat observed rows."""
    generator = seeds.generator(plan.seed, 0, "draws")
    future = simulate(plan.method.predictive, plan.training_data(), plan.recipe.pseudo_batch_size, generator)
    batch = next(iter(future.batches([torch.arange(len(future))], generator)))
    chosen = torch.multinomial(batch.weights.double(), count, replacement=True, generator=generator)
    observed = len(plan.train) if plan.method.predictive.ratio != float("inf") else 0  # type: ignore[arg-type]
    label = batch.targets @ torch.arange(batch.targets.shape[1], dtype=torch.float32)
    return batch.inputs[chosen], label[chosen], chosen < observed


def regions(members: Tensor, at_rows: Tensor) -> dict[str, dict[str, float]]:
    """Mean uncertainty where rows were seen, between the clusters, and beyond them; errors by the jackknife."""
    grid = _grid()
    distance = torch.cdist(grid, torch.tensor(CENTERS)).amin(1)
    middle = torch.tensor(CENTERS).mean(0)
    reach = (torch.tensor(CENTERS) - middle).norm(dim=1).max()
    near_middle = (grid - middle).norm(dim=1) < reach
    empty = distance > 3 * DEVIATION
    return {
        "at the rows": _jackknifed(at_rows),
        "between the clusters": _jackknifed(members[:, empty & near_middle]),
        "beyond the clusters": _jackknifed(members[:, empty & ~near_middle]),
        "everywhere": _jackknifed(members),
    }


def _jackknifed(members: Tensor) -> dict[str, float]:
    """The mean rescaled uncertainty of these rows, and its standard error over members."""
    count = len(members)
    mean = float(gini(members, rescale=True).mean())
    if count < 3:
        return {"mean": mean}
    without = [float(gini(members[torch.arange(count) != m], rescale=True).mean()) for m in range(count)]
    center = sum(without) / count
    error = sqrt((count - 1) / count * sum((value - center) ** 2 for value in without))
    return {"mean": mean, "standard_error": error}


def _grid() -> Tensor:
    line = torch.linspace(-LIMIT, LIMIT, SIDE)
    return torch.cartesian_prod(line, line)


def _draw_sample(axis: Any, plan: Plan) -> Any:
    inputs, label, observed = sample_future(plan)
    points = None
    for marker, chosen, size in ((".", observed, 14), ("x", ~observed, 10)):
        x, y = inputs[chosen].T.numpy()
        wide = {"linewidths": 0.7} if marker == "x" else {}
        drawn = axis.scatter(
            x,
            y,
            s=size,
            c=label[chosen].numpy(),
            marker=marker,
            cmap="plasma",
            vmin=0,
            vmax=4,
            alpha=0.8,
            rasterized=True,
            **wide,
        )
        points = drawn if points is None or len(x) else points
    return points


def _draw_uncertainty(axis: Any, uncertainty: Tensor) -> Any:
    image = uncertainty.view(SIDE, SIDE).T.numpy()
    return axis.imshow(
        image, origin="lower", extent=(-LIMIT, LIMIT, -LIMIT, LIMIT), cmap="viridis", vmin=0, vmax=1, aspect="auto"
    )


def _finish(figure: Any, axes: Any, points: Any, shading: Any, title: str) -> None:
    for axis in axes.flat:
        axis.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xticks=(-10, 0, 10), yticks=(-10, 0, 10))
        axis.grid(visible=False)
    axes[0][0].set_ylabel("a sample of F∞\n(dots: seen, crosses: new)")
    axes[1][0].set_ylabel("uncertainty 1 - Σp², rescaled")
    figure.colorbar(points, ax=list(axes[0]), label="label", fraction=0.02, pad=0.01)
    figure.colorbar(shading, ax=list(axes[1]), label="uncertainty", fraction=0.02, pad=0.01)
    figure.suptitle(title, y=0.99)


def _write_numbers(study: Study, title: str, numbers: list[dict[str, Any]], setting: Setting) -> None:
    """The landscape's means by region, as a table and for the ledger."""
    study.write("regions.json", numbers)
    names = ("at the rows", "between the clusters", "beyond the clusters", "everywhere")
    lines = [f"## {title}", "", "| panel | " + " | ".join(names) + " | train ACC (%) | diverged |"]
    lines.append("|---" * (len(names) + 3) + "|")
    plain = ["panel," + ",".join(names) + ",train ACC,diverged"]
    for one in numbers:
        means = [f"{one[name]['mean']:.3f}" for name in names]
        errors = [f" ({one[name]['standard_error']:.3f})" if "standard_error" in one[name] else "" for name in names]
        ended = [f"{100 * (one['training_accuracy'] or 0):.2f}", f"{one['diverged']} of {one['networks']}"]
        cells = [mean + error for mean, error in zip(means, errors, strict=True)]
        lines.append(f"| {one['panel']} | " + " | ".join([*cells, *ended]) + " |")
        plain.append(",".join([one["panel"], *means, *ended]))
    lines += ["", f"Mean rescaled uncertainty (jackknife error over members). {setting.describe()}. "
              f"Reduced against the paper: {setting.reduced}."]  # fmt: skip
    study.write("regions.md", "\n".join(lines) + "\n")
    study.write("regions.csv", "\n".join(plain) + "\n")
    study.write("regions.tex", _latex(lines[2:-2]))
    study.say("\n".join(lines))


def _latex(markdown: list[str]) -> str:
    """The same table for a paper."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown if not line.startswith("|---")]
    body = [" & ".join(row).replace("%", r"\%").replace("∞", r"$\infty$") + r" \\" for row in rows]
    columns = "l" + "r" * (len(rows[0]) - 1)
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\hline", *body, r"\hline", r"\end{tabular}"]) + "\n"
