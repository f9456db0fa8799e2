"""Gradients of one convolution in the memory format that a fit would choose, against plain memory; a process a case.

Run as `python convolutions.py`, with cases as JSON lines on standard input; answers on standard output with one line
for each: whether channels-last memory was used, and how its process ended.
"""

from __future__ import annotations

import json
import os
import sys

import torch
from torch import Tensor, nn

from mixupmp.train.factory import memory_format


def gradients(layer: nn.Conv2d, inputs: Tensor, layout: torch.memory_format) -> list[Tensor]:
    """Outputs and gradients, three times over: what is written past a buffer need not show the first time."""
    layer = layer.to(memory_format=layout)
    inputs = inputs.clone(memory_format=layout).requires_grad_()
    for _ in range(3):
        layer.zero_grad()
        inputs.grad = None
        outputs = layer(inputs)
        outputs.backward(torch.linspace(-1, 1, outputs.numel()).view(outputs.shape).contiguous(memory_format=layout))
    return [part.contiguous() for part in (outputs.detach(), inputs.grad, layer.weight.grad)]  # type: ignore[union-attr]


def agrees(case: dict[str, int]) -> bool:
    torch.manual_seed(0)
    layer = nn.Conv2d(
        case["channels"],
        case["outputs"],
        case["kernel"],
        case["stride"],
        case["kernel"] // 2,
        groups=case["groups"],
        bias=False,
    )
    inputs = torch.randn(2, case["channels"], case["size"], case["size"])
    expected = gradients(layer, inputs, torch.contiguous_format)
    found = gradients(layer, inputs, memory_format(nn.Sequential(layer)))
    return all(
        torch.allclose(one, two, rtol=1e-4, atol=1e-4 * float(one.abs().max()))
        for one, two in zip(expected, found, strict=True)
    )


def main() -> None:
    torch.set_num_threads(1)
    agrees({"channels": 16, "outputs": 16, "kernel": 3, "stride": 1, "groups": 1, "size": 8})  # loads what all share
    for line in sys.stdin:
        case = json.loads(line)
        layer = nn.Conv2d(case["channels"], case["outputs"], case["kernel"], case["stride"], groups=case["groups"])
        used = memory_format(nn.Sequential(layer)) is torch.channels_last
        if (child := os.fork()) == 0:
            os._exit(0 if agrees(case) else 3)
        print(json.dumps([used, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)


if __name__ == "__main__":
    main()
