from __future__ import annotations

import gc
import math
import pickle
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.data import Dataset, Rows, Standardize, split


def rows(*counts: int) -> Rows:
    """Rows whose only feature is their own number, with this many of each class."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return Rows(torch.arange(float(len(labels))).unsqueeze(1), labels)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.floats(0.05, 0.6), st.integers(0, 99))
def test_split_parts_all_rows_in_proportion_and_keeps_every_class(counts, fraction, seed):
    whole = rows(*counts)
    wanted = round(fraction * len(whole))
    if not 0 < wanted <= len(whole) - len(counts):
        with pytest.raises(InvalidArgument, match="fraction"):
            split(whole, fraction, seed)
        return
    rest, share = split(whole, fraction, seed)
    assert len(share) == wanted
    together = torch.cat([rest.inputs, share.inputs]).flatten().sort().values
    assert torch.equal(together, whole.inputs.flatten())
    assert rest.labels.unique().numel() == len(counts)
    taken = share.labels.bincount(minlength=len(counts))
    for count, got in zip(counts, taken.tolist(), strict=True):
        # A class of one or two rows may be spared, which the others make up for.
        assert abs(got - fraction * count) <= 1 + len(counts) / 2


def test_split_of_balanced_classes_is_balanced_and_seeded():
    whole = rows(50, 50, 50)
    _, share = split(whole, 0.2, seed=3)
    assert share.labels.bincount().tolist() == [10, 10, 10]
    assert torch.equal(share.inputs, split(whole, 0.2, seed=3)[1].inputs)
    assert not torch.equal(share.inputs, split(whole, 0.2, seed=4)[1].inputs)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan"), 0.001, 0.95])
def test_split_refuses_a_fraction_that_leaves_a_side_or_a_class_empty(fraction):
    with pytest.raises(InvalidArgument, match="fraction"):
        split(rows(5, 5), fraction)


def test_take_keeps_order_and_weights():
    whole = Rows(torch.arange(4.0).unsqueeze(1), torch.tensor([0, 1, 0, 1]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    part = whole.take(torch.tensor([3, 0]))
    assert part.inputs.flatten().tolist() == [3, 0]
    assert part.labels.tolist() == [1, 0]
    assert part.weights is not None
    assert part.weights.tolist() == [4, 1]


def test_fingerprint_sees_every_part():
    base = rows(2, 2)
    same = Rows(base.inputs.clone(), base.labels.clone())
    changed = base.inputs.clone()
    changed[0, 0] += 1
    others = [
        Rows(changed, base.labels),
        Rows(base.inputs, base.labels.flip(0)),
        Rows(base.inputs, base.labels, torch.ones(4)),
        Rows(base.inputs.view(2, 2), base.labels),
        Rows(base.inputs.double(), base.labels),
    ]
    assert base.fingerprint() == same.fingerprint()
    assert len({r.fingerprint() for r in [base, *others]}) == 6


X, Y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Rows(X[:0], Y[:0]), "empty"),
        (Rows(X, Y[:3]), "4 rows of inputs but 3 labels"),
        (Rows(X, Y.unsqueeze(1)), r"\(4, 1\) labels"),
        (Rows(X, Y.float()), "int64"),
        (Rows(X[:, :0], Y), "feature"),
        (Rows(X[:, 0], Y), "feature"),
        (Rows(X, Y + 1), r"0\.\.1 for 2 classes, found 2"),
        (Rows(X, Y - 1), "found -1"),
        (Rows(X.index_fill(0, torch.tensor([2]), math.nan), Y), "NaN or infinity .first in row 2"),
        (Rows(X.index_fill(0, torch.tensor([1]), -math.inf), Y), "NaN or infinity .first in row 1"),
        (Rows(X, Y, torch.ones(3)), "weights"),
        (Rows(X, Y, torch.tensor([1.0, -1.0, 1.0, 1.0])), "at least 0"),
        (Rows(X, Y, torch.zeros(4)), "not all 0"),
        (Rows(X, Y, torch.full((4,), math.nan)), "finite"),
    ],
)
def test_unusable_rows_are_named(bad, message):
    with pytest.raises(BadData, match=message):
        bad.checked(2)


def test_one_class_and_unequal_shapes_are_named():
    good = Rows(X, Y)
    with pytest.raises(BadData, match="at least two"):
        Rows(X, Y * 0).checked(1)
    with pytest.raises(BadData, match=r"all of one class .dog"):
        Dataset("d", Rows(X, Y * 0 + 1), good, ("cat", "dog")).checked()
    with pytest.raises(BadData, match=r"\(2,\) but test rows \(1,\)"):
        Dataset("d", good, Rows(X[:, :1], Y), ("cat", "dog")).checked()
    dataset = Dataset("d", good, good, ("cat", "dog"))
    assert dataset.checked() is dataset
    assert len(dataset.with_train(good.take(torch.tensor([0, 1]))).train) == 2


def test_standardize_is_the_formula_and_spares_its_input():
    images = torch.randint(0, 256, (6, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    scale = Standardize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    mean, deviation = torch.tensor(scale.mean).view(1, 3, 1, 1), torch.tensor(scale.deviation).view(1, 3, 1, 1)
    torch.testing.assert_close(scale(images), (images / 255 - mean) / deviation)
    assert torch.equal(images, before)
    floats = torch.ones(2, 3)
    Standardize()(floats).zero_()
    assert torch.equal(floats, torch.ones(2, 3))
    torch.testing.assert_close(Standardize()(images), images / 255)


def test_standardize_of_gives_mean_zero_deviation_one():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 200, (50, 3, 4, 5), dtype=torch.uint8, generator=generator)
    result = Standardize.of(images)(images)
    torch.testing.assert_close(result.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(result.std((0, 2, 3), correction=0), torch.ones(3))
    table = torch.randn(40, 2, generator=generator) * torch.tensor([3.0, 0.0]) + 7
    scale = Standardize.of(table)
    assert scale.deviation[1] == 1.0
    assert scale(table)[:, 1].abs().max() == 0


@pytest.mark.parametrize(
    ("mean", "deviation"), [((0.0,), ()), ((0.0,), (0.0,)), ((0.0,), (math.nan,)), ((math.inf,), (1.0,))]
)
def test_standardize_refuses_what_it_cannot_divide_by(mean, deviation):
    with pytest.raises(InvalidArgument):
        Standardize(mean, deviation)


def test_standardize_names_a_wrong_number_of_channels():
    with pytest.raises(InvalidArgument, match="3 channels"):
        Standardize((0.0,) * 3, (1.0,) * 3)(torch.zeros(2, 1, 4, 4))


def test_rows_are_copied_to_a_device_once():
    rows = Rows(X, Y, torch.ones(4))
    assert rows.to("cpu") is rows
    on_device = rows.to("meta")
    assert [t.device.type for t in (on_device.inputs, on_device.labels, on_device.weights)] == ["meta"] * 3
    assert rows.to("meta") is on_device
    assert rows.to(torch.device("meta")) is on_device
    assert pickle.loads(pickle.dumps(rows)).inputs.equal(X)


def test_the_copy_on_a_device_goes_when_nobody_uses_it():
    rows = Rows(X, Y)
    gone = weakref.ref(rows.to("meta"))
    gc.collect()
    assert gone() is None


def test_labels_of_a_regression_are_finite_numbers():
    assert Rows(X, Y.float() * 1.5).checked(None)
    with pytest.raises(BadData, match=r"validation labels hold NaN or infinity .first in row 3"):
        Rows(X, torch.tensor([0.0, 1.0, 2.0, math.nan])).checked(None, "validation")
