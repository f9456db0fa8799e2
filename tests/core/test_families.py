"""Every class that a settings document may name: written down and read back, it is the same value."""

from __future__ import annotations

from typing import Any

import pytest

from mixupmp.core.kernels import Compose, HorizontalFlip, PadCrop
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.spec import FAMILIES, decode, encode

ARGUMENTS: dict[object, dict[str, Any]] = {
    Categorical: {"classes": 3},
    Compose: {"kernels": (PadCrop(2), HorizontalFlip())},
}
ENTRIES = [(family, member) for family, members in FAMILIES.items() for member in members]


@pytest.mark.parametrize(("family", "member"), ENTRIES, ids=[getattr(m, "__name__", str(m)) for _, m in ENTRIES])
def test_what_is_written_down_is_read_back(family: object, member: Any) -> None:
    value = member(**ARGUMENTS.get(member, {})) if isinstance(member, type) else member
    assert decode(encode(value), family) == value  # type: ignore[arg-type]
