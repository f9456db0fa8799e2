"""Validation of probabilities and labels, shared by every metric, so that bad input is an error and not NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, InvalidArgument, check

# How far a row may be from summing to one: float32 softmax over thousands of classes stays well within the first,
# half precision needs the second.
SUM_TOLERANCE = 1e-3
HALF_SUM_TOLERANCE = 2e-2

# The smallest positive normal float32: a probability of zero counts as this in every logarithm, so that one
# impossible label costs 87.3 nats and not infinity.
TINY = torch.finfo(torch.float32).tiny


class GuaranteeWarning(UserWarning):
    """Too little data for the requested guarantee: the answer is the trivial one that keeps it."""


def sum_tolerance(dtype: torch.dtype) -> float:
    """How far from one the rows of probabilities of this type may sum."""
    return HALF_SUM_TOLERANCE if dtype in (torch.float16, torch.bfloat16) else SUM_TOLERANCE


def as_floats(values: object, name: str) -> Tensor:
    """The values as a detached floating-point tensor: half precision becomes float32."""
    tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    if not tensor.is_floating_point():
        raise InvalidArgument(name, str(tensor.dtype), "a tensor of floating-point numbers")
    tensor = tensor.detach()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def check_shape(probabilities: Tensor, members: bool | None, name: str = "probabilities") -> None:
    """(rows, classes) for members=False, (members, rows, classes) for True, either for None; two classes at least."""
    dimensions = {False: (2,), True: (3,), None: (2, 3)}[members]
    wanted = {2: "(rows, classes)", 3: "(members, rows, classes)"}
    shape = tuple(probabilities.shape)
    must = "of shape " + " or ".join(wanted[d] for d in dimensions)
    check(len(shape) in dimensions, name, shape, must)
    check(shape[-1] >= 2, name, shape, must + " with at least two classes")
    check(len(shape) == 2 or shape[0] >= 1, name, shape, must + " with at least one member")


def check_rows(probabilities: Tensor, tolerance: float, name: str = "probabilities", first_row: int = 0) -> None:
    """Raise `BadData` that names the first bad row of probabilities (rows, classes), if there is one."""
    sums = probabilities.sum(-1, dtype=torch.float64)
    faults = (
        (~torch.isfinite(probabilities).all(-1), "hold NaN or infinity"),
        ((probabilities < 0).any(-1), "hold a negative number"),
        ((sums - 1).abs() > tolerance, "must sum to one"),
    )
    for bad, words in faults:
        if bool(bad.any()):
            row = int(bad.nonzero()[0])
            raise BadData(
                f"{name} {words}: row {first_row + row} sums to {float(sums[row]):.6g}. "
                "Give the output of a softmax, not logits."
            )


def checked_probabilities(values: object, members: bool | None = False, name: str = "probabilities") -> Tensor:
    """The values as probabilities of a checked shape, or an error that names the first bad row."""
    original = values if isinstance(values, Tensor) else torch.as_tensor(values)
    probabilities = as_floats(original, name)
    check_shape(probabilities, members, name)
    if probabilities.shape[-2] == 0:
        raise BadData(f"{name} are empty: they need at least one row.")
    tolerance = sum_tolerance(original.dtype)
    for block in probabilities if probabilities.ndim == 3 else (probabilities,):
        check_rows(block, tolerance, name)
    return probabilities


def checked_labels(values: object, rows: int, classes: int, name: str = "labels") -> Tensor:
    """The values as int64 class numbers below `classes`, one for each row."""
    labels = values if isinstance(values, Tensor) else torch.as_tensor(values)
    whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    if labels.numel() == 0 and rows == 0:
        return labels.long()
    check(whole, name, str(labels.dtype), "a tensor of integers, the numbers of the classes")
    check(labels.shape == (rows,), name, tuple(labels.shape), f"of shape ({rows},), one for each row of probabilities")
    low, high = (int(bound) for bound in torch.aminmax(labels))
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise BadData(f"{name} must lie in 0..{classes - 1} for {classes} classes, found {wrong}.")
    return labels.detach().long()


def pooled(probabilities: Tensor) -> Tensor:
    """The mean over members of (members, rows, classes); (rows, classes) as they are."""
    return probabilities.mean(0) if probabilities.ndim == 3 else probabilities
