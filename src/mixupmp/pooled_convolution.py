"""relu(max_pool(conv(x))), the building block of a small CNN, at about half the cost on a CPU.

Four facts make it fast; `PooledConvolution` computes the same function with or without them, and a test says so.

* ReLU and the bias commute with the maximum, so both act after the pool, on a quarter of the values.
* A CPU has no good kernel for a convolution with one or few input channels, least of all for the gradient of its
  weights. Cut into 2x2 blocks, the image has four times the channels at half the side, and the k x k convolution
  becomes a (k+1)/2 x (k+1)/2 one whose output channels are the four places of each pooling window. As a matrix
  product it does (k+1)^2/k^2 of the arithmetic, but at that speed, and the pool is a maximum of four long rows.
* Of the two gradients of an ordinary small convolution, the weights' is faster on channels-last memory, and the
  input's on plain memory.
* Fresh memory of some megabytes costs more (the kernel has to map and clear it) than filling it: the first layer's
  intermediate values lie in room that is kept from step to step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LAST = torch.channels_last
_UNIT = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, output padding, groups


FEW_CHANNELS = 4  # of the input, up to which blocks pay: more fill a convolution's vectors by themselves


class PooledConvolution(nn.Conv2d):
    """A stride-1 convolution, 2x2 max-pooling and ReLU.

    `fast=False` takes the plain path always; so do `torch.func` transforms and graph capture by themselves, which
    cannot see into the fast one.
    """

    fast = True

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.relu(self._with_bias(self._pooled(inputs)))

    def _pooled(self, inputs: Tensor) -> Tensor:
        if self.fast and self._suits(inputs):
            even = inputs.shape[2] % 2 == 0 and inputs.shape[3] % 2 == 0
            if even and not inputs.requires_grad and self.in_channels <= FEW_CHANNELS:
                return _BlockedMaximum.apply(inputs, self.weight, self.__dict__.setdefault("_kept", []))
            return functional.max_pool2d(_SplitGradients.apply(inputs, self.weight), 2)
        return functional.max_pool2d(self._conv_forward(inputs, self.weight, None), 2)

    def _with_bias(self, pooled: Tensor) -> Tensor:
        return pooled if self.bias is None else pooled + self.bias.view(-1, 1, 1)

    def _suits(self, inputs: Tensor) -> bool:
        side = self.kernel_size[0]
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")  # one precision forward and another backward
            and inputs.ndim == 4
            and self.kernel_size == (side, side)
            and side % 2 == 1
            and (self.stride, self.padding, self.dilation, self.groups) == ((1, 1), (0, 0), (1, 1), 1)
            and torch._C._functorch.peek_interpreter_stack() is None  # a transform of torch.func, of whichever tensor
            and not (torch.compiler.is_compiling() or torch._C._get_tracing_state())
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}  # room is not worth copying


class _Room:
    """Where the values of one blocked convolution lie while it waits for its gradient."""

    def __init__(self, inputs: tuple[int, ...], weight: tuple[int, ...]) -> None:
        self.key = (inputs, weight)
        rows, channels, height, width = inputs
        out, _, side, _ = weight
        self.half = (side + 1) // 2
        self.down, self.across = height // 2 - self.half + 1, width // 2 - self.half + 1
        places = rows * self.down * self.across
        self.blocks = torch.empty(2, 2, channels, rows, height // 2, width // 2)
        self.columns = torch.empty(4 * channels * self.half**2, places)
        self.values = torch.empty(4, out, places)
        self.received = torch.empty(4, out, places)
        self.upper, self.lower = torch.empty(out, places), torch.empty(out, places)

    def fill(self, images: Tensor) -> None:
        """The images' patches as columns: a row for each input of the blocked kernel, a column for each window."""
        rows, channels, height, width = images.shape
        parts = images.reshape(rows, channels, height // 2, 2, width // 2, 2).permute(3, 5, 1, 0, 2, 4)
        self.blocks.copy_(parts)
        _, _, channel, row, line, pixel = self.blocks.stride()
        shape = (4 * channels, self.half, self.half, rows, self.down, self.across)
        self.columns.view(shape).copy_(self.blocks.as_strided(shape, (channel, line, pixel, row, line, pixel)))


def _taken(kept: list[_Room], key: tuple[tuple[int, ...], tuple[int, ...]]) -> _Room | None:
    """The room that was kept, if it suits. Taking it is one step, so two threads cannot both have it."""
    try:
        room = kept.pop()
    except IndexError:
        return None
    return room if room.key == key else None


class _BlockedMaximum(torch.autograd.Function):
    """max_pool(conv(x)) by blocks, for inputs that need no gradient: a network's first layer."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, kept: list[_Room]) -> Tensor:
        key = (tuple(inputs.shape), tuple(weight.shape))
        room = _taken(kept, key) or _Room(*key)
        room.fill(inputs)
        torch.mm(blocked_weight(weight).flatten(1), room.columns, out=room.values.view(-1, room.values.shape[2]))
        first, second, third, fourth = room.values
        torch.maximum(first, second, out=room.upper)
        torch.maximum(third, fourth, out=room.lower)
        largest = torch.maximum(room.upper, room.lower).view(-1, len(inputs), room.down, room.across)
        if weight.requires_grad:
            ctx.room, ctx.kept, ctx.shape = room, kept, weight.shape
        elif not room.values.is_inference():  # which nobody outside inference mode could write to
            kept[:] = [room]
        return largest.transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        room = ctx.room
        if room is None:
            raise RuntimeError("a second backward pass through a PooledConvolution: set its `fast` to False for that")
        slope = gradient.transpose(0, 1).flatten(1)
        # Down the tree of maxima; a tie goes to the later place, as good a subgradient as any.
        to_upper = _where_positive(slope, room.upper.sub_(room.lower))
        to_lower = slope - to_upper
        for branch, (left, right) in ((to_upper, (0, 1)), (to_lower, (2, 3))):
            difference = torch.sub(room.values[left], room.values[right], out=room.values[left])
            _where_positive(branch, difference, room.received[left])
            torch.sub(branch, room.received[left], out=room.received[right])
        change = room.received.view(-1, room.received.shape[2]) @ room.columns.T
        ctx.room = None
        ctx.kept[:] = [room]
        return None, unblocked_weight(change, ctx.shape), None


class _SplitGradients(torch.autograd.Function):
    """A convolution whose two gradients each use the memory layout that suits them."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        last = inputs.contiguous(memory_format=_LAST)
        ctx.save_for_backward(last, weight)
        return functional.conv2d(last, weight.contiguous(memory_format=_LAST))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        last, weight = ctx.saved_tensors
        backward = torch.ops.aten.convolution_backward
        for_weight = (gradient.contiguous(memory_format=_LAST), last, weight.contiguous(memory_format=_LAST))
        # The inputs' gradient does not depend on the inputs; they only say its shape and layout.
        for_inputs = (gradient.contiguous(), torch.empty(last.shape), weight.contiguous())
        return (
            backward(*for_inputs, None, *_UNIT, [True, False, False])[0],
            backward(*for_weight, None, *_UNIT, [False, True, False])[1],
        )


def blocked_weight(weight: Tensor) -> Tensor:
    """The kernel that acts on blocks: (4 places * out, 4 channels in a block * channels, half, half).

    Four output channels for each of the old, one for each place in its pooling window.
    """
    out, channels, side, _ = weight.shape
    half = (side + 1) // 2
    placed = weight.new_zeros(4, out, channels, side + 1, side + 1)
    for place, (down, across) in enumerate(_PLACES):
        placed[place, :, :, down : down + side, across : across + side] = weight.detach()
    parts = placed.view(4, out, channels, half, 2, half, 2).permute(0, 1, 4, 6, 2, 3, 5)
    return parts.reshape(4 * out, 4 * channels, half, half)


def unblocked_weight(blocked: Tensor, shape: torch.Size) -> Tensor:
    """The adjoint of `blocked_weight`: what each weight's four copies received, added up."""
    out, channels, side, _ = shape
    half = (side + 1) // 2
    parts = blocked.reshape(4, out, 2, 2, channels, half, half).permute(0, 1, 4, 5, 2, 6, 3)
    parts = parts.reshape(4, out, channels, side + 1, side + 1)
    total = torch.zeros(shape, dtype=blocked.dtype)
    for place, (down, across) in enumerate(_PLACES):
        total += parts[place, :, :, down : down + side, across : across + side]
    return total


_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))


def _where_positive(gradient: Tensor, difference: Tensor, out: Tensor | None = None) -> Tensor:
    # One vectorised pass; comparing to booleans and multiplying by them takes three slow ones.
    if out is None:
        return torch.ops.aten.threshold_backward(gradient, difference, 0)
    return torch.ops.aten.threshold_backward.grad_input(gradient, difference, 0, grad_input=out)
