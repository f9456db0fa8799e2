"""Small datasets that every test can share, and one thread for all of them."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from mixupmp.core.rows import Dataset
from small_data import small_images, small_table

torch.set_num_threads(1)


@pytest.fixture
def table() -> Dataset:
    return small_table()


@pytest.fixture
def images() -> Dataset:
    return small_images()


@pytest.fixture
def generator() -> Generator:
    return Generator().manual_seed(20)
