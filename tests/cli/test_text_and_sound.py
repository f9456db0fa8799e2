"""Sentences and sounds from the command line: fitted, predicted and reported as what they are."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from commands import mixupmp, refused

from mixupmp import load
from mixupmp.core.encoders import Spectrogram
from mixupmp.core.tokenizers import Vocabulary, WordPieces

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
    result = mixupmp("predict", "run", "--input", "new.txt", "--json")
    assert "1 empty lines of new.txt are left out" in result.err
    predicted = result.json["predictions"]
    assert [row["predicted"] for row in predicted] == ["pay", "ask"]
    assert posterior.probabilities(["pay my bill"]).argmax() == 1
    assert mixupmp("report", "run", "--out", "page.html").code == 0
    assert "please pay my bill" in (tmp_path / "page.html").read_text()
    assert "MP SentenceSplice r=1" in (tmp_path / "page.html").read_text()
    refused(mixupmp("fit", "--data", "texts.csv", "--text", "words", "--out", "x"), "column of texts.csv 'words'")
    refused(mixupmp("predict", "run", "--input", "texts.wav"), "does not exist")
    found = mixupmp("detect", "run", "--input", "new.txt", "--json")
    assert found.json["rows"] == 2, found
    found = mixupmp("detect", "run", "--input", "texts.csv", "--json")
    assert found.json["rows"] == 80, found


def write_texts(path: Path, first: str) -> None:
    """Sentences of two kinds in both orders of columns; `first` moves the numbers of all words."""
    known = {"ask": "what is my balance", "pay": "please pay my bill"}
    lines = [f"{label},{first} {text} {'now' * (n % 2)}" for n in range(40) for label, text in known.items()]
    path.write_text("intent,sentence\n" + "\n".join(lines) + "\n")


def test_other_sentences_are_read_with_the_words_of_the_fit(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.csv", "well")
    write_texts(tmp_path / "other.csv", "again and again")  # its own vocabulary would give every word another number
    said = mixupmp("fit", "--data", "texts.csv", "--text", "sentence", *SHORT, "--out", "run", "--json")
    assert said.code == 0, said
    found = mixupmp("evaluate", "run", "--data", "other.csv", "--json")
    assert found.code == 0, found
    assert found.json["metrics"]["acc"] == 1
    predicted = mixupmp("predict", "run", "--input", "other.csv", "--json").json["predictions"]
    assert [row["predicted"] for row in predicted] == ["ask", "pay"] * 40
    options = ("--held-out", "texts.csv", "--false-alarm", "0.1")
    assert mixupmp("detect", "run", "--data", "other.csv", *options, "--json").json["rows"] == 80
    (tmp_path / "none.csv").write_text("words\nwhat\n")
    refused(mixupmp("predict", "run", "--input", "none.csv"), "column of none.csv 'sentence'")


def test_word_pieces_from_the_command_line(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.csv", "well")
    options = ("--data", "texts.csv", "--text", "sentence", "--tokens", "pieces")
    said = mixupmp("fit", *options, *SHORT, "--out", "run", "--json")
    assert said.code == 0, said
    encoder = load(tmp_path / "run").task.encoder
    assert isinstance(encoder, WordPieces)
    (tmp_path / "new.txt").write_text("payable bills\n")  # no word of the fit
    assert (encoder(["payable bills"]) > 1).any()
    assert mixupmp("predict", "run", "--input", "new.txt", "--json").json["predictions"][0]["predicted"] == "pay"
    assert mixupmp("evaluate", "run", "--json").json["metrics"]["acc"] == 1
    refused(mixupmp("fit", *options[:-1], "syllables", "--out", "x"), "tokens 'syllables'")
    refused(mixupmp("fit", "--data", "digits", "--tokens", "pieces", "--out", "x"), "which holds no sentences")


def write_sounds(folder: Path, samples: int = 1200, rate: int = 8000) -> None:
    for number in range(12):
        for name, hertz in (("low", 400), ("high", 3000)):
            path = folder / name / f"{number}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                time = np.arange(samples) / rate
                file.writeframes((9000 * np.sin(2 * np.pi * (hertz + 9 * number) * time)).astype("<i2").tobytes())


def test_a_folder_of_sounds(tmp_path: Path) -> None:
    write_sounds(tmp_path / "sounds")
    said = mixupmp("fit", "--data", "sounds", *SHORT, "--method", "martingale-posterior", "--base", "mixup-cutmix",
                   "--out", "run", "--json")  # fmt: skip
    assert said.code == 0, said
    assert isinstance(load(tmp_path / "run").task.encoder, Spectrogram)
    predicted = mixupmp("predict", "run", "--input", "sounds/low/0.wav", "--json").json["predictions"]
    assert predicted[0]["predicted"] == "low"
    write_sounds(tmp_path / "longer", 2500)
    write_sounds(tmp_path / "faster", rate=11025)
    assert mixupmp("evaluate", "run", "--data", "longer", "--split", "all", "--json").json["metrics"]["acc"] == 1
    refused(mixupmp("evaluate", "run", "--data", "faster"), "11025 samples a second, the run takes 8000")
