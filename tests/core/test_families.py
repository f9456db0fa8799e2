"""Every class that a settings document may name: written down and read back, it is the same value."""

from __future__ import annotations

from typing import Any

import pytest

import mixupmp
from mixupmp.core.arrays import ArrayLayout
from mixupmp.core.base_measures import Mixture, Mixup, Perturbed
from mixupmp.core.columns import Column, Columns
from mixupmp.core.encoders import Spectrogram
from mixupmp.core.fields import Field, Fields
from mixupmp.core.kernels import Compose, HorizontalFlip, PadCrop
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.rows import Standardize
from mixupmp.core.spec import FAMILIES, NAMED, decode, encode
from mixupmp.core.tokenizers import Vocabulary, WordPieces
from mixupmp.decide.calibrators import Isotonic, MemberCalibrators, Temperature, VectorScaling

ARGUMENTS: dict[object, dict[str, Any]] = {
    Categorical: {"classes": 3},
    Fields: {
        "fields": (Field("input_ids", (5,), "int64"), Field("image", (1, 2, 2), "uint8", Standardize((0.5,), (2.0,))))
    },
    Compose: {"kernels": (PadCrop(2), HorizontalFlip())},
    Spectrogram: {"rate": 8000},
    Vocabulary: {"words": ("a", "b"), "length": 4},
    WordPieces: {"words": ("##b", "a"), "length": 4},
    Columns: {"columns": (Column("age", "number", fill=3.5), Column("color", "category", categories=("blue", "red")))},
    ArrayLayout: {"order": "NHWC", "shape": (3, 4, 5), "pixels": True},
    Temperature: {"temperature": 1.5},
    VectorScaling: {"scales": (1.0, 0.5), "shifts": (0.0, 0.1)},
    Isotonic: {"inputs": ((0.0, 1.0), (0.2,)), "outputs": ((0.1, 0.9), (0.5,)), "floor": 0.01},
    MemberCalibrators: {"members": (Temperature(2.0), Temperature(0.5))},
    Mixture: {"measures": (Mixup(0.4), Perturbed()), "weights": (1.0, 2.0)},
}
ENTRIES = [(family, member) for family, members in FAMILIES.items() for member in members]


@pytest.mark.parametrize(("family", "member"), ENTRIES, ids=[getattr(m, "__name__", str(m)) for _, m in ENTRIES])
def test_what_is_written_down_is_read_back(family: object, member: Any) -> None:
    value = member(**ARGUMENTS.get(member, {})) if isinstance(member, type) else member
    assert decode(encode(value), family) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("family", NAMED, ids=[kind for kind, _ in NAMED.values()])
def test_what_has_a_name_is_found_by_it_and_is_public(family: Any) -> None:
    for name, value in NAMED[family][1].items():
        assert decode(name, family) == value
        assert decode(encode(value), family) == value
        assert getattr(mixupmp, type(value).__name__) is type(value)
