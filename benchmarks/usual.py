"""What one would write otherwise: the pipelines that ours is measured against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset


class PlainCNN(nn.Module):
    """The paper's CNN as it is usually written."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.head = nn.Sequential(
            nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.max_pool2d(functional.relu(self.first(inputs)), 2)
        hidden = functional.max_pool2d(functional.relu(self.second(hidden)), 2)
        return self.head(hidden.flatten(1))


class PerImage(Dataset[tuple[Tensor, int]]):
    """Images one by one: a PIL image, to a tensor, normalized, by the steps that torchvision's MNIST takes."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images[:, 0], labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = Image.fromarray(self.images[index].numpy()), int(self.labels[index])
        return normalized(to_tensor(image), (0.2860,), (0.3530,)), label


def to_tensor(image: Image.Image) -> Tensor:
    """A PIL image as channels, height, width in [0, 1]: what torchvision's ToTensor does."""
    values = torch.from_numpy(np.array(image, np.uint8, copy=True))
    values = values.view(image.size[1], image.size[0], len(image.getbands()))
    return values.permute(2, 0, 1).contiguous().to(torch.get_default_dtype()).div(255)


def normalized(values: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """What torchvision's Normalize does."""
    values = values.clone()
    center = torch.as_tensor(mean, dtype=values.dtype, device=values.device)
    scale = torch.as_tensor(deviation, dtype=values.dtype, device=values.device)
    if (scale == 0).any():
        raise ValueError("a deviation of zero")
    return values.sub_(center.view(-1, 1, 1)).div_(scale.view(-1, 1, 1))


def mixup_member_epoch(images: Tensor, labels: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One epoch of one MixupMP member, r = 1: DataLoader with 4 workers, blends beside the batch, mean loss."""
    loader: DataLoader[Any] = DataLoader(PerImage(images, labels), batch_size=128, shuffle=True, num_workers=4)
    for inputs, classes in loader:
        targets = functional.one_hot(classes, 10).float()
        inputs, targets = with_blends(inputs, targets)
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), targets).backward()
        optimizer.step()


def with_blends(inputs: Tensor, targets: Tensor, alpha: float = 1.0) -> tuple[Tensor, Tensor]:
    """As many Mixup blends as there are rows, behind them."""
    count = len(inputs)
    share = torch.distributions.Beta(alpha, alpha).sample((count,))
    first, second = torch.randint(count, (2, count))
    wide = share.view(-1, *(1,) * (inputs.ndim - 1))
    mixed = wide * inputs[first] + (1 - wide) * inputs[second]
    mixed_targets = share[:, None] * targets[first] + (1 - share[:, None]) * targets[second]
    return torch.cat([inputs, mixed]), torch.cat([targets, mixed_targets])


def per_image_augmented(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Iterator[Tensor]:
    """Pad, crop and flip by PIL, one image at a time, by the steps that torchvision's transforms take."""
    for image in images.permute(0, 2, 3, 1).numpy():
        padded = ImageOps.expand(Image.fromarray(image), border=4, fill=0)
        left, top = torch.randint(9, (2,)).tolist()
        cropped = padded.crop((left, top, left + 32, top + 32))
        if torch.rand(()) < 0.5:
            cropped = cropped.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        yield normalized(to_tensor(cropped), mean, deviation)
