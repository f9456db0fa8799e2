"""One fit of one contender, in a process of its own in the rivals' environment; prints what was measured as JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch

from benchmarks.rivals import contenders, data
from mixupmp.metrics import evaluate


def _declare_torchvision_operators() -> None:
    """What `import torchvision` looks for where there is no build of its operators; nothing here calls them."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


_kept: list[Any] = []  # an operator lives as long as its library


def _cpu_seconds() -> float:
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main(name: str, dataset: str, rows: int, epochs: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    _declare_torchvision_operators()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):  # one core for everyone: no workers whose time would be missed
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    images = name in contenders.IMAGE_CONTENDERS
    given: Any = data.images(dataset, rows, epochs) if images else data.table(dataset, seed)
    contender = (contenders.IMAGE_CONTENDERS | contenders.TABLE_CONTENDERS)[name]
    data.seeded(seed)
    started, cpu = time.monotonic(), _cpu_seconds()
    predicted = torch.as_tensor(np.asarray(contender(given, seed)), dtype=torch.float64)
    cpu, wall = _cpu_seconds() - cpu, time.monotonic() - started
    predicted = predicted.clamp_min(1e-12)
    measured = evaluate(predicted / predicted.sum(1, keepdim=True), torch.as_tensor(given.truth))
    figures = {key: measured[key] for key in ("acc", "nll", "ece")}
    print(json.dumps({**figures, "cpu_seconds": round(cpu, 2), "wall_seconds": round(wall, 2)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
