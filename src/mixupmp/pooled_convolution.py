"""relu(max_pool(conv(x))), the building block of a small CNN, at about half the cost on a CPU.

Three facts make it fast; `PooledConvolution` computes the same function with or without them, and a test says so.

* ReLU and the bias commute with the maximum, so both act after the pool, on a quarter of the values.
* A CPU has no good kernel for the weight gradient of a convolution with one or few input channels. Cut into 2x2
  blocks, the image has four times the channels at half the side, and the k x k convolution becomes a
  (k+1)/2 x (k+1)/2 one whose output channels are the four places of each pooling window. Both directions then run on
  well-filled vectors, although they do (k+1)^2/k^2 of the arithmetic, and the pool is a maximum of four slices.
* Of the two gradients of an ordinary small convolution, the weights' is faster on channels-last memory, and the
  input's on plain memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LAST = torch.channels_last
_UNIT = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, output padding, groups


class PooledConvolution(nn.Conv2d):
    """A stride-1 convolution, 2x2 max-pooling and ReLU.

    `fast=False` takes the plain path always: for `torch.func` transforms and graph export, which cannot see into the
    fast one.
    """

    fast = True

    def forward(self, inputs: Tensor) -> Tensor:
        if self.fast and self.training and torch.is_grad_enabled() and self._suits(inputs):
            if inputs.requires_grad:
                pooled = functional.max_pool2d(_SplitGradients.apply(inputs, self.weight), 2)
                return functional.relu(self._with_bias(pooled))
            return functional.relu(self._with_bias(_BlockedMaximum.apply(inputs, self.weight)))
        pooled = functional.max_pool2d(self._conv_forward(inputs, self.weight, None), 2)
        return functional.relu(self._with_bias(pooled))

    def _with_bias(self, pooled: Tensor) -> Tensor:
        return pooled if self.bias is None else pooled + self.bias.view(-1, 1, 1)

    def _suits(self, inputs: Tensor) -> bool:
        side = self.kernel_size[0]
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")  # one precision forward and another backward
            and inputs.ndim == 4
            and self.kernel_size == (side, side)
            and side % 2 == 1
            and (self.stride, self.padding, self.dilation, self.groups) == ((1, 1), (0, 0), (1, 1), 1)
            and (inputs.requires_grad or (inputs.shape[2] % 2 == 0 and inputs.shape[3] % 2 == 0))
        )


def blocks(images: Tensor) -> Tensor:
    """(rows, channels, height, width) -> (rows, 4 channels, height/2, width/2): each 2x2 block becomes channels."""
    rows, channels, height, width = images.shape
    parts = images.reshape(rows, channels, height // 2, 2, width // 2, 2).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(rows, 4 * channels, height // 2, width // 2)


def blocked_weight(weight: Tensor) -> Tensor:
    """The kernel that acts on blocks: four output channels for each of the old, one for each place in its window."""
    out, channels, side, _ = weight.shape
    half = (side + 1) // 2
    placed = [functional.pad(weight, (across, 1 - across, down, 1 - down)) for down in (0, 1) for across in (0, 1)]
    parts = torch.stack(placed).reshape(4, out, channels, half, 2, half, 2).permute(0, 1, 4, 6, 2, 3, 5)
    return parts.reshape(4 * out, 4 * channels, half, half)


def unblocked_weight(blocked: Tensor, shape: torch.Size) -> Tensor:
    """The adjoint of `blocked_weight`: what each weight's four copies received, added up."""
    out, channels, side, _ = shape
    half = (side + 1) // 2
    parts = blocked.reshape(4, out, 2, 2, channels, half, half).permute(0, 1, 4, 5, 2, 6, 3)
    parts = parts.reshape(4, out, channels, side + 1, side + 1)
    total = torch.zeros(shape, dtype=blocked.dtype)
    for place, (down, across) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        total += parts[place, :, :, down : down + side, across : across + side]
    return total


class _BlockedMaximum(torch.autograd.Function):
    """max_pool(conv(x)) by blocks, for inputs that need no gradient: a network's first layer."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        blocked = blocks(inputs).contiguous(memory_format=_LAST)
        kernel = blocked_weight(weight).contiguous(memory_format=_LAST)
        # Plain memory for the maximum: its four slices are long runs there.
        values = functional.conv2d(blocked, kernel).contiguous()
        first, second, third, fourth = _places(values)
        upper, lower = torch.maximum(first, second), torch.maximum(third, fourth)
        ctx.save_for_backward(blocked, kernel, values, upper, lower)
        ctx.shape = weight.shape
        return torch.maximum(upper, lower)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        blocked, kernel, values, upper, lower = ctx.saved_tensors
        received = torch.empty_like(values)
        into = _places(received)
        # Down the tree of maxima; a tie goes to the later place, as good a subgradient as any.
        to_upper = _where_positive(gradient.contiguous(), upper - lower)
        to_lower = torch.sub(gradient, to_upper)
        for branch, (left, right) in ((to_upper, (0, 1)), (to_lower, (2, 3))):
            places = _places(values)
            to_left = _where_positive(branch, places[left] - places[right])
            into[left].copy_(to_left)
            torch.sub(branch, to_left, out=into[right])
        received = received.contiguous(memory_format=_LAST)
        mask = [False, True, False]
        change = torch.ops.aten.convolution_backward(received, blocked, kernel, None, *_UNIT, mask)[1]
        return None, unblocked_weight(change, ctx.shape)


class _SplitGradients(torch.autograd.Function):
    """A convolution whose two gradients each use the memory layout that suits them."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        last = inputs.contiguous(memory_format=_LAST)
        ctx.save_for_backward(inputs, last, weight)
        return functional.conv2d(last, weight.contiguous(memory_format=_LAST))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        inputs, last, weight = ctx.saved_tensors
        backward = torch.ops.aten.convolution_backward
        for_weight = (gradient.contiguous(memory_format=_LAST), last, weight.contiguous(memory_format=_LAST))
        for_inputs = (gradient.contiguous(), inputs.contiguous(), weight.contiguous())
        return (
            backward(*for_inputs, None, *_UNIT, [True, False, False])[0],
            backward(*for_weight, None, *_UNIT, [False, True, False])[1],
        )


def _places(values: Tensor) -> tuple[Tensor, ...]:
    rows, channels, height, width = values.shape
    return values.view(rows, 4, channels // 4, height, width).unbind(1)


def _where_positive(gradient: Tensor, difference: Tensor) -> Tensor:
    # One vectorised pass; comparing to booleans and multiplying by them takes three slow ones.
    return torch.ops.aten.threshold_backward(gradient, difference, 0)
