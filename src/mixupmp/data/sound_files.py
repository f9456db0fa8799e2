"""Sound: WAV files, folders of them by class, and the Free Spoken Digit Dataset."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.encoders import Encoder, Spectrogram
from mixupmp.core.errors import BadData
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.data.arrays import class_numbers, split_off_test
from mixupmp.data.files import Published, Root, locate, plain_file, reading
from mixupmp.data.images import files_by_class

ENDING = ".wav"
LONGEST = 30  # seconds of a row; a file may hold hours
HIGHEST = 1_000_000  # samples a second: more than any recorder, and a window of 32 ms is small
PCM, FLOATING, EXTENSIBLE = 1, 3, 0xFFFE  # encodings of samples; the last one says which further on
ENCODINGS = ((PCM, 1), (PCM, 2), (PCM, 3), (PCM, 4), (FLOATING, 4))  # with their bytes
TEST_INDEX = 5  # recordings 0 to 4 of each speaker and digit are the published test set
FSDD = Published(
    title="Free Spoken Digit Dataset",
    page="https://github.com/Jakobovski/free-spoken-digit-dataset (recordings/)",
    folders=("fsdd/recordings", "free-spoken-digit-dataset/recordings"),
    files=("0_jackson_0.wav",),
    remotes=(),
)


def read_wave(source: Path | bytes, seconds: float = LONGEST, name: str = "") -> tuple[Tensor, int]:
    """The first seconds of a WAV file, its channels averaged, whole numbers in [-1, 1); and its samples a second."""
    name = name or str(source)
    with reading(name, "a WAV file"):
        with io.BytesIO(source) if isinstance(source, bytes) else plain_file(source).open("rb") as file:
            size, encoding, channels, rate, width = _header(file)
            content = file.read(min(size, round(seconds * rate) * width * channels))
        whole = len(content) // (width * channels) * width * channels
        bits = np.frombuffer(content[:whole], np.uint8).reshape(-1, width)
        values: NDArray[np.floating[Any]]
        if encoding == FLOATING:
            values = bits.view("<f4")[:, 0].astype(np.float32)
            if not np.isfinite(values).all():
                raise ValueError("it holds values that are not finite")
        elif width == 1:
            values = bits[:, 0].astype(np.float32) / 128 - 1
        else:  # little-endian integers of 2 to 4 bytes, put into the upper bytes of 32 bits
            padded = np.zeros((len(bits), 4), np.uint8)
            padded[:, 4 - width :] = bits
            values = (padded.view("<i4")[:, 0] / 2**31).astype(np.float32)
    if len(values) == 0:
        raise BadData(f"{name} holds no sound.")
    if not 0 < rate <= HIGHEST:
        raise BadData(f"{name} claims {rate} samples a second: at most {HIGHEST} are read.")
    return torch.from_numpy(values.reshape(-1, channels).mean(1)), rate


def _header(file: BinaryIO) -> tuple[int, int, int, int, int]:
    """Bytes of samples, which follow, their encoding, channels, samples a second, and the bytes of a sample.

    The `wave` of the standard library refuses floating point.
    """
    head, layout = file.read(12), b""
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise ValueError("it does not begin with RIFF and WAVE")
    while len(chunk := file.read(8)) == 8:
        size = int.from_bytes(chunk[4:], "little")
        if chunk[:4] == b"data" and layout:
            break
        end = file.tell() + size + size % 2
        layout = file.read(min(size, 40)) if chunk[:4] == b"fmt " else layout
        file.seek(end)
    else:
        raise ValueError("it ends before its samples")
    encoding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", layout)
    if encoding == EXTENSIBLE:
        (encoding,) = struct.unpack_from("<H", layout, 24)
    width = (bits + 7) // 8
    if (encoding, width) not in ENCODINGS or channels == 0:
        known = "whole numbers of 8 to 32 bits and floating point of 32 are read"
        raise ValueError(f"its samples are of encoding {encoding} with {bits} bits in {channels} channels; {known}")
    return size, encoding, channels, rate, width


def encoded_wave(source: Path | bytes, task: Task, name: str = "") -> Tensor:
    """One sound as a batch of one row, encoded as those of the task's training."""
    name = name or str(source)
    if not isinstance(task.encoder, Spectrogram):
        raise BadData(f"{name} is a sound; the run takes rows of shape {task.input_shape}.")
    sound, rate = read_wave(source, task.encoder.seconds, name)
    if rate != task.encoder.rate:
        raise BadData(f"{name} has {rate} samples a second, the run takes {task.encoder.rate}: resample it.")
    return task.encoder([sound])


def read_wav_folder(folder: Path, test_fraction: float = 0.2, seed: int = 0, encoder: Encoder | None = None) -> Dataset:
    """WAV files of one rate in folders named after their classes, under train/ and test/, or else split here.

    Rows are spectrograms of as many seconds as 95% of the files have, or those of the encoder of a fit.
    """
    train, test = folder / "train", next((folder / n for n in ("test", "val", "valid") if (folder / n).is_dir()), None)
    parts = [train, test] if train.is_dir() and test is not None else [folder]
    listed = [files_by_class(part, frozenset((ENDING,)), "WAV files") for part in parts]
    spectrogram, inputs = _spectrograms([file for files, _ in listed for file in files], encoder)
    numbers, classes = class_numbers(str(folder), *(np.array(labels) for _, labels in listed))
    rows = [Rows(x, y) for x, y in zip(inputs.split([len(y) for y in numbers]), numbers, strict=True)]
    if len(rows) == 1:
        rows = list(split_off_test(rows[0], len(classes), str(folder), test_fraction, seed))
    return _dataset(folder.name, rows[0], rows[1], classes, spectrogram)


def fsdd(root: Root = None, download: bool = False, seed: int = 0, encoder: Encoder | None = None) -> Dataset:
    """Spoken digits of 6 speakers, 8 kHz: 2,700 and 300 recordings, as published (Jackson et al., 2018)."""
    folder = locate(FSDD, root)
    return _fsdd("fsdd", folder, [int(_parts_of_name(path)[2]) < TEST_INDEX for path in _recordings(folder)], encoder)


def fsdd_speakers(root: Root = None, download: bool = False, seed: int = 0, encoder: Encoder | None = None) -> Dataset:
    """Spoken digits of four speakers to train on, and of two others to test on, who are chosen by the seed: a shift."""
    folder = locate(FSDD, root)
    speakers = sorted({_parts_of_name(path)[1] for path in _recordings(folder)})
    others = {speakers[2 * seed % len(speakers)], speakers[(2 * seed + 1) % len(speakers)]}
    return _fsdd("fsdd-speakers", folder, [_parts_of_name(path)[1] in others for path in _recordings(folder)], encoder)


def _recordings(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.glob(f"*{ENDING}")
        if len(_parts_of_name(path)) == 3 and _parts_of_name(path)[2].isdigit()
    )


def _parts_of_name(path: Path) -> list[str]:
    """Digit, speaker and index, from the file name of a recording."""
    return path.stem.split("_")


def _fsdd(name: str, folder: Path, tested: list[bool], encoder: Encoder | None) -> Dataset:
    files = _recordings(folder)
    spectrogram, inputs = _spectrograms(files, encoder)
    labels = torch.tensor([int(_parts_of_name(path)[0]) for path in files])
    chosen = torch.tensor(tested)
    train, test = (Rows(inputs[part], labels[part]) for part in (~chosen, chosen))
    return _dataset(name, train, test, tuple(map(str, range(10))), spectrogram)


def _spectrograms(files: list[Path], encoder: Encoder | None) -> tuple[Spectrogram, Tensor]:
    waves: list[tuple[Tensor, int]] = []
    for path in files:
        sound, rate = read_wave(path)
        if waves and rate != waves[0][1]:
            raise BadData(f"{files[0]} has {waves[0][1]} samples a second, {path} {rate}: resample them to one rate.")
        waves.append((sound, rate))
    rate = waves[0][1]
    if isinstance(encoder, Spectrogram):
        if rate != encoder.rate:
            raise BadData(f"{files[0]} has {rate} samples a second, the run takes {encoder.rate}: resample them.")
        return encoder, encoder([sound for sound, _ in waves])
    lengths = sorted(len(sound) for sound, _ in waves)
    window = 2 ** max(7, round(np.log2(rate / 32)))  # about 32 ms
    samples = max(lengths[int(0.95 * (len(lengths) - 1))], 2 * window)
    spectrogram = Spectrogram(rate, round(samples / rate, 3), window)
    return spectrogram, spectrogram([sound for sound, _ in waves])


def _dataset(name: str, train: Rows, test: Rows, classes: tuple[str, ...], spectrogram: Spectrogram) -> Dataset:
    return Dataset(name, train, test, classes, Standardize.of(train.inputs), spectrogram).checked()
