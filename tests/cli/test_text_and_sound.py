"""Sentences and sounds from the command line: fitted, predicted and reported as what they are."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from commands import mixupmp, refused

from mixupmp import load
from mixupmp.core.encoders import Spectrogram, Vocabulary

SHORT = ("--members", "2", "--epochs", "8", "--ratio", "1")


def test_sentences_of_a_csv(tmp_path: Path) -> None:
    known = {"ask": "what is my balance", "pay": "please pay my bill"}
    lines = [f"{sentence} {'now' * (n % 2)},{label}" for n in range(40) for label, sentence in known.items()]
    (tmp_path / "texts.csv").write_text("sentence,intent\n" + "\n".join(lines) + "\n")
    said = mixupmp("fit", "--data", "texts.csv", "--text", "sentence", *SHORT, "--out", "run", "--json")
    assert said.code == 0, said
    posterior = load(tmp_path / "run")
    assert isinstance(posterior.task.encoder, Vocabulary)
    (tmp_path / "new.txt").write_text("pay my bill\n\nwhat is my balance now\n")
    predicted = mixupmp("predict", "run", "--input", "new.txt", "--json").json["predictions"]
    assert [row["predicted"] for row in predicted] == ["pay", "ask"]
    assert posterior.probabilities(["pay my bill"]).argmax() == 1
    assert mixupmp("report", "run", "--out", "page.html").code == 0
    assert "please pay my bill" in (tmp_path / "page.html").read_text()
    assert "MP SentenceSplice r=1" in (tmp_path / "page.html").read_text()
    refused(mixupmp("fit", "--data", "texts.csv", "--text", "words", "--out", "x"), "column of texts.csv 'words'")
    refused(mixupmp("predict", "run", "--input", "texts.wav"), "does not exist")
    found = mixupmp("detect", "run", "--input", "new.txt", "--json")
    assert found.json["rows"] == 2, found
    refused(mixupmp("detect", "run", "--input", "texts.csv"), "one on each line of a .txt file")


def test_a_folder_of_sounds(tmp_path: Path) -> None:
    for number in range(12):
        for name, hertz in (("low", 400), ("high", 3000)):
            path = tmp_path / "sounds" / name / f"{number}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                time = np.arange(1200) / 8000
                file.writeframes((9000 * np.sin(2 * np.pi * (hertz + 9 * number) * time)).astype("<i2").tobytes())
    said = mixupmp("fit", "--data", "sounds", *SHORT, "--method", "martingale-posterior", "--base", "mixup-cutmix",
                   "--out", "run", "--json")  # fmt: skip
    assert said.code == 0, said
    assert isinstance(load(tmp_path / "run").task.encoder, Spectrogram)
    predicted = mixupmp("predict", "run", "--input", "sounds/low/0.wav", "--json").json["predictions"]
    assert predicted[0]["predicted"] == "low"
