"""relu(max_pool(conv(x))), the building block of a small CNN, at less than half the cost on a CPU.

Four ideas make it fast; tests hold it to the plain computation.

* ReLU and the bias commute with the maximum, so both are applied after pooling, to a quarter of the values.
* The four positions of a pooling window lie in one patch of (k+1) x (k+1) pixels. So the k x k convolution is one
  matrix product of those patches, two pixels apart, with four shifted copies of each filter, and pooling is a maximum
  of four long rows. That is (k+1)^2/k^2 of the arithmetic, but no CPU convolution of few channels comes near the speed
  of a matrix product, least of all its gradients.
* Copying patches of a few scattered pixels would cost as much as the product. With the batch dimension innermost,
  (channels, height, width, rows), each pixel of a patch is one run of memory over all rows.
* Allocating some megabytes costs more than filling them, as the operating system maps and clears the pages:
  intermediate values are in a workspace that is kept from step to step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.fast.eager import is_eager

FEW_CHANNELS = 8  # input channels up to which this is faster: more of them fill the vectors of a usual convolution


class PooledConvolution(nn.Conv2d):
    """A stride-1 convolution, 2x2 max-pooling and ReLU.

    `fast=False` always takes the plain path; so do `torch.func` transforms and graph capture, which cannot trace the
    fast one.
    """

    fast = True

    def forward(self, inputs: Tensor) -> Tensor:
        """(rows, out_channels, height', width') after convolution, pooling and ReLU."""
        if self.fast and self._takes_fast_path(inputs):
            kept = self.__dict__.setdefault("_kept", [])
            return _PooledProduct.apply(inputs, self.weight, self.bias, self.padding[0], kept)
        pooled = functional.max_pool2d(self._conv_forward(inputs, self.weight, None), 2)
        return functional.relu(pooled if self.bias is None else pooled + self.bias.view(-1, 1, 1))

    def _takes_fast_path(self, inputs: Tensor) -> bool:
        side = self.kernel_size[0]
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")  # the backward pass would have another precision
            and inputs.ndim == 4
            and min(inputs.shape) > 0
            and (self.in_channels == 1 or self._follows(inputs))
            and self.kernel_size == (side, side)
            and side % 2 == 1
            and self.padding in ((0, 0), (1, 1), (2, 2))
            and self.padding_mode == "zeros"
            and min(inputs.shape[2:]) + 2 * self.padding[0] > side  # at least one pooling window
            and (self.stride, self.dilation, self.groups) == ((1, 1), (1, 1), 1)
            and is_eager()
        )

    def _follows(self, inputs: Tensor) -> bool:
        """Whether the inputs have rows innermost already, as after another such layer, and filters are 5x5 or more.

        The (4/3)^2 times more arithmetic of 3x3 filters would be too much.
        """
        rows_innermost = inputs.permute(1, 2, 3, 0).is_contiguous()
        return rows_innermost and len(inputs) > 1 and self.in_channels <= FEW_CHANNELS and self.kernel_size[0] >= 5

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}


class _Workspace:
    """Memory for the intermediate values of one layer, between its forward and backward pass; rows innermost."""

    def __init__(self, inputs: tuple[int, ...], weight: tuple[int, ...], padding: int) -> None:
        self.key = (inputs, weight, padding)
        rows, self.channels, height, width = inputs
        out, _, side, _ = weight
        self.taps = side + 1
        self.down, self.across = (height + 2 * padding - side + 1) // 2, (width + 2 * padding - side + 1) // 2
        # An odd size is padded by one more line of zeros: gradients are summed in blocks of 2x2.
        self.height, self.width = (size + 2 * padding + (size % 2) for size in (height, width))
        self.image = (self.channels, self.height, self.width, rows)
        self.inside = (slice(None), slice(padding, padding + height), slice(padding, padding + width))
        self.padded: Tensor | None = None  # copy of the inputs, if they are not padded and rows-innermost already
        places = self.down * self.across * rows
        self.columns = torch.empty(self.channels * self.taps**2, places)
        self.values = torch.empty(4, out, places)
        self.gradients = torch.empty(4, out, places)
        self.upper, self.lower = torch.empty(out, places), torch.empty(out, places)

    def im2col(self, inputs: Tensor) -> None:
        """Write patches into `columns`: a row for each pixel of a patch, a column for each window and image."""
        image = inputs.permute(1, 2, 3, 0)
        if image.shape != self.image or not image.is_contiguous():
            image = self._padded(inputs)
        channel, line, pixel, row = image.stride()
        shape = (self.channels, self.taps, self.taps, self.down, self.across, len(inputs))
        patches = image.as_strided(shape, (channel, line, pixel, 2 * line, 2 * pixel, row), image.storage_offset())
        self.columns.view(shape).copy_(patches)

    def _padded(self, inputs: Tensor) -> Tensor:
        """A zero-padded copy with rows innermost."""
        if self.padded is None:
            self.padded = torch.zeros(self.image)
        inside = self.padded[self.inside]
        if inside.shape == self.image and inputs.is_contiguous():
            self.padded.view(-1, len(inputs)).copy_(inputs.view(len(inputs), -1).T)  # torch transposes fast
        else:
            inside.copy_(inputs.permute(1, 2, 3, 0))
        return self.padded

    def col2im(self, columns: Tensor) -> Tensor:
        """The adjoint of `im2col`: for each pixel, the sum over the patches that contain it."""
        blocks = torch.zeros(self.channels, self.height // 2, 2, self.width // 2, 2, self.image[3])
        half = self.taps // 2
        shape = (self.channels, half, 2, half, 2, self.down, self.across, self.image[3])
        parts = columns.view(shape).permute(1, 3, 0, 5, 2, 6, 4, 7)
        for down in range(half):
            for across in range(half):
                blocks[:, down : down + self.down, :, across : across + self.across] += parts[down, across]
        return blocks.view(self.image)[self.inside].permute(3, 0, 1, 2)


def _reused(kept: list[_Workspace], key: tuple[object, ...]) -> _Workspace | None:
    """The workspace kept from the last step, if sizes agree. `pop` is atomic: two threads cannot get the same one."""
    try:
        workspace = kept.pop()
    except IndexError:
        return None
    return workspace if workspace.key == key else None


class _PooledProduct(torch.autograd.Function):
    """relu(max_pool(conv(x)) + bias) as one matrix product and a binary tree of maxima."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, padding: int, kept: list[_Workspace]
    ) -> Tensor:
        key = (tuple(inputs.shape), tuple(weight.shape), padding)
        workspace = _reused(kept, key) or _Workspace(*key)
        workspace.im2col(inputs)
        shifted = shifted_weight(weight)
        torch.mm(shifted, workspace.columns, out=workspace.values.view(len(shifted), -1))
        first, second, third, fourth = workspace.values
        torch.maximum(first, second, out=workspace.upper)
        torch.maximum(third, fourth, out=workspace.lower)
        largest = torch.maximum(workspace.upper, workspace.lower)
        if bias is not None:
            largest += bias.unsqueeze(1)
        outputs = largest.relu_().view(-1, workspace.down, workspace.across, len(inputs)).permute(3, 0, 1, 2)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(outputs)
            ctx.workspace, ctx.kept, ctx.shape, ctx.shifted = workspace, kept, weight.shape, shifted
        elif not workspace.values.is_inference():  # such tensors cannot be written outside inference mode
            kept[:] = [workspace]
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        workspace = ctx.workspace
        if workspace is None:
            raise RuntimeError("a second backward pass through a PooledConvolution needs its `fast` set to False")
        (outputs,) = ctx.saved_tensors
        slope, largest = (values.permute(1, 2, 3, 0).flatten(1) for values in (gradient, outputs))
        slope = _where_positive(slope, largest)
        # Down the tree of maxima; at a tie the later one gets the gradient, which is a valid subgradient.
        to_upper = _where_positive(slope, workspace.upper.sub_(workspace.lower), workspace.upper)
        to_lower = torch.sub(slope, to_upper, out=workspace.lower)
        for branch, (left, right) in ((to_upper, (0, 1)), (to_lower, (2, 3))):
            difference = torch.sub(workspace.values[left], workspace.values[right], out=workspace.values[left])
            _where_positive(branch, difference, workspace.gradients[left])
            torch.sub(branch, workspace.gradients[left], out=workspace.gradients[right])
        gradients = workspace.gradients.view(len(ctx.shifted), -1)
        to_weight = to_bias = to_inputs = None
        if ctx.needs_input_grad[1]:
            to_weight = unshifted_weight((workspace.columns @ gradients.T).T, ctx.shape)
        if ctx.needs_input_grad[2]:
            to_bias = slope.sum(1)
        if ctx.needs_input_grad[0]:
            to_inputs = workspace.col2im(torch.mm(ctx.shifted.T, gradients, out=workspace.columns))
        ctx.workspace = None
        ctx.kept[:] = [workspace]
        return to_inputs, to_weight, to_bias, None, None


_POSITIONS = ((0, 0), (0, 1), (1, 0), (1, 1))  # in a pooling window


def shifted_weight(weight: Tensor) -> Tensor:
    """Four shifted copies of each filter, one per position in the pooling window: (4 out, channels (side + 1)^2)."""
    out, channels, side, _ = weight.shape
    placed = weight.new_zeros(4, out, channels, side + 1, side + 1)
    for place, (down, across) in enumerate(_POSITIONS):
        placed[place, :, :, down : down + side, across : across + side] = weight.detach()
    return placed.view(4 * out, -1)


def unshifted_weight(shifted: Tensor, shape: torch.Size) -> Tensor:
    """The adjoint of `shifted_weight`: the sum of the gradients of each weight's four copies."""
    out, channels, side, _ = shape
    placed = shifted.reshape(4, out, channels, side + 1, side + 1)
    return sum(  # type: ignore[return-value]
        placed[place, :, :, down : down + side, across : across + side]
        for place, (down, across) in enumerate(_POSITIONS)
    )


def _where_positive(gradient: Tensor, difference: Tensor, out: Tensor | None = None) -> Tensor:
    """The gradient where the difference is positive, else zero."""
    # One vectorized pass, where comparing and multiplying by booleans takes three slow ones.
    if out is None:
        return torch.ops.aten.threshold_backward(gradient, difference, 0)
    return torch.ops.aten.threshold_backward.grad_input(gradient, difference, 0, grad_input=out)
