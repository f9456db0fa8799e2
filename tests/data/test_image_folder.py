from __future__ import annotations

import numpy as np
import pytest
import torch

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.data import load_path
from mixupmp.data.images import read_image_folder

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)


def pictures(folder, classes=("cat", "dog"), count=10, shape=(6, 5), ending="png"):
    """Random pictures; the corner pixel says which class and which number."""
    for k, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = RNG.integers(0, 256, shape, np.uint8)
            pixels.reshape(shape[0], shape[1], -1)[0, 0] = 100 * k + number
            Image.fromarray(pixels).save(folder / name / f"{number:02}.{ending}")
    return folder


def test_a_folder_of_classes_is_split(tmp_path):
    folder = pictures(tmp_path / "pets")
    (folder / ".hidden").mkdir()
    (folder / "cat" / "Thumbs.db").write_bytes(b"no image")
    dataset = load_path(folder, test_fraction=0.3)
    assert (dataset.name, dataset.classes) == ("pets", ("cat", "dog"))
    assert dataset.train.inputs.shape == (14, 1, 6, 5)
    assert dataset.train.inputs.dtype == torch.uint8
    corners = torch.cat([dataset.train.inputs, dataset.test.inputs])[:, 0, 0, 0].long()
    assert sorted(corners.tolist()) == [*range(10), *range(100, 110)]
    assert torch.equal(corners // 100, torch.cat([dataset.train.labels, dataset.test.labels]))


@pytest.mark.parametrize("name", ["test", "val"])
def test_a_split_of_ones_own_is_kept(tmp_path, name):
    pictures(tmp_path / "pets" / "train", count=4, shape=(6, 5, 3))
    pictures(tmp_path / "pets" / name, count=2, shape=(6, 5, 3))
    dataset = load_path(tmp_path / "pets")
    assert dataset.train.inputs.shape == (8, 3, 6, 5)
    assert dataset.test.inputs[:, 1, 0, 0].tolist() == [0, 1, 100, 101]
    assert dataset.test.labels.tolist() == [0, 0, 1, 1]


def test_channels_are_in_place_and_color_wins_over_gray(tmp_path):
    folder = pictures(tmp_path / "pets", count=3)
    red = np.zeros((6, 5, 3), np.uint8)
    red[..., 0] = 255
    Image.fromarray(red).save(folder / "cat" / "00.png")
    both = load_path(folder, test_fraction=0.4)
    images = torch.cat([both.train.inputs, both.test.inputs])
    assert any(torch.equal(image, torch.from_numpy(red).permute(2, 0, 1)) for image in images)


def test_sizes_that_differ_ask_for_one(tmp_path):
    folder = pictures(tmp_path / "pets")
    Image.fromarray(RNG.integers(0, 256, (8, 8), np.uint8)).save(folder / "dog" / "03.png")
    with pytest.raises(BadData, match=r"cat/00\.png is 6 x 5, .*dog/03\.png is 8 x 8\. Pass size="):
        load_path(folder)
    assert load_path(folder, size=4).train.inputs.shape[1:] == (1, 4, 4)
    assert load_path(folder, size=(4, 7)).train.inputs.shape[1:] == (1, 4, 7)
    for bad in (0, (1, 2, 3), (0, 4)):
        with pytest.raises(InvalidArgument, match="size"):
            read_image_folder(folder, size=bad)


def test_an_empty_class_no_class_and_one_class_are_named(tmp_path):
    folder = pictures(tmp_path / "pets")
    (folder / "emu").mkdir()
    with pytest.raises(BadData, match="emu holds no images"):
        load_path(folder)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadData, match="nothing has no folders of images"):
        load_path(tmp_path / "nothing")
    with pytest.raises(BadData, match="1 class"):
        load_path(pictures(tmp_path / "one", classes=("cat",)))


def test_a_class_without_training_images_is_named(tmp_path):
    pictures(tmp_path / "pets" / "train", count=2)
    pictures(tmp_path / "pets" / "test", classes=("cat", "eel"), count=2)
    with pytest.raises(BadData, match="of eel there are test rows"):
        load_path(tmp_path / "pets")


@pytest.mark.parametrize("ending", ["png", "jpg"])
@pytest.mark.parametrize("kept", [0, 20, 150])
def test_a_damaged_image_is_named(tmp_path, ending, kept):
    folder = pictures(tmp_path / "pets", shape=(20, 20), ending=ending)
    path = folder / "dog" / f"04.{ending}"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadData, match=rf"dog/04\.{ending}"):
        load_path(folder)


def test_sixteen_bits_are_refused_rather_than_clipped(tmp_path):
    folder = pictures(tmp_path / "pets")
    Image.fromarray(np.full((6, 5), 40_000, np.uint16)).save(folder / "cat" / "00.png")
    with pytest.raises(BadData, match=r"cat/00\.png has more than 8 bits"):
        load_path(folder)
