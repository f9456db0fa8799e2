"""The forward and backward pass of many small MLPs as batched matrix products, on (members, features, rows).

Both are also valid TorchScript, which runs each as one call without the interpreter's lock: programs in two threads
would otherwise wait for it, and for each other, forty times a step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def forward(
    inputs: Tensor, weights: list[Tensor], biases: list[Tensor], outputs: list[Tensor], dropped: list[Tensor]
) -> None:
    """Each layer's outputs, ReLU included, into the room there is for them.

    `dropped` is empty, or has for each hidden layer the flat places of the outputs that are set to zero.
    """
    before = inputs
    for layer in range(len(weights)):
        if len(biases) > 0:
            torch.baddbmm(biases[layer], weights[layer], before, out=outputs[layer])
        else:
            torch.bmm(weights[layer], before, out=outputs[layer])
        if layer < len(weights) - 1:
            outputs[layer].relu_()
            if len(dropped) > 0:
                outputs[layer].view(-1).index_fill_(0, dropped[layer], 0)
        before = outputs[layer]


def backward(
    inputs: Tensor,
    weights: list[Tensor],
    outputs: list[Tensor],
    slope: Tensor,
    slopes: list[Tensor],
    to_weights: list[Tensor],
    to_biases: list[Tensor],
) -> None:
    """The gradients, from the slope of the loss in the last layer's outputs."""
    for back in range(len(weights)):
        layer = len(weights) - 1 - back
        before = outputs[layer - 1] if layer > 0 else inputs
        torch.bmm(slope, before.transpose(1, 2), out=to_weights[layer])
        if len(to_biases) > 0:
            torch.sum(slope, [-1], True, out=to_biases[layer])
        if layer > 0:
            below = torch.bmm(weights[layer].transpose(1, 2), slope, out=slopes[layer - 1])
            # ReLU's derivative, in one vectorized pass over the product; what was dropped is zero too.
            slope = torch.ops.aten.threshold_backward(below, before, 0, grad_input=below)


@cache
def scripted(function: Callable[..., None]) -> Callable[..., None]:
    """The same function as TorchScript; itself, in a torch that has none."""
    if not hasattr(torch.jit, "script"):
        return function
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # nothing else leaves the lock alone without a compiler
        return torch.jit.script(function)
