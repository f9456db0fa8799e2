"""The normalized margin of the paper's appendix A, for networks without biases."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.metrics.checks import as_floats, checked_labels


@torch.no_grad()
def normalized_margin(logits: Tensor, labels: Tensor, parameters: Iterable[Tensor], order: float) -> float:
    """min_i (f_y(x_i) - max_{k != y} f_k(x_i)) / ||theta||_2^L, the margin that DE and stabilized BB both maximize.

    `order` is L with f_{c theta}(x) = c^L f_theta(x): for a ReLU network without biases, the number of its layers
    with weights. The margin then does not change when all weights are multiplied by one number. It is negative
    while any row is misclassified. The paper states it for two classes; this is its multi-class form.
    """
    check(order > 0, "order", order, "positive: the number of layers of a network without biases")
    values = as_floats(logits, "logits").double()
    check(values.ndim == 2 and values.shape[1] >= 2, "logits", tuple(values.shape), "of shape (rows, classes)")
    if values.shape[0] == 0 or not bool(torch.isfinite(values).all()):
        raise BadData("logits must be finite and of at least one row.")
    places = checked_labels(labels, *values.shape).to(values.device)[:, None]
    true = values.gather(1, places)
    rival = values.scatter(1, places, -torch.inf).amax(1, keepdim=True)
    squares = math.fsum(float(tensor.detach().double().square().sum()) for tensor in parameters)
    check(squares > 0, "parameters", squares, "the network's weights, not all zero (this is their squared norm)")
    return float((true - rival).min()) / math.pow(squares, order / 2)
