"""Files of sentences and sounds, by the readers that `--data` and `load` use."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import torch
from hypothesis import strategies as st
from tests.fuzz.data_targets import _checked, _packed
from tests.fuzz.mutate import mutated, mutated_json, odd_values
from tests.fuzz.nearby import GZIP, near_gzip, near_json, near_lines
from tests.fuzz.target import Check, Target

from mixupmp.data import load, load_path
from mixupmp.data.sound_files import read_wave
from mixupmp.data.text_files import CLINC150

RECORDS = [{"text": f"word {k} and, so on", "label": "ab"[k % 2]} for k in range(10)]


def _prepare_text(scratch: Path) -> Check:
    """A case is a JSON Lines file where it begins with a brace, and a CSV file otherwise; both may be compressed."""

    def check(content: bytes) -> None:
        kind = "jsonl" if content.startswith(b"{") else "csv"
        path = scratch / f"sentences.{kind}{'.gz' if content.startswith(GZIP) else ''}"
        path.write_bytes(content)
        dataset = load_path(path, text="text")
        _checked(dataset)
        "".join(dataset.classes).encode()  # they are written to run folders and pages

    return check


def _text_cases() -> st.SearchStrategy[bytes]:
    lines = [json.dumps(record).encode() for record in RECORDS]
    table = "text,label\n" + "\n".join(f'"{r["text"]}",{r["label"]}' for r in RECORDS)
    seeds = [b"\n".join(lines), table.encode(), table.replace(",", "\t").encode()]
    odd = st.lists(mutated_json(lines), min_size=1, max_size=3).map(lambda some: b"\n".join([*lines, *some]))
    values = st.fixed_dictionaries({"text": odd_values(), "label": odd_values()}).map(json.dumps).map(str.encode)
    return st.one_of(_packed(seeds), odd, st.lists(values, min_size=4, max_size=9).map(b"\n".join))


def _prepare_clinc150(scratch: Path) -> Check:
    path = scratch / CLINC150.folders[0] / CLINC150.files[0]
    path.parent.mkdir()

    def check(content: bytes) -> None:
        path.write_bytes(content)
        dataset = load("clinc150", root=scratch)
        _checked(dataset)
        "".join(dataset.classes).encode()

    return check


def _clinc150_cases() -> st.SearchStrategy[bytes]:
    rows = [[record["text"], record["label"]] for record in RECORDS]
    parts = ("train", "val", "test", "oos_train", "oos_val", "oos_test")
    seed = json.dumps({part: [[text, "oos"] for text, _ in rows[:2]] if "oos" in part else rows for part in parts})
    return st.one_of(mutated_json([seed.encode()]), mutated_json([seed.encode()]), mutated([seed.encode()]))


def _wave(width: int = 2, channels: int = 1, rate: int = 8000, frames: int = 400) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setsampwidth(width)
        file.setnchannels(channels)
        file.setframerate(rate)
        file.writeframes(bytes(range(256)) * (frames * width * channels // 256 + 1))
    return content.getvalue()


def _prepare_sound(scratch: Path) -> Check:
    mixed, alone = scratch / "mixed", scratch / "alone"
    for folder in (mixed, alone):
        for name in ("cat/0", "cat/1", "dog/0", "dog/1"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.wav").write_bytes(_wave())

    def check(content: bytes) -> None:
        (mixed / "cat" / "0.wav").write_bytes(content)
        for kind in ("cat", "dog"):  # all of them as the case: it decides rate and length
            for number in range(2):
                (alone / kind / f"{number}.wav").write_bytes(content)
        heard, rate = read_wave(content, name="sound")
        assert bool(torch.isfinite(heard).all())
        assert rate > 0
        _checked(load_path(alone, test_fraction=0.5))
        _checked(load_path(mixed, test_fraction=0.5))

    return check


def _sound_cases() -> st.SearchStrategy[bytes]:
    kinds = [_wave(width, channels) for width in (1, 2, 3, 4) for channels in (1, 2)]
    return st.one_of(mutated(kinds), mutated([*kinds, _wave(rate=16000), _wave(frames=0)]))


TARGETS = (
    Target("text", _prepare_text, _text_cases, near_gzip(near_lines)),
    Target("clinc150", _prepare_clinc150, _clinc150_cases, near_json),
    Target("sound", _prepare_sound, _sound_cases),
)
