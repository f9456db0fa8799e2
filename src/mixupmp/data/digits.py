"""The digits that come with scikit-learn: real data, no download."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch

from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.core.split import split
from mixupmp.data.files import Root


def digits(root: Root = None, download: bool = False, seed: int = 0) -> Dataset:
    """1,797 gray 8 x 8 handwritten digits (Alpaydin, Kaynak), half of them (899) for training.

    Their 17 levels 0..16 are spread over 0..255. The split is stratified; the seed chooses it.
    """
    spec = importlib.util.find_spec("sklearn")  # its file, without its two seconds of imports
    assert spec is not None
    assert spec.origin is not None
    with gzip.open(Path(spec.origin).parent / "datasets/data/digits.csv.gz", "rt") as file:
        table = torch.from_numpy(np.loadtxt(file, delimiter=","))
    images = (table[:, :-1].view(-1, 1, 8, 8) * (255 / 16)).round().to(torch.uint8)
    labels = table[:, -1].to(torch.int64)
    train, test = split(Rows(images, labels), 0.5, seed)
    return Dataset("digits", train, test, tuple(str(k) for k in range(10)), Standardize.of(train.inputs)).checked()
