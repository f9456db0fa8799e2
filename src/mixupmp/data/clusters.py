"""The paper's two-dimensional example: five clusters of very different sizes (its appendix on synthetic data)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mixupmp.core.rows import Dataset, Rows
from mixupmp.data.files import Root

SIZES = (20, 50, 100, 200, 500)
LIMIT = 15.0  # the square [-15, 15]^2 is where the paper's uniform base measure draws
# The paper draws its centers at random and does not print them. These were chosen so that the largest cluster has
# all others for neighbors, at different distances, and the corners of the square stay empty.
CENTERS = ((9.5, 6.5), (-9.0, 9.5), (6.0, -9.5), (-8.5, -5.0), (0.5, 2.0))
DEVIATION = 1.2


def clusters(root: Root = None, download: bool = False, seed: int = 0) -> Dataset:
    """Five Gaussian clusters, one class each, of 20, 50, 100, 200 and 500 rows inside [-15, 15]^2.

    The clusters are the same for every seed; the seed draws the rows. The test set is a second, independent draw
    of the same sizes. Inputs are not standardized, as in the paper.
    """
    generator = torch.Generator().manual_seed(seed)
    train, test = _draw(generator), _draw(generator)
    return Dataset("clusters", train, test, tuple(str(k + 1) for k in range(len(SIZES)))).checked()


def _draw(generator: Generator) -> Rows:
    labels = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    noise: Tensor = torch.randn(len(labels), 2, generator=generator)
    inputs = torch.tensor(CENTERS)[labels] + DEVIATION * noise
    # A normal draw has no bound: the rare row beyond the square is put on its edge.
    return Rows(inputs.clamp(-LIMIT, LIMIT), labels)
