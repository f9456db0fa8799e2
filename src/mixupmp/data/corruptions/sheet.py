"""A contact sheet: every corruption at every severity in one figure."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.errors import check, extra
from mixupmp.core.files import replacing
from mixupmp.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, unchanged_for_gray

GAP = 0.12  # of an image's side, between the cells


def contact_sheet(images: Tensor, path: str | os.PathLike[str], seed: int = 0) -> Path:
    """Write a figure of 19 rows: the images as they are, then at severities 1 to 5. Three or four images fit a cell.

    The path's ending says the format, .png or any other that matplotlib writes.
    """
    with extra("matplotlib", "plot", "a contact sheet"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    path = Path(path)
    check(path.suffix[1:] in ("png", "pdf", "svg", "jpg"), "path", str(path), "a .png, .jpg, .pdf or .svg file")
    check(len(images) > 0, "images", tuple(images.shape), "at least one image")
    rows = [[images, *(corrupt(images, name, severity, seed) for severity in SEVERITIES)] for name in CORRUPTIONS]
    mosaic, across, down = _mosaic(rows)
    width = 11.0
    figure = Figure(figsize=(width, width * mosaic.shape[0] / mosaic.shape[1]), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.imshow(mosaic, interpolation="nearest")
    axes.set_xticks(across, ["clean", *(f"severity {s}" for s in SEVERITIES)])
    axes.set_yticks(down, [_title(name, images.shape[1]) for name in CORRUPTIONS])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], bbox_inches="tight")  # with room for the longest name
    return path


def _title(name: str, channels: int) -> str:
    unchanged = channels == 1 and unchanged_for_gray(name)
    return name.replace("_", " ") + ("\n(gray: unchanged)" if unchanged else "")


def _mosaic(rows: list[list[Tensor]]) -> tuple[Array, list[float], list[float]]:
    """All cells in one RGB picture on white, with the centers of its columns and rows."""
    count, _, height, width = rows[0][0].shape
    gap = max(1, round(GAP * height))
    cell = (height + gap, count * width + gap)
    picture = np.full((len(rows) * cell[0] - gap, len(rows[0]) * cell[1] - gap, 3), 255, np.uint8)
    for i, row in enumerate(rows):
        for j, images in enumerate(row):
            strip = torch.cat(list(images), 2).permute(1, 2, 0).expand(-1, -1, 3).numpy()
            picture[i * cell[0] : i * cell[0] + height, j * cell[1] : j * cell[1] + count * width] = strip
    across = [j * cell[1] + (count * width - 1) / 2 for j in range(len(rows[0]))]
    return picture, across, [i * cell[0] + (height - 1) / 2 for i in range(len(rows))]
