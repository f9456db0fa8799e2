"""relu(max_pool(conv(x))), the building block of a small CNN, at less than half the cost on a CPU.

Four facts make it fast; `PooledConvolution` computes the same function with or without them, and a test says so.

* ReLU and the bias commute with the maximum, so both act after the pool, on a quarter of the values.
* The four places of a pooling window see one patch of (k+1) x (k+1) pixels. So the k x k convolution is one matrix
  product of those patches, two pixels apart, with four shifted copies of each kernel, and the pool is a maximum of
  four long rows. That does (k+1)^2/k^2 of the arithmetic, but a CPU has no kernel for a convolution of few channels
  that comes near the speed of a matrix product, least of all for its gradients.
* Cutting out patches costs as much as the product, if a patch is a few pixels here and a few there. With rows
  innermost in memory, (channels, height, width, rows), each pixel of a patch is a run of as many numbers as there are
  rows, and cutting is copying long runs.
* Fresh memory of some megabytes costs more (the kernel has to map and clear it) than filling it: intermediate values
  lie in room that is kept from step to step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

FEW_CHANNELS = 8  # of the input, up to which this pays: more fill a convolution's vectors by themselves


class PooledConvolution(nn.Conv2d):
    """A stride-1 convolution, 2x2 max-pooling and ReLU.

    `fast=False` takes the plain path always; so do `torch.func` transforms and graph capture by themselves, which
    cannot see into the fast one.
    """

    fast = True

    def forward(self, inputs: Tensor) -> Tensor:
        if self.fast and self._suits(inputs):
            kept = self.__dict__.setdefault("_kept", [])
            return _PooledProduct.apply(inputs, self.weight, self.bias, self.padding[0], kept)
        pooled = functional.max_pool2d(self._conv_forward(inputs, self.weight, None), 2)
        return functional.relu(pooled if self.bias is None else pooled + self.bias.view(-1, 1, 1))

    def _suits(self, inputs: Tensor) -> bool:
        side = self.kernel_size[0]
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")  # one precision forward and another backward
            and inputs.ndim == 4
            and min(inputs.shape) > 0
            and (self.in_channels == 1 or self._follows(inputs))
            and self.kernel_size == (side, side)
            and side % 2 == 1
            and self.padding in ((0, 0), (1, 1), (2, 2))
            and self.padding_mode == "zeros"
            and min(inputs.shape[2:]) + 2 * self.padding[0] > side  # at least one window of the pool
            and (self.stride, self.dilation, self.groups) == ((1, 1), (1, 1), 1)
            and torch._C._functorch.peek_interpreter_stack() is None  # a transform of torch.func, of whichever tensor
            and not (torch.compiler.is_compiling() or torch._C._get_tracing_state())
        )

    def _follows(self, inputs: Tensor) -> bool:
        """Behind another such layer there is nothing to lay out anew; 3x3 kernels lose too much to their shifts."""
        lying = inputs.permute(1, 2, 3, 0).is_contiguous()
        return lying and len(inputs) > 1 and self.in_channels <= FEW_CHANNELS and self.kernel_size[0] >= 5

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}  # room is not worth copying


class _Room:
    """Where the values of one layer lie while it waits for its gradient; rows are innermost everywhere."""

    def __init__(self, inputs: tuple[int, ...], weight: tuple[int, ...], padding: int) -> None:
        self.key = (inputs, weight, padding)
        rows, self.channels, height, width = inputs
        out, _, side, _ = weight
        self.border, self.taps = padding, side + 1
        self.down, self.across = (height + 2 * padding - side + 1) // 2, (width + 2 * padding - side + 1) // 2
        # One more line of zeros where that makes the size even: blocks of 2x2 are what gradients are added up in.
        self.height, self.width = (size + 2 * padding + (size % 2) for size in (height, width))
        self.image = (self.channels, self.height, self.width, rows)
        self.inside = (slice(None), slice(padding, padding + height), slice(padding, padding + width))
        self.padded: Tensor | None = None  # the inputs, where they do not lie as they should
        places = self.down * self.across * rows
        self.columns = torch.empty(self.channels * self.taps**2, places)
        self.values = torch.empty(4, out, places)
        self.received = torch.empty(4, out, places)
        self.upper, self.lower = torch.empty(out, places), torch.empty(out, places)

    def fill(self, inputs: Tensor) -> None:
        """The patches as columns: a row for each pixel of a patch, a column for each window and image."""
        lying = inputs.permute(1, 2, 3, 0)
        if lying.shape != self.image or not lying.is_contiguous():
            lying = self._laid(inputs)
        channel, line, pixel, row = lying.stride()
        shape = (self.channels, self.taps, self.taps, self.down, self.across, len(inputs))
        patches = lying.as_strided(shape, (channel, line, pixel, 2 * line, 2 * pixel, row), lying.storage_offset())
        self.columns.view(shape).copy_(patches)

    def _laid(self, inputs: Tensor) -> Tensor:
        """A copy with rows innermost and zeros around."""
        if self.padded is None:
            self.padded = torch.zeros(self.image)
        inside = self.padded[self.inside]
        if inside.shape == self.image and inputs.is_contiguous():
            self.padded.view(-1, len(inputs)).copy_(inputs.view(len(inputs), -1).T)  # transposing has a fast kernel
        else:
            inside.copy_(inputs.permute(1, 2, 3, 0))
        return self.padded

    def gathered(self, columns: Tensor) -> Tensor:
        """The adjoint of `fill`: for each pixel, the sum over the patches it was in."""
        blocks = torch.zeros(self.channels, self.height // 2, 2, self.width // 2, 2, self.image[3])
        half = self.taps // 2
        shape = (self.channels, half, 2, half, 2, self.down, self.across, self.image[3])
        parts = columns.view(shape).permute(1, 3, 0, 5, 2, 6, 4, 7)
        for down in range(half):
            for across in range(half):
                blocks[:, down : down + self.down, :, across : across + self.across] += parts[down, across]
        return blocks.view(self.image)[self.inside].permute(3, 0, 1, 2)


def _taken(kept: list[_Room], key: tuple[Any, ...]) -> _Room | None:
    """The room that was kept, if it suits. Taking it is one step, so two threads cannot both have it."""
    try:
        room = kept.pop()
    except IndexError:
        return None
    return room if room.key == key else None


class _PooledProduct(torch.autograd.Function):
    """relu(max_pool(conv(x)) + bias) as one matrix product and a tree of maxima."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, padding: int, kept: list[_Room]
    ) -> Tensor:
        key = (tuple(inputs.shape), tuple(weight.shape), padding)
        room = _taken(kept, key) or _Room(*key)
        room.fill(inputs)
        shifted = shifted_weight(weight)
        torch.mm(shifted, room.columns, out=room.values.view(len(shifted), -1))
        first, second, third, fourth = room.values
        torch.maximum(first, second, out=room.upper)
        torch.maximum(third, fourth, out=room.lower)
        largest = torch.maximum(room.upper, room.lower)
        if bias is not None:
            largest += bias.unsqueeze(1)
        outputs = largest.relu_().view(-1, room.down, room.across, len(inputs)).permute(3, 0, 1, 2)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(outputs)
            ctx.room, ctx.kept, ctx.shape, ctx.shifted = room, kept, weight.shape, shifted
        elif not room.values.is_inference():  # which nobody outside inference mode could write to
            kept[:] = [room]
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        room = ctx.room
        if room is None:
            raise RuntimeError("a second backward pass through a PooledConvolution: set its `fast` to False for that")
        (outputs,) = ctx.saved_tensors
        slope, largest = (values.permute(1, 2, 3, 0).flatten(1) for values in (gradient, outputs))
        slope = _where_positive(slope, largest)
        # Down the tree of maxima; a tie goes to the later place, as good a subgradient as any.
        to_upper = _where_positive(slope, room.upper.sub_(room.lower), room.upper)
        to_lower = torch.sub(slope, to_upper, out=room.lower)
        for branch, (left, right) in ((to_upper, (0, 1)), (to_lower, (2, 3))):
            difference = torch.sub(room.values[left], room.values[right], out=room.values[left])
            _where_positive(branch, difference, room.received[left])
            torch.sub(branch, room.received[left], out=room.received[right])
        received = room.received.view(len(ctx.shifted), -1)
        to_weight = to_bias = to_inputs = None
        if ctx.needs_input_grad[1]:
            to_weight = unshifted_weight((room.columns @ received.T).T, ctx.shape)
        if ctx.needs_input_grad[2]:
            to_bias = slope.sum(1)
        if ctx.needs_input_grad[0]:
            to_inputs = room.gathered(torch.mm(ctx.shifted.T, received, out=room.columns))
        ctx.room = None
        ctx.kept[:] = [room]
        return to_inputs, to_weight, to_bias, None, None


_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))  # of a pooling window


def shifted_weight(weight: Tensor) -> Tensor:
    """Four copies of each kernel, one for each place in its pooling window: (4 * out, channels * (side + 1)^2)."""
    out, channels, side, _ = weight.shape
    placed = weight.new_zeros(4, out, channels, side + 1, side + 1)
    for place, (down, across) in enumerate(_PLACES):
        placed[place, :, :, down : down + side, across : across + side] = weight.detach()
    return placed.view(4 * out, -1)


def unshifted_weight(shifted: Tensor, shape: torch.Size) -> Tensor:
    """The adjoint of `shifted_weight`: what each weight's four copies received, added up."""
    out, channels, side, _ = shape
    placed = shifted.reshape(4, out, channels, side + 1, side + 1)
    return sum(  # type: ignore[return-value]
        placed[place, :, :, down : down + side, across : across + side] for place, (down, across) in enumerate(_PLACES)
    )


def _where_positive(gradient: Tensor, difference: Tensor, out: Tensor | None = None) -> Tensor:
    # One vectorized pass; comparing to booleans and multiplying by them takes three slow ones.
    if out is None:
        return torch.ops.aten.threshold_backward(gradient, difference, 0)
    return torch.ops.aten.threshold_backward.grad_input(gradient, difference, 0, grad_input=out)
