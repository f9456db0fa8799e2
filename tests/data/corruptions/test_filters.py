"""The filters and textures under the corruptions, against known answers."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import ndimage

from mixupmp.data.corruptions import filters, textures
from mixupmp.data.corruptions.blur import _disk, _exchanged
from mixupmp.data.corruptions.digital import _affine


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 6.4])
@pytest.mark.parametrize(("reflect", "mode"), [(False, "nearest"), (True, "reflect")])
def test_gaussian_is_scipys(sigma, reflect, mode):
    image = noise(32, 40)
    expected = ndimage.gaussian_filter(image.double().numpy(), sigma, mode=mode, truncate=3.0)
    result = filters.gaussian(image[None, None], sigma, 3.0, reflect)[0, 0]
    torch.testing.assert_close(result.double(), torch.from_numpy(expected), atol=1e-5, rtol=0)


def test_lengths_scale_with_the_side():
    big = noise(1, 1, 64, 64)
    expected = ndimage.gaussian_filter(big[0, 0].double().numpy(), 2.0, mode="nearest", truncate=4.0)
    torch.testing.assert_close(filters.gaussian(big, 1.0)[0, 0].double(), torch.from_numpy(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("scale", [1.0, 0.875, 0.25])
def test_shrinking_keeps_total_center_and_shape(scale):
    matrix = filters.shrunk(6, scale)
    weights = matrix @ filters.gaussian_weights(2.0, 6)
    assert float(weights.sum()) == pytest.approx(1)
    torch.testing.assert_close(weights, weights.flip(0))
    assert len(weights) == 2 * math.ceil(6 * scale) + 1
    if scale == 1:
        torch.testing.assert_close(matrix, torch.eye(13))
    spread = float((weights * (torch.arange(len(weights)) - len(weights) // 2).square()).sum())
    # Sharing a weight between neighbors adds at most a quarter of a pixel squared.
    wanted = scale**2 * 2.0**2
    assert wanted * 0.95 <= spread <= wanted + 0.25


def test_zoom_is_bilinear_about_the_center():
    ramp = torch.arange(9.0)
    torch.testing.assert_close(filters.zoom_matrix(9, 2.0) @ ramp, 4 + (ramp - 4) / 2)
    torch.testing.assert_close(filters.zoom_matrix(32, 1.0), torch.eye(32))
    assert filters.zoom_matrix(1, 1.5).tolist() == [[1.0]]


def test_box_resizing_averages_whole_boxes():
    ramp = torch.arange(8.0)
    assert (filters.box_matrix(8, 4) @ ramp).tolist() == [0.5, 2.5, 4.5, 6.5]
    assert (filters.box_matrix(4, 8) @ torch.arange(4.0)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def point(side: int = 33) -> torch.Tensor:
    image = torch.zeros(1, 1, side, side)
    image[0, 0, side // 2, side // 2] = 1
    return image


@pytest.mark.parametrize(
    ("angle", "down", "across"), [(0, 0, -1), (90, -1, 0), (45, -1, -1), (-45, 1, -1), (-90, 1, 0)]
)
def test_a_streak_runs_to_one_side_at_its_angle(angle, down, across):
    image = point(32)
    result = filters.streak(image, 6, 2.0, torch.tensor([float(angle)]))[0, 0]
    assert float(result.sum()) == pytest.approx(1)
    weights = torch.exp(-0.5 * (torch.arange(7.0) / 2) ** 2)
    weights = weights / weights.sum()
    steps = torch.arange(7) if down * across == 0 else torch.round(torch.arange(7) / math.sqrt(2)).long()
    expected = torch.zeros(32, 32)
    for step, weight in zip(steps.tolist(), weights.tolist(), strict=True):
        expected[16 + step * down, 16 + step * across] += weight
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=0)


def test_each_image_has_a_streak_of_its_own():
    images = noise(20, 2, 16, 16)
    angles = torch.linspace(-170, 150, 20)[torch.randperm(20, generator=torch.Generator().manual_seed(0))]
    together = filters.streak(images, 8, 3.0, angles)
    for k in range(20):
        torch.testing.assert_close(together[k], filters.streak(images[k : k + 1], 8, 3.0, angles[k : k + 1])[0])


def test_an_exchange_moves_every_pixel_at_most_its_distance():
    images = torch.zeros(20, 1, 16, 12)
    for distance, passes in ((1.0, 1), (1.0, 2), (3.0, 1)):
        source = _exchanged(images, distance, passes, torch.Generator().manual_seed(0))
        places = torch.arange(16 * 12)
        assert torch.equal(source.sort(1).values, places.expand(20, -1))  # none is lost or doubled
        down = (source // 12 - places // 12).abs()
        across = (source % 12 - places % 12).abs()
        assert int(torch.maximum(down, across).max()) == distance * passes
        assert float((source != places).float().mean()) > 0.6
    rare = _exchanged(images, 0.25, 1, torch.Generator().manual_seed(0))
    assert 0.05 < float((rare != torch.arange(16 * 12)).float().mean()) < 0.3


def test_the_disk_is_the_published_one_at_32_pixels():
    cross = torch.tensor([[0.0, 1, 0], [1, 1, 1], [0, 1, 0]]) / 5
    torch.testing.assert_close(_disk(1.0, 0.0, 1.0)[1:-1, 1:-1], cross, atol=1e-6, rtol=0)
    weights = filters.gaussian_weights(0.4, 1)
    torch.testing.assert_close(_disk(0.3, 0.4, 1.0), torch.outer(weights, weights))
    for scale in (0.25, 0.875, 1.0, 2.0, 7.0):
        kernel = _disk(1.5, 0.1, scale)
        assert float(kernel.sum()) == pytest.approx(1)
        torch.testing.assert_close(kernel, kernel.T)


def test_an_affine_map_takes_the_shifted_corners_back():
    images = torch.zeros(5, 1, 32, 32)
    still = _affine(images, 0.0, torch.Generator().manual_seed(0))
    torch.testing.assert_close(still, torch.tensor([[1.0, 0], [0, 1], [0, 0]]).expand(5, 3, 2), atol=1e-5, rtol=0)
    moved = _affine(images, 2.5, torch.Generator().manual_seed(0))
    moves = torch.rand((5, 3, 2), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    corners = torch.tensor([[26.0, 26], [26, 6], [6, 6]])
    shifted = torch.cat([corners + 2.5 * moves.float(), torch.ones(5, 3, 1)], 2)
    torch.testing.assert_close(shifted @ moved, corners.expand(5, 3, 2), atol=1e-3, rtol=0)


def roughness(field: torch.Tensor) -> float:
    return float((field[:, :, 1:] - field[:, :, :-1]).abs().mean())


def test_plasma_fills_the_unit_interval_and_is_smoother_for_a_larger_decay():
    fields = [textures.plasma(40, 32, decay, torch.Generator().manual_seed(0)) for decay in (3.0, 2.0, 1.75)]
    for field in fields:
        assert field.shape == (40, 32, 32)
        assert torch.equal(field.amin((1, 2)), torch.zeros(40))
        torch.testing.assert_close(field.amax((1, 2)), torch.ones(40))
    assert roughness(fields[0]) < roughness(fields[1]) < roughness(fields[2])
    assert textures.plasma(2, 28, 2.0, torch.Generator()).shape == (2, 32, 32)
    # It wraps around: the step over the edge is no larger than those inside.
    seam = (fields[0][:, :, 0] - fields[0][:, :, -1]).abs().mean()
    assert float(seam) < 2 * roughness(fields[0])


@pytest.mark.parametrize("side", [8, 28, 32])
def test_the_frost_texture_has_ice_and_clear_glass(side):
    texture = textures.frost_texture(side)
    assert texture.shape == (3, 8 * side, 8 * side)
    assert float(texture.min()) > -1e-5
    assert float(texture.max()) <= 1 + 1e-5
    assert 0.2 < float(texture.mean()) < 0.4
    assert float((texture < 0.05).float().mean()) > 0.35
    assert float((texture > 0.7).float().mean()) > 0.1
    assert bool((texture[2] >= texture[0] - 1e-6).all())  # ice is bluish
