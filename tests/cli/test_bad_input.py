"""Every bad input: a clear complaint that names it, exit code 2, and nothing written over."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from commands import mixupmp, mixupmp_process, refused

FIT = ("fit", "--epochs", "1", "--members", "1", "--out", "new")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ratio", "-1"), "ratio"),
        (("--ratio", "nan"), "ratio"),
        (("--ratio", "many"), "--ratio"),
        (("--alpha", "0"), "alpha"),
        (("--alpha", "-2"), "alpha"),
        (("--members", "0"), "members"),
        (("--epochs", "0"), "epochs"),
        (("--batch-size", "1"), "batch_size"),
        (("--learning-rate", "0"), "learning_rate"),
        (("--rows", "3"), "rows"),
        (("--rows", "900"), "rows"),
        (("--engine", "warp"), "engine"),
        (("--data", "digts"), "'digits'"),
        (("--data", "nowhere.csv"), "nowhere.csv does not exist"),
        (("--method", "mixupmp"), "'mixup-mp'"),
        (("--method", "deep-ensemble", "--ratio", "1"), "ratio"),
        (("--network", "cn"), "'cnn'"),
        (("--network", "wrn-29-10"), "depth"),
        (("--data", "clusters", "--network", "cnn"), "'mlp'"),
        (("--config", "nowhere.toml"), "nowhere.toml"),
        (("--resume", "nowhere"), "nowhere"),
    ],
)
def test_a_bad_argument_is_named(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    given = [word for word in ("fit", "--epochs", "1", "--members", "1") if words[0] != "--resume" or word == "fit"]
    refused(mixupmp(*given, *words), said)
    assert list(tmp_path.iterdir()) == []


def test_missing_data_says_where_it_looked_and_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXUPMP_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    refused(mixupmp(*FIT, "--data", "cifar10"), str(tmp_path / "root"), "--download", "--data-root")


def npz(**arrays: object) -> Path:
    np.savez("bad.npz", **arrays)  # type: ignore[arg-type]
    return Path("bad.npz")


GOOD = np.arange(40.0).reshape(20, 2)
LABELS = np.arange(20) % 2


@pytest.mark.parametrize(
    ("inputs", "labels", "said"),
    [
        (np.where(GOOD == 7, np.nan, GOOD), LABELS, "NaN or infinity (first in row 3)"),
        (np.where(GOOD == 7, np.inf, GOOD), LABELS, "NaN or infinity (first in row 3)"),
        (GOOD, LABELS * 0, "one class"),
        (GOOD[:0], LABELS[:0], "at least one row"),
        (GOOD, LABELS[:-1], "20 rows of inputs but 19 labels"),
        (GOOD, LABELS + 0.5, "0.5"),
        (np.array([["a", "b"]] * 20), LABELS, "not numbers"),
    ],
)
def test_bad_rows_are_named(inputs: np.ndarray, labels: np.ndarray, said: str, tmp_path: Path) -> None:
    refused(mixupmp(*FIT, "--data", npz(X=inputs, y=labels)), *([] if "one class" in said else [said]), "bad.npz")
    assert not (tmp_path / "new").exists()


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("executed",)


def test_a_pickle_with_a_foreign_class_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    (folder / "batches.meta").write_bytes(pickle.dumps(Bomb()))
    refused(mixupmp(*FIT, "--data", "cifar10", "--data-root", tmp_path / "root"), "mkdir")
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "new").exists()


def test_a_truncated_idx_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "idx"
    folder.mkdir()
    for part, rows in (("train", 6), ("t10k", 4)):
        images = struct.pack(">IIII", 0x803, rows, 8, 8) + bytes(rows * 64 - (5 if part == "train" else 0))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        labels = struct.pack(">II", 0x801, rows) + bytes(k % 2 for k in range(rows))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    refused(mixupmp(*FIT, "--data", folder), "train-images-idx3-ubyte")
    assert not (tmp_path / "new").exists()


def test_nothing_is_written_over(run: Path, tmp_path: Path) -> None:
    before = snapshot(run)
    refused(mixupmp("fit", "--epochs", "1", "--out", run), "holds a run already")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    refused(mixupmp("fit", "--epochs", "1", "--out", "mine"), "thesis.tex")
    (tmp_path / "out.csv").write_text("mine")
    refused(mixupmp("predict", run, "--data", "digits", "--out", "out.csv"), "out.csv", "new file")
    assert snapshot(run) == before
    assert (tmp_path / "out.csv").read_text() == "mine"


@pytest.mark.parametrize("command", [("evaluate",), ("predict", "--data", "digits")])
@pytest.mark.parametrize("file", ["members/001.safetensors", "config.json", "README.md"])
def test_a_flipped_bit_in_a_run_is_named(run: Path, file: str, command: tuple[str, ...]) -> None:
    content = bytearray((run / file).read_bytes())
    content[len(content) // 2] ^= 4
    (run / file).write_bytes(content)
    refused(mixupmp(command[0], run, *command[1:]), file, "damaged")


def test_a_flipped_bit_is_found_by_resume_too(run: Path) -> None:
    content = bytearray((run / "members" / "000.safetensors").read_bytes())
    content[-3] ^= 1
    (run / "members" / "000.safetensors").write_bytes(content)
    refused(mixupmp("fit", "--resume", run), "000.safetensors is damaged")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[recipe]\nepoch = 3", "'epochs'"),
        ("recipes = 3", "'recipe'"),
        ("[method]\nratoi = 3", "'ratio'"),
        ("recipe = 3", "[recipe]"),
        ("[recipe]\nepochs = 'ten'", "recipe.epochs must be a whole number"),
        ("[recipe]\nepochs = 2.5", "recipe.epochs must be a whole number"),
        ("[recipe]\nmilestones = ['a']", "recipe.milestones must be a whole number"),
        ("[recipe]\nschedule = 'spiral'", "recipe.schedule must be one of constant"),
        ("[network]\nname = 'mlp'\nhidden = 8", "network.hidden must be a list"),
        ("[network]\nname = 'cnn'\nhidden = [8]", "network.hidden"),
        ("[method]\nkernel = ['crop']", "'pad-crop'"),
        ("[data]\nlabel = 'y'", "data.label"),
        ("[checkpoints]\nseconds = 0", "seconds"),
        ("seed = 'x'", "seed must be a whole number"),
        ("recipe = [", "not TOML"),
    ],
)
def test_a_bad_configuration_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    refused(mixupmp("fit", "--config", "bad.toml", "--out", "new"), said)
    assert not (tmp_path / "new").exists()


def test_bad_arguments_of_evaluate_and_predict(run: Path, tmp_path: Path) -> None:
    refused(mixupmp("evaluate", "nowhere"), "nowhere is not a folder")
    refused(mixupmp("evaluate", run, "--corruption", "fogg"), "'fog'")
    refused(mixupmp("evaluate", run, "--corruption", "fog", "--severity", "6"), "severity")
    refused(mixupmp("evaluate", run, "--severity", "3"), "--corruption")
    refused(mixupmp("evaluate", run, "--bins", "0"), "bins")
    refused(mixupmp("evaluate", run, "--data", "clusters"), "inputs")
    refused(mixupmp("predict", run), "--input")
    refused(mixupmp("predict", run, "--input", "nowhere.npy"), "nowhere.npy does not exist")
    refused(mixupmp("predict", run, "--data", "digits", "--out", "x.txt"), "x.txt")
    refused(mixupmp("predict", run, "--data", "digits", "--out", "no/such/x.npy"), "folder that exists")
    refused(mixupmp("demo", "--seeds", "0"), "--seeds")
    refused(mixupmp("demo", "--rows", "5000"), "rows")
    refused(mixupmp("nonsense"), "nonsense")
    refused(mixupmp("evaluate"), "RUN")


def test_inputs_that_do_not_fit_the_run_are_named(run: Path, tmp_path: Path) -> None:
    np.save("flat.npy", np.zeros((3, 64)))
    refused(mixupmp("predict", run, "--input", "flat.npy"), "(3, 64)", "(rows, 1, 8, 8)")
    np.save("nan.npy", np.full((2, 1, 8, 8), np.nan))
    refused(mixupmp("predict", run, "--input", "nan.npy"), "NaN or infinity")
    np.save("none.npy", np.zeros((0, 1, 8, 8)))
    refused(mixupmp("predict", run, "--input", "none.npy"), "empty")
    np.save("object.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    refused(mixupmp("predict", run, "--input", "object.npy"), "object.npy cannot be read")
    assert not (tmp_path / "executed").exists()
    (tmp_path / "text.csv").write_text("a,b\n1,x\n")
    refused(mixupmp("predict", run, "--input", "text.csv"), "text.csv cannot be read")
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    refused(mixupmp("predict", run, "--input", "broken.png"), "broken.png cannot be read as an image")


def test_the_real_process_complains_in_one_line(tmp_path: Path) -> None:
    said = mixupmp_process("fit", "--ratio", "-1", cwd=tmp_path)
    refused(said, "ratio must be")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
