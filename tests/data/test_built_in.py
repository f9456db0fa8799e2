from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from mixupmp.core.errors import UnknownName
from mixupmp.data import DATASETS, load
from mixupmp.data.clusters import CENTERS, DEVIATION, SIZES


def test_digits_are_the_default_and_all_there():
    dataset = load()
    assert dataset.name == "digits"
    assert (len(dataset.train), len(dataset.test)) == (899, 898)
    images = torch.cat([dataset.train.inputs, dataset.test.inputs])
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == torch.uint8
    assert (int(images.min()), int(images.max())) == (0, 255)
    assert images.unique().numel() == 17
    published = load_digits()
    assert np.array_equal(images.sum((0, 1)), (published.images * 255 / 16).round().sum(0))
    labels = torch.cat([dataset.train.labels, dataset.test.labels])
    assert np.array_equal(labels.bincount(), np.bincount(published.target))
    spread = dataset.train.labels.bincount() - dataset.test.labels.bincount()
    assert int(spread.abs().max()) <= 1


def test_the_seed_chooses_the_split_of_digits():
    first, again, other = load("digits", seed=1), load("digits", seed=1), load("digits", seed=2)
    assert first.train.fingerprint() == again.train.fingerprint()
    assert first.train.fingerprint() != other.train.fingerprint()


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_as_many_as_the_paper_says_and_apart(seed):
    dataset = load("clusters", seed=seed)
    for rows in (dataset.train, dataset.test):
        assert rows.labels.bincount().tolist() == list(SIZES) == [20, 50, 100, 200, 500]
        assert float(rows.inputs.abs().max()) <= 15
        distance = torch.cdist(rows.inputs, torch.tensor(CENTERS))
        assert torch.equal(distance.argmin(1), rows.labels)  # no cluster reaches into another
        own = rows.inputs - torch.tensor(CENTERS)[rows.labels]
        assert float(own.std()) == pytest.approx(DEVIATION, rel=0.1)
    assert not torch.equal(dataset.train.inputs, dataset.test.inputs)
    assert dataset.train.fingerprint() == load("clusters", seed=seed).train.fingerprint()


def test_an_unknown_name_gets_the_nearest():
    images = {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "notmnist"}
    assert set(DATASETS) >= images | {"clusters", "clinc150", "fsdd", "fsdd-speakers"}
    with pytest.raises(UnknownName, match=r"'fashon-mnist'. Did you mean 'fashion-mnist'"):
        load("fashon-mnist")
