"""The piecewise linear encoding against its definition."""

from __future__ import annotations

import pytest
import torch

from mixupmp.core.errors import MixupMPError
from mixupmp.networks import PiecewiseLinear, TabularMLP, quantile_edges


def test_encoding_by_hand() -> None:
    encoding = PiecewiseLinear([(0.0, 1.0, 3.0, 4.0), (0.0, 10.0)])
    encoded = encoding(torch.tensor([[2.0, 5.0], [0.0, -10.0], [-9.0, 99.0], [99.0, 10.0]]))
    assert (encoded + 1).div(2).tolist() == [
        [1.0, 0.5, 0.0, 0.5],
        [0.0, 0.0, 0.0, -1.0],
        [-1.0, 0.0, 0.0, 2.0],
        [1.0, 1.0, 2.0, 1.0],
    ]
    assert encoding.outputs == 4


def test_edges_are_quantiles_or_all_distinct_values() -> None:
    generator = torch.Generator().manual_seed(0)
    column = torch.rand(1000, generator=generator)
    inputs = torch.stack([column, torch.arange(1000) % 3.0, torch.ones(1000)], 1)
    many, few, constant = quantile_edges(inputs, 16)
    assert len(many) == 17
    counts = torch.histogram(column, torch.tensor(many)).hist
    assert float(counts.min()) >= 60
    assert few == (0.0, 1.0, 2.0)
    assert constant == (1.0, 2.0)
    heavy = torch.cat([torch.zeros(990), torch.rand(10, generator=generator)])[:, None]
    assert all(a < b for a, b in zip(*[quantile_edges(heavy)[0][k:] for k in (0, 1)], strict=False))


def test_it_is_continuous_and_rising_in_every_number() -> None:
    inputs = torch.randn(500, 1, generator=torch.Generator().manual_seed(1))
    encoding = PiecewiseLinear(quantile_edges(inputs))
    line = torch.linspace(-6, 6, 4001)[:, None]
    encoded = encoding(line)
    assert bool((encoded.diff(dim=0) >= 0).all())
    assert float(encoded.sum(1).diff().abs().max()) < 0.5
    assert bool(torch.isfinite(encoding(torch.tensor([[3e38], [-3e38]]))).all())


def test_the_encoding_is_part_of_the_network_but_not_of_its_weights() -> None:
    network = TabularMLP([(0.0, 1.0), (0.0, 1.0, 2.0)], 3, (8,), dropout=0.1)
    assert network(torch.zeros(5, 2)).shape == (5, 3)
    assert all("feature" not in name for name in network.state_dict())


def test_wrong_edges_are_named() -> None:
    for wrong in ([], [(1.0,)], [(1.0, 1.0)], [(2.0, 1.0)]):
        with pytest.raises(MixupMPError, match="edges"):
            PiecewiseLinear(wrong)
    with pytest.raises(MixupMPError, match="bins"):
        quantile_edges(torch.zeros(3, 1), 0)
