"""The digits that come with scikit-learn: real data, no download."""

from __future__ import annotations

import os

import torch

from mixupmp.core.rows import Dataset, Rows, Standardize, split


def digits(root: str | os.PathLike[str] | None = None, download: bool = False, seed: int = 0) -> Dataset:
    """1,797 gray 8 x 8 handwritten digits (Alpaydin, Kaynak), half of them (899) for training.

    Their 17 levels 0..16 are spread over 0..255. The split is stratified; the seed chooses it.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    levels = torch.from_numpy(bunch.images)
    images = (levels * (255 / 16)).round().to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    train, test = split(Rows(images, labels), 0.5, seed)
    return Dataset("digits", train, test, tuple(str(k) for k in range(10)), Standardize.of(train.inputs)).checked()
