from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.kernels import (
    Compose,
    HorizontalFlip,
    Kernel,
    OnBatch,
    PadCrop,
    RandomResizedCrop,
    as_kernel,
    cifar_kernel,
    identity,
)

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda images: images,
    "channels last": lambda images: images.contiguous(memory_format=torch.channels_last),
    "transposed": lambda images: images.transpose(2, 3).contiguous().transpose(2, 3),
    "a slice": lambda images: torch.cat([images, images, images], 0)[len(images) : 2 * len(images)],
    "every second pixel": lambda images: images.repeat_interleave(2, 3)[:, :, :, ::2],
    "expanded": lambda images: images[:1].expand(len(images), -1, -1, -1),
}
ALL_KERNELS = [PadCrop(2), HorizontalFlip(), RandomResizedCrop(), cifar_kernel()]


def some_images(rows: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (rows, channels, height, width), generator=Generator().manual_seed(seed)).to(
        torch.uint8
    )


def pad_crop_one_by_one(images: Tensor, padding: int, generator: Generator) -> Tensor:
    """What `PadCrop` says it does, image by image and pixel by pixel."""
    rows, _, height, width = images.shape
    place = torch.randint(2 * padding + 1, (2, rows), generator=generator)
    result = torch.zeros_like(images, memory_format=torch.contiguous_format)
    for row in range(rows):
        down, across = int(place[0, row]) - padding, int(place[1, row]) - padding
        for y in range(height):
            for x in range(width):
                if 0 <= y + down < height and 0 <= x + across < width:
                    result[row, :, y, x] = images[row, :, y + down, x + across]
    return result


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 4), channels=st.integers(1, 3), height=st.integers(1, 6), width=st.integers(1, 6),
    padding=st.integers(0, 3), layout=st.sampled_from(sorted(LAYOUTS)), seed=st.integers(0, 99),
)  # fmt: skip
def test_pad_crop_equals_a_loop_over_pixels(
    rows: int, channels: int, height: int, width: int, padding: int, layout: str, seed: int
) -> None:
    images = LAYOUTS[layout](some_images(rows, channels, height, width, seed))
    before = images.clone()
    cropped = PadCrop(padding)(images, Generator().manual_seed(seed))
    assert torch.equal(cropped, pad_crop_one_by_one(images, padding, Generator().manual_seed(seed)))
    assert torch.equal(images, before)


def test_pad_crop_uses_every_place_equally_often() -> None:
    images = torch.zeros(9000, 1, 3, 3)
    images[:, :, 1, 1] = 1  # the mark shows where the crop was
    marks = PadCrop(1)(images, Generator().manual_seed(0)).flatten(1).sum(0)
    assert marks.sum() == 9000
    assert (marks - 1000).abs().max() < 5 * 1000**0.5


def test_flip_mirrors_left_to_right_with_its_probability(generator: Generator) -> None:
    images = some_images(2000, 2, 3, 5)
    result = HorizontalFlip(0.3)(images, generator)
    flipped = (result == images.flip(3)).flatten(1).all(1)
    kept = (result == images).flatten(1).all(1)
    assert bool((flipped ^ kept).all())
    assert abs(float(flipped.float().mean()) - 0.3) < 5 * (0.3 * 0.7 / 2000) ** 0.5


@pytest.mark.parametrize(("probability", "flipped"), [(0, False), (1, True)])
def test_flip_always_and_never(probability: float, flipped: bool, generator: Generator) -> None:
    images = some_images(20, 1, 2, 4)
    assert torch.equal(HorizontalFlip(probability)(images, generator), images.flip(3) if flipped else images)


def test_resized_crop_of_the_whole_image_is_the_image(generator: Generator) -> None:
    crop = RandomResizedCrop(area=(1, 1), aspect=(1, 1))
    images = some_images(5, 3, 7, 9)
    assert torch.equal(crop(images, generator), images)
    assert torch.allclose(crop(images.float(), generator), images.float(), atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 999), low=st.floats(0.01, 1))
def test_resized_crop_stays_within_the_values_of_its_image(height: int, width: int, seed: int, low: float) -> None:
    images = some_images(4, 2, height, width, seed)
    result = RandomResizedCrop(area=(low, 1.0))(images, Generator().manual_seed(seed))
    assert result.shape == images.shape
    assert bool((result.amax((2, 3)) <= images.amax((2, 3))).all())
    assert bool((result.amin((2, 3)) >= images.amin((2, 3))).all())


def test_resized_crop_takes_the_area_it_says() -> None:
    """On a ramp the crop's width is the share of the ramp that is left."""
    ramp = torch.linspace(0, 1, 64).expand(4000, 1, 64, 64)
    crop = RandomResizedCrop(area=(0.25, 0.25), aspect=(1, 1))(ramp.contiguous(), Generator().manual_seed(0))
    spread = (crop[:, 0, 0, -1] - crop[:, 0, 0, 0]) * 64 / 63
    assert torch.allclose(spread, torch.full_like(spread, 0.5), atol=0.02)
    assert abs(float(crop.mean()) - 0.5) < 0.01
    assert float(crop.amin()) < 0.02  # crops reach both edges
    assert float(crop.amax()) > 0.98


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_kernels_keep_dtype_and_shape(kernel: Kernel, dtype: torch.dtype, generator: Generator) -> None:
    images = some_images(6, 3, 8, 6).to(dtype)
    result = kernel(images, generator)
    assert result.dtype == dtype
    assert result.shape == images.shape


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_kernels_do_not_depend_on_how_memory_is_laid_out(kernel: Kernel, layout: str) -> None:
    images = LAYOUTS[layout](some_images(6, 3, 8, 6))
    results = [kernel(given, Generator().manual_seed(4)) for given in (images, images.contiguous())]
    assert torch.equal(*results)


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_kernels_repeat_with_their_generator_alone(kernel: Kernel) -> None:
    images = some_images(16, 1, 8, 8)
    torch.manual_seed(1)
    first = kernel(images, Generator().manual_seed(4))
    torch.manual_seed(2)
    assert torch.equal(first, kernel(images, Generator().manual_seed(4)))
    assert not torch.equal(first, kernel(images, Generator().manual_seed(5)))


@pytest.mark.parametrize("kernel", ALL_KERNELS[:3], ids=repr)
def test_kernels_for_images_refuse_tables(kernel: Kernel, generator: Generator) -> None:
    with pytest.raises(InvalidArgument, match=r"inputs must be images .* got \(5, 2\)"):
        kernel(torch.zeros(5, 2), generator)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PadCrop(-1), "padding must be"),
        (lambda: PadCrop(1.5), "padding must be"),
        (lambda: HorizontalFlip(1.1), "probability must be"),
        (lambda: HorizontalFlip(float("nan")), "probability must be"),
        (lambda: RandomResizedCrop(area=(0, 1)), "area must be"),
        (lambda: RandomResizedCrop(area=(0.5, 1.5)), "area must be"),
        (lambda: RandomResizedCrop(aspect=(2, 1)), "aspect must be"),
        (lambda: as_kernel("crop"), "kernel must be"),
        (lambda: Compose(("crop",)), "kernel must be"),
    ],
)
def test_bad_settings_are_named(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build()


class Doubled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 2


class Shifted(nn.Module):
    def forward(self, inputs: Tensor, generator: Generator) -> Tensor:
        return inputs + torch.rand(1, generator=generator)


class Anything(nn.Module):
    """The signature of torchvision's v2 transforms."""

    def forward(self, *inputs: Any) -> Any:
        return inputs[0] * 2


def with_generator_third(inputs: Tensor, amount: float = 0.5, generator: Generator | None = None) -> Tensor:
    return inputs + amount * torch.rand(1, generator=generator)


def with_generator_by_keyword(inputs: Tensor, *, generator: Generator) -> Tensor:
    return inputs + torch.rand(1, generator=generator)


@pytest.mark.parametrize(
    "transform",
    [
        lambda x: x * 2,
        lambda x, factor=2: x * factor,
        lambda *x: x[0] * 2,
        Doubled(),
        Anything(),
        partial(torch.mul, other=2),
        torch.Tensor.double,
    ],
)
def test_a_transform_of_the_inputs_alone_is_a_kernel(transform: Any, generator: Generator) -> None:
    inputs = torch.ones(4, 2)
    expected = inputs if transform is torch.Tensor.double else 2 * inputs
    kernel = as_kernel(transform)
    assert torch.equal(kernel(inputs, generator).float(), expected)
    assert as_kernel(kernel) is kernel  # once is enough


@pytest.mark.parametrize(
    "transform",
    [
        lambda x, g: x + torch.rand(1, generator=g),
        lambda x, generator: x + torch.rand(1, generator=generator),
        Shifted(),
        with_generator_by_keyword,
        partial(with_generator_third, amount=1.0),
    ],
)
def test_a_transform_that_takes_a_generator_is_given_ours(transform: Any) -> None:
    inputs = torch.zeros(4, 2)
    expected = torch.rand(1, generator=Generator().manual_seed(3)).expand(4, 2)
    assert torch.equal(as_kernel(transform)(inputs, Generator().manual_seed(3)), expected)


def test_a_generator_that_is_not_the_second_argument_goes_where_it_is_named() -> None:
    inputs = torch.zeros(4, 2)
    expected = 0.5 * torch.rand(1, generator=Generator().manual_seed(3)).expand(4, 2)
    assert torch.equal(as_kernel(with_generator_third)(inputs, Generator().manual_seed(3)), expected)


def test_composed_kernels_act_in_order_and_may_be_plain_transforms(generator: Generator) -> None:
    both = Compose([lambda x: x + 1, Doubled(), identity])  # type: ignore[arg-type]
    assert torch.equal(both(torch.ones(3, 1), generator), torch.full((3, 1), 4.0))


@pytest.mark.parametrize("transform", [lambda x: x[:2], lambda x: x.numpy(), lambda x: None])
def test_a_transform_that_loses_rows_is_refused(transform: Any, generator: Generator) -> None:
    with pytest.raises(InvalidArgument, match="kernel must be a transform that returns a tensor of 4 rows"):
        OnBatch(transform)(torch.ones(4, 2), generator)
