"""A scene while it trains: frames of the landscape, as fast as a page can show them.

A frame is its length (uint32, little-endian), the length of its JSON header, the header, and bytes: the uncertainty of
each cell of the grid (0..255), its most probable class, and for each member and class how far that class leads there
(int8, zero on a decision boundary). Rows of the grid run from the bottom up.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mixupmp.core import seeds
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import simulate
from mixupmp.core.threads import cores
from mixupmp.data.clusters import LIMIT
from mixupmp.metrics import gini
from mixupmp.train.vectorized.engine import VectorizedFit, split_members
from mixupmp.web.playground.scene import Scene

SIDE = 64  # cells of the landscape along one side
FIRST_STEPS = 5  # before the first frame, which should come at once
PACE = (0.06, 0.25)  # seconds of training from one frame to the next, at first and later on


def frames(scene: Scene, stopped: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
    """Train the scene's members and yield a frame from time to time, until the recipe ends or `stopped`."""
    plan = scene.plan()
    opening = {"snippet": scene.snippet(), "seen": seen(plan), "future": future(plan), "side": SIDE, "limit": LIMIT}
    fit = VectorizedFit(plan, split_members(tuple(range(scene.members)), cores()))
    try:
        grid = cells()
        inputs = plan.train.inputs  # type: ignore[union-attr]
        steps, started = FIRST_STEPS, time.perf_counter()
        while not stopped():
            before = time.perf_counter()
            fit.advance(steps)
            took = (time.perf_counter() - before) / steps
            yield frame(fit, grid, inputs, opening)
            opening = {}
            if fit.step >= fit.total_steps or len(fit.diverged_at) == scene.members:
                return
            pace = PACE[0] if time.perf_counter() - started < 2 else PACE[1]
            steps = max(1, min(int(pace / max(took, 1e-5)), 4 * steps))
    finally:
        fit.close()


def cells() -> Tensor:
    """(cells, 2): the middles of the grid's cells, row by row from the bottom left."""
    middles = (torch.arange(SIDE) + 0.5) * (2 * LIMIT / SIDE) - LIMIT
    y, x = torch.meshgrid(middles, middles, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], 1)


def seen(plan: Plan) -> list[list[float]]:
    """The observed rows: x, y, class."""
    rows = plan.train
    pairs = zip(rows.inputs.tolist(), rows.labels.tolist(), strict=True)  # type: ignore[union-attr]
    return [[round(x, 2), round(y, 2), label] for (x, y), label in pairs]


def future(plan: Plan) -> list[list[float]]:
    """A sample of F_inf, the first member's: x, y, weight, and the share of each class."""
    draws = seeds.generator(plan.seed, 0, "draws")
    drawn = simulate(plan.method.predictive, plan.training_data(), plan.recipe.pseudo_batch_size, draws)
    batch = next(iter(drawn.batches([torch.arange(len(drawn))], draws)))
    table = torch.cat([batch.inputs, batch.weights[:, None], batch.targets], 1)
    return [[round(value, 3) for value in row] for row in table.tolist()]


def frame(fit: VectorizedFit, grid: Tensor, inputs: Tensor, opening: dict[str, object]) -> bytes:
    """The fit's current state as a frame; `opening` is added to its header."""
    outputs = fit.outputs(torch.cat([grid, inputs]))
    # Weights can overflow in the very step whose loss was still finite.
    finite = torch.isfinite(outputs).flatten(1).all(1).tolist()
    members = list(enumerate(fit.members))
    finite_members = [place for place, member in members if finite[place] and member not in fit.diverged_at]
    diverged = [member for place, member in members if place not in finite_members]
    outputs = outputs[finite_members]
    header = opening | {"step": fit.step, "steps": fit.total_steps, "seconds": round(fit.seconds, 3)}
    header |= {"members": len(finite_members), "diverged": diverged}
    if not finite_members:
        return packed(header)
    uncertainty = gini(outputs.softmax(-1), rescale=True)
    on_grid, on_data = uncertainty[: len(grid)], uncertainty[len(grid) :]
    header |= {
        "classes": outputs.shape[-1],
        "mean_uncertainty": round(float(on_grid.mean()), 4),
        "mean_uncertainty_on_data": round(float(on_data.mean()), 4),
    }
    outputs = outputs[:, : len(grid)]
    predicted = outputs.softmax(-1).mean(0).argmax(-1)
    levels = (on_grid * 255).round().clamp(0, 255)
    return packed(header, levels.to(torch.uint8), predicted.to(torch.uint8), leads(outputs))


def leads(outputs: Tensor) -> Tensor:
    """(members, classes, cells) int8: each class's logit minus the best other one, squashed; zero on the boundary."""
    top, order = outputs.topk(2, -1)
    best = top[..., :1].expand_as(outputs).clone()
    best.scatter_(-1, order[..., :1], top[..., 1:])
    lead = torch.tanh((outputs - best) / 2) * 127
    # A boundary runs between cells of different sign: none may be lost to rounding.
    return torch.where(lead > 0, lead.ceil(), lead.floor()).to(torch.int8).transpose(1, 2).contiguous()


def packed(header: dict[str, Any], *parts: Tensor) -> bytes:
    """One frame as bytes."""
    words = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join(part.numpy().tobytes() for part in parts)
    return struct.pack("<II", 4 + len(words) + len(body), len(words)) + words + body
