"""WAV files, folders of them, and the spoken digits."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from mixupmp.core.encoders import Spectrogram
from mixupmp.core.errors import BadData
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Standardize
from mixupmp.data import load, load_path
from mixupmp.data.sound_files import encoded_wave, read_wave


def write_wave(path: Path, values: np.ndarray, width: int = 2, rate: int = 8000) -> Path:
    """Values in [-1, 1), (samples,) or (samples, channels), as whole numbers of `width` bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = 8 * width
    whole = np.round(values * 2 ** (bits - 1)).astype(np.int64)
    whole = whole + 128 if width == 1 else whole
    content = b"".join(int(v).to_bytes(width, "little", signed=width > 1) for v in whole.flatten())
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if values.ndim == 1 else values.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(content)
    return path


def tone(hertz: float, samples: int = 2400) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(samples) / 8000)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_every_width_are_read(tmp_path: Path, width: int) -> None:
    values = np.array([0.0, 0.5, -0.5, -1.0, 0.25])
    sound, rate = read_wave(write_wave(tmp_path / "a.wav", values, width))
    assert rate == 8000
    assert sound.dtype == torch.float32
    assert sound.tolist() == values.tolist()


@pytest.mark.parametrize("extensible", [False, True])
def test_floating_point_is_read(tmp_path: Path, extensible: bool) -> None:
    values = np.array([[0.5, 0.25], [0.0, -0.5], [2.0, 1.0]], "<f4")
    layout = struct.pack("<HHIIHH", 0xFFFE if extensible else 3, 2, 8000, 64_000, 8, 32)
    layout += struct.pack("<HHIH14s", 22, 32, 3, 3, b"") if extensible else b""
    chunks = ((b"fmt ", layout), (b"LIST", b"odd"), (b"data", values.tobytes()))
    parts = [name + struct.pack("<I", len(part)) + part + b"\0" * (len(part) % 2) for name, part in chunks]
    content = b"RIFF\0\0\0\0WAVE" + b"".join(parts)
    assert read_wave(content)[0].tolist() == [0.375, -0.25, 1.5]
    with pytest.raises(BadData, match="not finite"):
        read_wave(content[:-4] + np.array(np.nan, "<f4").tobytes(), name="a.wav")
    with pytest.raises(BadData, match=r"a\.wav cannot be read .*: its samples are of encoding 7 with 32 bits"):
        read_wave(content.replace(layout, b"\7\0" + layout[2:]), name="a.wav")


@pytest.mark.parametrize("content", [b"", b"no sound" * 20])
def test_why_it_is_no_wave_is_said(content: bytes) -> None:
    with pytest.raises(BadData, match=r"a\.wav cannot be read as a WAV file: it does not begin with RIFF"):
        read_wave(content, name="a.wav")


def test_channels_are_averaged_and_a_file_is_read_no_further_than_needed(tmp_path: Path) -> None:
    path = write_wave(tmp_path / "a.wav", np.array([[0.5, 0.25], [0.0, -0.5]] * 800))
    sound, _ = read_wave(path, seconds=0.1)
    assert len(sound) == 800
    assert sound[:2].tolist() == [0.375, -0.25]


@pytest.mark.parametrize("content", [b"", b"RIFF", b"RIFF\0\0\0\0WAVEfmt ", b"no sound" * 20])
def test_what_is_no_wave_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.wav").write_bytes(content)
    with pytest.raises(BadData, match=r"bad\.wav"):
        read_wave(tmp_path / "bad.wav")


def test_a_rate_beyond_all_recorders_takes_no_memory(tmp_path: Path) -> None:
    """Windows and rows grow with the rate: 844 bytes that claimed 268 MHz took 2.3 GB."""
    write_wave(tmp_path / "a" / "0.wav", tone(400), rate=268_000_000)
    with pytest.raises(BadData, match="claims 268000000 samples a second"):
        load_path(tmp_path)


def test_a_folder_of_sounds_by_class(tmp_path: Path) -> None:
    for number in range(6):
        write_wave(tmp_path / "low" / f"{number}.wav", tone(400 + 10 * number))
        write_wave(tmp_path / "high" / f"{number}.wav", tone(3000 + 10 * number))
    data = load_path(tmp_path, test_fraction=0.5)
    assert data.classes == ("high", "low")
    assert data.encoder == Spectrogram(8000, 0.3)
    band = data.train.inputs.float().mean((1, 3)).argmax(1)
    assert bool(((band < 32) == (data.train.labels == 0)).all())  # high tones are at the top
    assert len(load_path(tmp_path, test_fraction=1).test) == 12


def test_rates_must_agree(tmp_path: Path) -> None:
    write_wave(tmp_path / "a" / "0.wav", tone(400))
    path = write_wave(tmp_path / "b" / "0.wav", tone(400), rate=16_000)
    with pytest.raises(BadData, match="resample them"):
        load_path(tmp_path)
    task = Task(Categorical(2), Standardize(), (1, 64, 19), (), Spectrogram(8000, 0.3))
    with pytest.raises(BadData, match="the run takes 8000: resample it"):
        encoded_wave(path, task)
    assert encoded_wave(tmp_path / "a" / "0.wav", task).shape == (1, 1, 64, 19)


def test_spoken_digits_are_split_as_published_or_by_speaker(tmp_path: Path) -> None:
    for digit in range(10):
        for speaker in ("ann", "bob", "jackson", "zoe"):
            for index in (0, 4, 5, 9):
                write_wave(tmp_path / "fsdd" / "recordings" / f"{digit}_{speaker}_{index}.wav", tone(300 + 200 * digit))
    published = load("fsdd", tmp_path)
    assert (len(published.train), len(published.test)) == (80, 80)
    assert published.test.labels.bincount().tolist() == [8] * 10
    others = load("fsdd-speakers", tmp_path, seed=1)
    assert (len(others.train), len(others.test)) == (80, 80)
    assert others.classes == tuple(map(str, range(10)))
