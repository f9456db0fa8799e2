"""The inputs of an ONNX graph, one tensor or one for each field of the task, and their scaling as modules."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mixupmp.core.arrays import Array
from mixupmp.core.fields import Fields
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Standardize


@dataclass(frozen=True)
class GraphInput:
    """One input of a graph: its name, and the shape of a row and the type of its numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def example(self, rows: int) -> Tensor:
        """Random rows. Tokens are 0 and 1, which every vocabulary has; a mask keeps some places and leaves out some."""
        generator, shape = torch.Generator().manual_seed(0), (rows, *self.shape)
        if self.dtype.is_floating_point:
            return torch.randn(shape, generator=generator)
        if self.dtype == torch.uint8:
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        drawn = torch.randint(0, 2, shape, generator=generator)
        if self.shape:
            drawn[..., 0], drawn[..., -1] = 1, 0
        return drawn.to(self.dtype)

    def __str__(self) -> str:
        kind = "uint8 pixels" if self.dtype == torch.uint8 else str(self.dtype).removeprefix("torch.")
        return f"{kind} ({', '.join(map(str, ('rows', *self.shape)))})"


def graph_inputs(task: Task, pixels: bool | None = None) -> tuple[GraphInput, ...]:
    """The inputs of a task's graph: "inputs", or one for each field."""
    if isinstance(task.standardize, Standardize):
        pixels = task.pixels if pixels is None else pixels
        pixels = len(task.input_shape) == 3 if pixels is None else pixels
        return (GraphInput("inputs", task.input_shape, torch.uint8 if pixels else torch.float32),)
    fields = task.standardize.fields
    names = [f.name or ("inputs" if len(fields) == 1 else f"inputs_{place}") for place, f in enumerate(fields)]
    return tuple(GraphInput(name, f.shape, getattr(torch, f.dtype)) for name, f in zip(names, fields, strict=True))


def graph_feed(task: Task, rows: Tensor) -> dict[str, Array]:
    """Raw rows as the inputs of the task's graph, by name."""
    inputs = graph_inputs(task)
    if isinstance(task.standardize, Standardize):
        scaled = (
            rows / 255 if rows.dtype == torch.uint8 != inputs[0].dtype else rows
        )  # an image, where floats are taken
        return {inputs[0].name: scaled.numpy()}
    parts = rows.flatten(1).split([field.numbers for field in task.standardize.fields], 1)
    return {i.name: p.reshape(-1, *i.shape).to(i.dtype).numpy() for i, p in zip(inputs, parts, strict=True)}


class Scaled(nn.Module):
    """`Standardize` as a module."""

    slope: Tensor
    shift: Tensor

    def __init__(self, standardize: Standardize, shape: tuple[int, ...], pixels: bool) -> None:
        super().__init__()
        scale = 1 / 255 if pixels else 1.0
        view = (1, -1) + (1,) * (len(shape) - 1)
        slope = [scale / d for d in standardize.deviation] or [scale]
        shift = [-m / d for m, d in zip(standardize.mean, standardize.deviation, strict=True)] or [0.0]
        self.register_buffer("slope", torch.tensor(slope).view(view))
        self.register_buffer("shift", torch.tensor(shift).view(view))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.float() * self.slope + self.shift


class Packed(nn.Module):
    """`Fields` as a module: the graph's inputs, one for each field, to scaled and packed rows."""

    def __init__(self, fields: Fields) -> None:
        super().__init__()
        self.fields = fields
        self.scaled = nn.ModuleList(
            nn.Identity() if f.whole else Scaled(f.standardize, f.shape or (1,), f.dtype == "uint8")
            for f in fields.fields
        )

    def forward(self, *inputs: Tensor) -> Tensor:
        if self.fields.single:
            return self.scaled[0](inputs[0])
        parts = zip(self.fields.fields, self.scaled, inputs, strict=True)
        flat = [scaled(part.reshape(-1, *(f.shape or (1,)))).reshape(-1, f.numbers) for f, scaled, part in parts]
        return torch.cat([part.to(self.fields.dtype) for part in flat], 1)
