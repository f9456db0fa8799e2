"""The 2-D figures: a sample of F_inf above, the uncertainty that comes of it below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mixupmp.core import seeds
from mixupmp.core.member_summary import left_out
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.predictive import simulate
from mixupmp.data.clusters import CENTERS, DEVIATION, LIMIT
from mixupmp.metrics import gini
from mixupmp.metrics.comparison import summary_of
from mixupmp.metrics.text_tables import csv_table, latex_table, latex_text, markdown_table
from mixupmp.paper.figures import panels, save
from mixupmp.paper.members import Wanted
from mixupmp.paper.settings import INTERPOLATES, setting_named
from mixupmp.paper.study import Evaluation, Study, training_of
from mixupmp.plots.style import styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

SIDE = 151  # points along each axis of the landscape
SHOWN_ROWS = 870  # as many as were observed
REGIONS = ("at the rows", "between the clusters", "beyond the clusters", "everywhere")


@dataclass(frozen=True)
class Panel:
    """One column of a figure: a title, a method, and which members it is of.

    Collapsed members are left out unless it says to keep them. With `interpolating`, so are those that do not
    interpolate their training rows: between a trained network and a collapsed one there are others, which give
    several classes the same output.
    """

    title: str
    method: Method
    keep_collapsed: bool = False
    interpolating: bool = False

    def members_of(self, posterior: Posterior) -> list[int]:
        """The places of its members among the posterior's networks."""
        lost = left_out(posterior.summaries)
        reached = [s.training_accuracy or 0.0 for s in posterior.summaries if s.member not in lost]
        return [place for place, one in enumerate(reached) if one >= INTERPOLATES or not self.interpolating]


def draw_landscapes(
    study: Study,
    title: str,
    panels_of: Callable[[int], list[Panel]],
    setting_name: str = "clusters",
    own: Sequence[str] = (),
) -> None:
    """Train every panel's posterior, draw the figure and write what it shows as numbers.

    `own` are the differences of this figure from the paper's.
    """
    setting = study.setting(setting_named(setting_name, study.scale))
    shown = panels_of(setting.members)
    wanted = [[Wanted(setting.plan(panel.method, seed)) for seed in setting.seeds] for panel in shown]
    study.train(sorted((one for many in wanted for one in many), key=lambda one: one.plan.seed))
    ready = [(panel, many) for panel, many in zip(shown, wanted, strict=True) if study.available(many[0])]
    numbers = []
    with styled():
        figure, axes = panels(2, len(ready), 2.7 * len(ready) + 0.8, 5.4, sharey="row")
        for (panel, many), above, below in zip(ready, *axes, strict=True):
            above.set_title(panel.title)
            points = _draw_sample(above, many[0].plan)
            repeats: list[Evaluation] = []
            for one in filter(study.available, many):
                posterior = study.cache.posterior(one, panel.keep_collapsed)
                chosen = [] if posterior is None else panel.members_of(posterior)
                if posterior is None or not chosen:
                    continue
                members = posterior.member_probabilities(_grid(), batch_size=4096).cpu()[chosen]
                if not repeats:  # the first one is drawn
                    shading = _draw_uncertainty(below, gini(members, rescale=True))
                at_rows = posterior.member_probabilities(setting.full.train.inputs, batch_size=4096).cpu()[chosen]
                ended = training_of(study.cache, one, panel.keep_collapsed)
                ended |= _those_left_out(posterior, chosen) if panel.interpolating else {}
                repeats.append({"panel": panel.title, **ended, **regions(members, at_rows)})
            if repeats:
                numbers.append(_over_repeats(repeats))
            else:
                below.text(0.5, 0.5, "no such network", ha="center", transform=below.transAxes)
        _finish(figure, axes, points, shading, title)
    save(figure, study.folder, "landscapes")
    differs = [*setting.all_differences, *differences(numbers), *own]
    over = "members, by the jackknife" if setting.repeats == 1 else "repeats"
    caption = f"Mean rescaled uncertainty (error over {over}). {setting.describe()}. "
    _write_numbers(study, title, numbers, f"{caption}Differs from the paper: {'; '.join(differs)}.")
    study.record(differs, setting.seeds, setting=setting.describe())


def _those_left_out(posterior: Posterior, chosen: Sequence[int]) -> Evaluation:
    """The training accuracy of these members, and how many of the others did not diverge."""
    lost = left_out(posterior.summaries)
    reached = [s.training_accuracy or 0.0 for s in posterior.summaries if s.member not in lost]
    diverged = sum(s.diverged_at is not None for s in posterior.summaries)
    return {
        "training_accuracy": sum(reached[place] for place in chosen) / len(chosen),
        "collapsed": len(posterior.summaries) - diverged - len(chosen),
    }


def differences(numbers: Sequence[Evaluation]) -> list[str]:
    """From appendix B, in all of these figures; members are said to be left out where some are."""
    found = [
        "places and spread of the clusters are ours, as the text prints none",
        "plain gradient descent without momentum and weight decay, and ReLU, as the text gives rate and widths alone",
        "uncertainty is divided by the most there can be, 1 - 1/K, as the text says no more than rescaled to [0, 1]",
    ]
    if any(one["diverged"] + one["collapsed"] for one in numbers):
        found.append("networks that diverged or collapsed are left out, as counted for each panel")
    return found


def _over_repeats(repeats: list[Evaluation]) -> Evaluation:
    """A panel's numbers: of its only repeat, or means with standard errors over repeats, and each of them."""
    if len(repeats) == 1:
        return repeats[0]
    found = {
        **repeats[0],
        "repeats": [{**{name: one[name]["mean"] for name in REGIONS}, "seed": one["seed"]} for one in repeats],
    }
    for name in REGIONS:
        summary = summary_of([one[name]["mean"] for one in repeats])
        found[name] = {"mean": summary.mean, "standard_error": summary.standard_error}
    for name in ("diverged", "collapsed", "networks", "seconds"):
        found[name] = sum(one[name] for one in repeats)
    found["training_accuracy"] = sum(one["training_accuracy"] for one in repeats) / len(repeats)
    return found


def sample_future(plan: Plan, count: int = SHOWN_ROWS) -> tuple[Tensor, Tensor, Tensor]:
    """Rows drawn from one simulated F_inf: inputs, labels on [0, K-1], and which of them repeat observed rows."""
    generator = seeds.generator(plan.seed, 0, "draws")
    future = simulate(plan.method.predictive, plan.training_data(), plan.recipe.pseudo_batch_size, generator)
    batch = next(iter(future.batches([torch.arange(len(future))], generator)))
    chosen = torch.multinomial(batch.weights.double(), count, replacement=True, generator=generator)
    observed = len(plan.train) if plan.method.predictive.ratio != float("inf") else 0
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


def _draw_sample(axis: Axes, plan: Plan) -> PathCollection:
    """Dots for rows that repeat observed ones, crosses for new ones."""
    inputs, label, observed = sample_future(plan)
    drawn = []
    for marker, chosen, size, wide in ((".", observed, 14, None), ("x", ~observed, 10, 0.7)):
        x, y = inputs[chosen].T.numpy()
        points = axis.scatter(
            x, y, size, label[chosen].numpy(), marker=marker, cmap="plasma", vmin=0, vmax=4, alpha=0.8
        )
        points.set(rasterized=True, linewidth=wide)
        drawn.append((len(x), points))
    return max(drawn, key=lambda pair: pair[0] > 0)[1]


def _draw_uncertainty(axis: Axes, uncertainty: Tensor) -> AxesImage:
    image = uncertainty.view(SIDE, SIDE).T.numpy()
    extent = (-LIMIT, LIMIT, -LIMIT, LIMIT)
    return axis.imshow(image, origin="lower", extent=extent, cmap="viridis", vmin=0, vmax=1, aspect="auto")


def _finish(figure: Figure, axes: list[list[Axes]], points: PathCollection, shading: AxesImage, title: str) -> None:
    for axis in (*axes[0], *axes[1]):
        axis.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xticks=(-10, 0, 10), yticks=(-10, 0, 10))
    axes[0][0].set_ylabel("a sample of F∞\n(dots: seen, crosses: new)")
    axes[1][0].set_ylabel("uncertainty 1 - Σp², rescaled")
    figure.colorbar(points, ax=axes[0], label="label", fraction=0.02, pad=0.01)
    figure.colorbar(shading, ax=axes[1], label="uncertainty", fraction=0.02, pad=0.01)
    figure.suptitle(title)


def _write_numbers(study: Study, title: str, numbers: list[Evaluation], caption: str) -> None:
    """The landscape's means by region, as a table and for the ledger."""
    study.write("regions.json", numbers)
    headings = ["panel", *REGIONS, "train ACC (%)", "networks left out"]
    rows = []
    for one in numbers:
        errors = [f" ({one[name]['standard_error']:.3f})" if "standard_error" in one[name] else "" for name in REGIONS]
        cells = [f"{one[name]['mean']:.3f}{error}" for name, error in zip(REGIONS, errors, strict=True)]
        lost = one["diverged"] + one["collapsed"]
        ended = [f"{100 * (one['training_accuracy'] or 0):.2f}", f"{lost} of {one['networks']}"]
        rows.append([one["panel"], *cells, *ended])
    text = f"## {title}\n\n{markdown_table(headings, rows)}\n\n{caption}\n"
    study.write("regions.md", text)
    study.write("regions.csv", csv_table(headings, rows))
    escaped = [list(map(latex_text, row)) for row in [headings, *rows]]
    study.write("regions.tex", latex_table(escaped[0], escaped[1:]))
    study.say(text)
