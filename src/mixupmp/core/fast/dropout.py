"""Dropout of feature maps, whose masks cost an AMD processor a fifth of what those of `nn.Dropout` do."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._jit_internal import is_scripting
from torch.nn import functional

from mixupmp.core.fast.eager import is_eager

LEVELS = 1 << 16  # of a random number of 16 bits


class FeatureDropout(nn.Dropout):
    """`nn.Dropout`, for layers with many values.

    torch's mask takes 53 random bits a value (on Intel's processors MKL draws it otherwise), which in training a small
    residual network is a quarter of a step. This one takes 16, so on a CPU the rate is rounded to a multiple of 2^-16;
    the values that are kept are scaled by the rounded rate, so that the expected output is the input. Elsewhere, and
    within graph capture and `torch.func` transforms, it is `nn.Dropout`.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs, of which each is zero with probability p and else divided by 1 - p."""
        if is_scripting():  # which compiles this branch alone
            outputs = functional.dropout(inputs, self.p, self.training, self.inplace)
        else:
            outputs = self._dropped(inputs)
        return outputs

    def _dropped(self, inputs: Tensor) -> Tensor:
        dropped = round(self.p * LEVELS)
        if self.inplace or not self.training or not 0 < dropped < LEVELS or not _plain(inputs):
            return super().forward(inputs)
        return inputs * _mask(inputs, dropped)


def _plain(inputs: Tensor) -> bool:
    """Whether these are numbers of a CPU that nothing traces or transforms."""
    return (
        type(inputs) in (Tensor, nn.Parameter)  # no proxy of a tracer
        and inputs.device.type == "cpu"
        and is_eager()
    )


def _mask(like: Tensor, dropped: int) -> Tensor:
    """Zero with probability dropped / LEVELS, else one over the share that is kept; in the memory order of `like`."""
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)  # of four numbers each
    words.random_(-(2**63), None)
    kept = words.view(torch.int16)[: like.numel()] >= dropped - LEVELS // 2
    mask = torch.empty_like(like)
    in_memory = mask.permute(sorted(range(mask.ndim), key=mask.stride, reverse=True))
    in_memory.copy_(kept.view(in_memory.shape)).mul_(LEVELS / (LEVELS - dropped))
    return mask
