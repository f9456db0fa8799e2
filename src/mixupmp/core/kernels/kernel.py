"""H^aug: what a kernel is, and how kernels are put together.

A kernel is any callable `(inputs, generator) -> inputs`, or a callable of the inputs alone, such as a transform of
torchvision's v2, which draws from torch's global generator; every fit seeds that. Kernels act on a whole batch of raw
inputs, before scaling: images are uint8 there, a quarter of the memory traffic, and padding is black.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mixupmp.core.errors import InvalidArgument, check

Kernel = Callable[[Tensor, Generator], Tensor]


def identity(inputs: Tensor, generator: Generator) -> Tensor:
    """No augmentation: the point mass at the observed inputs."""
    return inputs


@dataclass(frozen=True)
class Compose:
    """One kernel after another.

    Parameters
    ----------
    kernels
        In the order in which they are applied.
    """

    kernels: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(as_kernel(kernel) for kernel in self.kernels))

    @property
    def uses_global_generator(self) -> bool:
        """Whether one of them may."""
        return any(uses_global_generator(kernel) for kernel in self.kernels)

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        for kernel in self.kernels:
            inputs = kernel(inputs, generator)
        return inputs


@dataclass(frozen=True)
class OnBatch:
    """A user's transform of a batch as a kernel; `by_name`: it takes `generator` as a keyword, else none."""

    transform: Callable[..., Tensor]
    by_name: bool = False

    @property
    def uses_global_generator(self) -> bool:
        """Whether it takes no generator: then it may draw from the global one."""
        return not self.by_name

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        result = self.transform(inputs, generator=generator) if self.by_name else self.transform(inputs)
        if not isinstance(result, Tensor) or len(result) != len(inputs):
            must = f"a transform that returns a tensor of {len(inputs)} rows, as it was given"
            raise InvalidArgument("kernel", self.transform, must)
        return result


def as_kernel(transform: Kernel | Callable[..., Tensor]) -> Kernel:
    """A callable on a batch of inputs as a kernel, whether it takes a generator or not."""
    check(callable(transform), "kernel", transform, "a callable on a batch of inputs")
    target = transform.forward if isinstance(transform, torch.nn.Module) else transform
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except ValueError:  # torch's C++ functions have no signature
        return OnBatch(transform)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(required) == 2 or [p.name for p in positional[1:2]] == ["generator"]:
        return transform
    return OnBatch(transform, any(p.name == "generator" for p in parameters))


def uses_global_generator(kernel: Kernel) -> bool:
    """Whether a kernel may draw from torch's global generator, as a transform that takes no other one may."""
    return getattr(kernel, "uses_global_generator", False)
