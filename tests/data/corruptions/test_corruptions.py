"""All 19: form, seeds, severities, and for each what it is known to do."""

from __future__ import annotations

import colorsys
from itertools import pairwise

import numpy as np
import pytest
import torch
from small_files import real_or_skip

from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.data import CORRUPTIONS, SEVERITIES, corrupt, unchanged_for_gray
from mixupmp.data.corruptions import NOT_RISING


def scenes(count: int = 48, side: int = 32, channels: int = 3) -> torch.Tensor:
    """Images with what natural ones have: smooth shades, edges, several colors, bright and dark parts."""
    generator = torch.Generator().manual_seed(0)
    rough = torch.rand((count, channels, 4, 4), generator=generator)
    smooth = torch.nn.functional.interpolate(rough, (side, side), mode="bicubic")
    mask = torch.nn.functional.interpolate(torch.rand((count, 1, 7, 7), generator=generator), (side, side)) > 0.6
    color = torch.rand((count, channels, 1, 1), generator=generator)
    return (torch.where(mask, color, smooth).clamp(0, 1) * 255).round().to(torch.uint8)


def change(images: torch.Tensor, name: str, severity: int) -> float:
    return float((corrupt(images, name, severity).float() - images.float()).abs().mean()) / 255


def rises(name: str, changes: list[float]) -> bool:
    """Whether each severity changes more than the one before.

    Snow at 2 and at 3 differs by half a per cent on CIFAR (the slow test over 10,000 images tells them apart), which
    a few hundred images cannot show.
    """
    slack = {("snow", 2): 0.01}
    steps = enumerate(pairwise(changes), start=1)
    return all(high > low * (1 - slack.get((name, severity), 0)) for severity, (low, high) in steps)


@pytest.mark.parametrize(
    "shape", [(3, 3, 32, 32), (3, 1, 28, 28), (2, 1, 8, 8), (2, 3, 20, 33), (2, 3, 64, 48), (0, 3, 32, 32)]
)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_any_size_and_channels_keep_their_form(name, shape):
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    for severity in (1, 3, 5):
        result = corrupt(images, name, severity)
        assert result.shape == images.shape
        assert result.dtype == torch.uint8
        if shape[0] and shape[1] == 1 and name == "saturate":
            assert unchanged_for_gray(name)
            assert torch.equal(result, images)
        elif shape[0] and severity == 5:
            assert not torch.equal(result, images)
    assert torch.equal(images, before)


def test_there_are_nineteen_and_only_saturation_has_no_meaning_for_gray():
    assert len(CORRUPTIONS) == len(set(CORRUPTIONS)) == 19
    assert [name for name in CORRUPTIONS if unchanged_for_gray(name)] == ["saturate"]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_decides_the_draws_and_numpy_is_welcome(name):
    images = scenes(6)
    first = corrupt(images, name, 4, seed=1)
    assert torch.equal(first, corrupt(images.numpy(), name, 4, seed=1))
    fixed = {"gaussian_blur", "defocus_blur", "zoom_blur", "contrast", "brightness", "saturate", "jpeg_compression"}
    assert torch.equal(first, corrupt(images, name, 4, seed=2)) == (name in fixed or name == "pixelate")


def test_global_random_state_is_left_alone():
    state = torch.get_rng_state()
    for name in CORRUPTIONS:
        corrupt(scenes(2), name, 3)
    assert torch.equal(state, torch.get_rng_state())


def test_no_two_images_of_a_row_get_the_same_draws():
    images = torch.full((4, 3, 32, 32), 128, dtype=torch.uint8)
    for name in ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "fog", "frost", "snow", "spatter"):
        result = corrupt(images, name, 5)
        assert len({image.numpy().tobytes() for image in result}) == 4, name


def test_large_sets_are_made_in_blocks_of_their_own(monkeypatch):
    images = scenes(12)
    monkeypatch.setattr("mixupmp.data.corruptions.BLOCK_PIXELS", 5 * 32 * 32)
    whole = corrupt(images, "gaussian_noise", 2)
    assert torch.equal(whole[:5], corrupt(images[:5], "gaussian_noise", 2))
    assert torch.equal(whole[:10], corrupt(images[:10], "gaussian_noise", 2))
    same = corrupt(images[:1].repeat(12, 1, 1, 1), "gaussian_noise", 2)
    assert not torch.equal(same[:5], same[5:10])


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - NOT_RISING.keys()))
def test_mean_change_rises_with_severity(name):
    images = scenes(128)
    changes = [change(images, name, severity) for severity in SEVERITIES]
    assert changes[0] > 0
    assert rises(name, changes), changes


@pytest.mark.parametrize("name", NOT_RISING)
def test_those_that_do_not_rise_by_their_published_parameters(name):
    """Should one of them start to rise, the list and what is said of it are out of date."""
    changes = [change(scenes(128), name, severity) for severity in SEVERITIES]
    assert min(changes) > 0
    assert not rises(name, changes), changes


@pytest.mark.parametrize("dataset", ["cifar10", "fashion-mnist"])
def test_on_real_images_the_same_ones_rise(dataset):
    images = real_or_skip(dataset).test.inputs[:256]
    for name in CORRUPTIONS:
        changes = [change(images, name, severity) for severity in SEVERITIES]
        if images.shape[1] == 1 and unchanged_for_gray(name):
            assert changes == [0] * 5
        else:
            assert rises(name, changes) == (name not in NOT_RISING), (name, changes)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 8, 8), "float32"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), r"\(3, 8, 8\)"),
        (torch.zeros(2, 4, 8, 8, dtype=torch.uint8), r"\(2, 4, 8, 8\)"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"\(2, 8, 8, 3\)"),
    ],
)
def test_images_of_another_form_are_refused(images, message):
    with pytest.raises(InvalidArgument, match=message):
        corrupt(images, "fog", 1)


def test_unknown_names_and_severities_are_refused():
    with pytest.raises(UnknownName, match="Did you mean 'motion_blur'"):
        corrupt(scenes(1), "motion-blur", 1)
    with pytest.raises(UnknownName, match="corruption"):
        unchanged_for_gray("smog")
    for severity in (0, 6, 2.5):
        with pytest.raises(InvalidArgument, match="severity"):
            corrupt(scenes(1), "fog", severity)


# What each is known to do.

GRAY = torch.full((64, 3, 32, 32), 128, dtype=torch.uint8)
LEVEL = 128 / 255


@pytest.mark.parametrize("severity", SEVERITIES)
def test_noise_has_its_published_strength(severity):
    k = severity - 1
    expected = {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10)[k],
        "shot_noise": (LEVEL / (500, 250, 100, 75, 50)[k]) ** 0.5,
        "speckle_noise": LEVEL * (0.06, 0.10, 0.12, 0.16, 0.20)[k],
    }
    for name, deviation in expected.items():
        result = corrupt(GRAY, name, severity).double() / 255
        assert float(result.mean()) == pytest.approx(LEVEL, abs=2e-3), name
        assert float(result.std()) == pytest.approx(deviation, rel=0.02), name
    result = corrupt(GRAY, "impulse_noise", severity)
    fraction = (0.01, 0.02, 0.03, 0.05, 0.07)[k]
    for extreme in (0, 255):
        assert float((result == extreme).double().mean()) == pytest.approx(fraction / 2, rel=0.1)
    assert float((result == 128).double().mean()) == pytest.approx(1 - fraction, rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "gaussian_blur",
        "glass_blur",
        "defocus_blur",
        "motion_blur",
        "zoom_blur",
        "contrast",
        "pixelate",
        "elastic_transform",
    ],
)
def test_what_moves_or_mixes_pixels_leaves_a_plain_image_alone(name):
    for severity in SEVERITIES:
        assert torch.equal(corrupt(GRAY, name, severity), GRAY)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_is_the_formula(severity):
    images = scenes(8).double()
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = images.mean((2, 3), keepdim=True)
    expected = (images - mean) * factor + mean
    torch.testing.assert_close(
        corrupt(images.to(torch.uint8), "contrast", severity).double(), expected, atol=0.51, rtol=0
    )


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", ["brightness", "saturate"])
def test_color_agrees_with_hsv(name, severity):
    pixels = torch.cat(
        [
            scenes(1).flatten(2)[0].T[:200],
            torch.tensor([[0, 0, 0], [255, 255, 255], [9, 9, 9], [255, 0, 0]], dtype=torch.uint8),
        ]
    )
    k = severity - 1
    factor, more = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[k] if name == "saturate" else (1, 0)
    bright = (0.05, 0.1, 0.15, 0.2, 0.3)[k] if name == "brightness" else 0
    expected = []
    for pixel in (pixels.double() / 255).tolist():
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        saturation, value = min(saturation * factor + more, 1), min(value + bright, 1)
        expected.append(colorsys.hsv_to_rgb(hue, saturation, value))
    result = corrupt(pixels.T.reshape(1, 3, -1, 1), name, severity)[0, :, :, 0].T
    torch.testing.assert_close(result.double(), torch.tensor(expected, dtype=torch.float64) * 255, atol=0.51, rtol=0)


def test_brightness_of_gray_acts_on_the_value():
    ramp = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    expected = (ramp.double() + 0.3 * 255).clamp(max=255)
    torch.testing.assert_close(corrupt(ramp, "brightness", 5).double(), expected, atol=0.51, rtol=0)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("side", [32, 28])
def test_pixelate_agrees_with_pillow(severity, side):
    image_module = pytest.importorskip("PIL.Image")
    image = scenes(1, side)[0]
    fewer = int(side * (0.95, 0.90, 0.85, 0.75, 0.65)[severity - 1])
    picture = image_module.fromarray(image.permute(1, 2, 0).numpy())
    box = image_module.Resampling.BOX
    expected = np.asarray(picture.resize((fewer, fewer), box).resize((side, side), box))
    result = corrupt(image[None], "pixelate", severity)[0].permute(1, 2, 0).numpy()
    assert np.abs(result.astype(int) - expected).max() <= 1  # Pillow rounds half way


def test_jpeg_gets_rougher_and_is_pillows(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    image = scenes(1)[0]
    path = tmp_path / "a.jpg"
    image_module.fromarray(image.permute(1, 2, 0).numpy()).save(path, quality=40)
    with image_module.open(path) as coded:
        expected = np.asarray(coded)
    assert np.array_equal(corrupt(image[None], "jpeg_compression", 5)[0].permute(1, 2, 0).numpy(), expected)


def test_fog_keeps_an_images_maximum_and_black_black():
    images = scenes(16)
    result = corrupt(images, "fog", 5)
    assert bool((result.amax((1, 2, 3)) <= images.amax((1, 2, 3))).all())
    assert int(corrupt(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), "fog", 5).max()) == 0


def test_snow_and_frost_and_water_brighten_and_mud_is_brown():
    dark = torch.full((32, 3, 32, 32), 40, dtype=torch.uint8)
    for name, severity in (("snow", 1), ("snow", 5), ("frost", 2), ("spatter", 1), ("spatter", 3)):
        result = corrupt(dark, name, severity).float()
        assert bool((result >= 40 - 1).all()), name
        assert float(result.mean()) > 40.3, name
    white = torch.full((32, 3, 32, 32), 255, dtype=torch.uint8)
    result = corrupt(white, "spatter", 5)
    assert result.flatten(2).amin((0, 2)).tolist() == [63, 42, 20]
