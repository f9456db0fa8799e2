"""The server as users start it: a process of its own, asked over real connections and told to end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest
from commands import mixupmp

from mixupmp import MixupMPClassifier, Recipe, load, save
from mixupmp.cli import main
from mixupmp.data import load as load_dataset

from .load import apply, request_for


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "run"
    words = ["fit", "--out", str(folder), "--rows", "100", "--epochs", "2", "--members", "4", "--network", "cnn"]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0
    return folder


@contextmanager
def process(run: Path, *options: str, files: int | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`mixupmp serve` on a free port, and its address."""
    words = [sys.executable, "-m", "mixupmp", "serve", str(run), "--port", "0", *options]
    if files is not None:  # the most it may have open
        words = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *words]
    started = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert started.stderr is not None
    try:
        said = ""
        for line in started.stderr:
            said += line
            if found := re.search(r"Serving at (http\S+)", line):
                break
        else:
            raise AssertionError(f"it did not start: {said}")
        yield started, found[1]
    finally:
        started.kill()
        started.wait(20)
        started.stderr.close()


@pytest.fixture(scope="module")
def running(run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """One server for the tests that leave it as it was: to start a process takes seconds."""
    with process(run) as started:
        yield started


def predicted(run: Path, inputs: Path, out: Path) -> np.ndarray:
    with pytest.raises(SystemExit) as left:
        main(["predict", str(run), "--input", str(inputs), "--out", str(out)])
    assert left.value.code == 0
    return np.load(out)["probabilities"]


@pytest.mark.parametrize("runtime", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def test_it_answers_what_predict_answers_and_drains_on_sigterm(run: Path, tmp_path: Path, runtime: str) -> None:
    inputs = load_dataset("digits").test.inputs[:37]
    np.save(tmp_path / "rows.npy", inputs.numpy())
    expected = predicted(run, tmp_path / "rows.npy", tmp_path / "out.npz")
    with process(run, "--runtime", runtime) as (server, address), httpx.Client(base_url=address, timeout=30) as client:
        binary = {"content-type": "application/octet-stream"}
        told = client.post("/predict", content=(tmp_path / "rows.npy").read_bytes(), headers=binary).json()
        found = np.array([row["probabilities"] for row in told["predictions"]])
        assert np.abs(found - expected).max() < 1e-6
        single = client.post("/predict", json={"inputs": inputs[5].tolist()}).json()["predictions"][0]
        assert np.abs(np.array(single["probabilities"]) - expected[5]).max() < 1e-6
        _drains(server, address)


def _drains(server: subprocess.Popen[str], address: str) -> None:
    """Whatever was asked before SIGTERM is answered; afterwards nobody is."""
    # A body of which a part is held back: the request is under way when the signal comes.
    held = threading.Event()
    sent = threading.Event()
    body = json.dumps({"inputs": load_dataset("digits").test.inputs[0].tolist()}).encode()

    def slowly() -> Iterator[bytes]:
        yield body[:10]
        sent.set()
        held.wait(20)
        yield body[10:]

    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(
            httpx.post(address + "predict", content=slowly(), headers={"content-type": "application/json"}, timeout=30)
            .status_code
        )
    )  # fmt: skip
    asking.start()
    assert sent.wait(20)
    threading.Event().wait(0.3)
    server.send_signal(signal.SIGTERM)
    threading.Event().wait(0.5)
    held.set()
    asking.join(30)
    assert answers == [200]
    assert server.wait(30) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(address + "healthz", timeout=2)


def test_a_crowd_is_answered_in_full(running: tuple[subprocess.Popen[str], str]) -> None:
    """A short form of the load test: 64 connections for two seconds."""
    server, address = running
    crowd = asyncio.run(apply(address, request_for(address, [1, 8, 8]), 64, 2))
    assert crowd.broken == 0
    assert set(crowd.statuses) <= {200, 503}
    assert crowd.statuses[200] > 64
    assert server.poll() is None


def detected(run: Path, *options: object) -> dict[str, Any]:
    said = mixupmp("detect", run, *options, "--json")
    assert said.code == 0, said
    return cast(dict[str, Any], said.json)


def flags_of(address: str, rows: Path) -> dict[str, Any]:
    """What the server says of the rows in this file, all at once and a row at a time."""
    binary = {"content-type": "application/octet-stream"}
    with httpx.Client(base_url=address, timeout=30) as client:
        told = client.post("/predict", content=rows.read_bytes(), headers=binary).json()["predictions"]
        for row, inputs in enumerate(np.load(rows)[:3]):
            (alone,) = client.post("/predict", json={"inputs": inputs.tolist()}).json()["predictions"]
            assert alone["score"] == pytest.approx(told[row]["score"], rel=1e-6, abs=1e-6)
        return {**client.get("/metadata").json()["decisions"], "rows": told}


def assert_same_flags(served: dict[str, Any], expected: dict[str, Any]) -> None:
    assert served["score"] == expected["score"]
    assert served["score_threshold"] == expected["threshold"]
    for ours, theirs in zip(served["rows"], expected["detected"], strict=True):
        assert ours["score"] == pytest.approx(theirs["score"], rel=1e-6, abs=1e-6)
        assert (ours["p_value"], ours["flagged"]) == (theirs["p_value"], theirs["flagged"])


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty digits, and twenty pictures of noise."""
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    noise = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    np.save(path, np.concatenate([load_dataset("digits").test.inputs[:20].numpy(), noise]))
    return path


@pytest.mark.parametrize("score", ["auto", "energy", "mutual_information"])
def test_flags_go_by_the_score_and_the_rows_that_detect_takes(run: Path, strange: Path, score: str) -> None:
    expected = detected(run, "--input", strange, "--score", score, "--false-alarm", "0.2")
    with process(run, "--score", score, "--false-alarm", "0.2") as (_, address):
        found = flags_of(address, strange)
    assert_same_flags(found, expected)
    assert found["flags"].endswith(f"by {expected['score']}")


@pytest.mark.parametrize("score", ["nearest", "mahalanobis"])
def test_distances_of_features_are_compared_with_rows_that_are_given(run: Path, strange: Path, score: str) -> None:
    expected = detected(run, "--input", strange, "--score", score, "--held-out", "digits")
    with process(run, "--score", score, "--data", "digits") as (_, address):
        found = flags_of(address, strange)
    assert_same_flags(found, expected)
    assert found["flags"] == f"at most 5.0% of rows like the 898 held-out ones are flagged, by {score}"
    assert sum(row["flagged"] for row in found["rows"][20:]) > 10


def test_a_table_is_scored_to_the_last_bit_as_detect_does(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(120, 4)).astype(np.float32)
    model = MixupMPClassifier(members=2, ratio=1.0, alpha=1.0, network="mlp", recipe=Recipe(epochs=3))
    model.fit(rows[60:], rows[60:, 0] > 0).calibrate_on(rows[:60], rows[:60, 0] > 0)
    model.save(tmp_path / "model")
    np.save(tmp_path / "rows.npy", np.concatenate([rows[:10], np.full((1, 4), 1e4, np.float32)]))
    for score in ("max_probability", "nearest"):
        expected = detected(tmp_path / "model", "--input", tmp_path / "rows.npy", "--score", score)
        with process(tmp_path / "model", "--score", score) as (_, address):
            found = flags_of(address, tmp_path / "rows.npy")
        assert_same_flags(found, expected)
        if score == "max_probability":
            ours = [row["score"] for row in found["rows"]]
            assert ours == [row["score"] for row in expected["detected"]]


def test_a_score_that_the_run_does_not_hold_is_refused_at_the_start(run: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"it did not start: (?s:.*)--score must be one that"),
        process(run, "--score", "nearest"),
    ):
        pass
    save(load(run), tmp_path / "bare")
    for folder, options, said in (
        (run, ("--score", "nerest"), "nearest"),
        (run, ("--score", "nearest"), "Or give rows that it was not trained on, --data DATA"),
        (tmp_path / "bare", ("--score", "energy"), "give some that it was not trained on, --data DATA"),
        (tmp_path / "bare", ("--score", "nearest", "--data", "digits"), "Take entropy or energy"),
    ):
        ended = mixupmp("serve", folder, "--port", "0", *options)
        assert ended.code == 2, ended
        assert said in " ".join(ended.err.split())


def memory(server: subprocess.Popen[str]) -> float:
    """Resident megabytes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_sixty_four_connections_for_thirty_seconds(run: Path) -> None:
    with process(run) as (server, address):
        request = request_for(address, [1, 8, 8])
        asyncio.run(apply(address, request, 64, 3))  # memory pools fill at first
        before = memory(server)
        alone = asyncio.run(apply(address, request, 1, 10))
        crowd = asyncio.run(apply(address, request, 64, 30))
        after = memory(server)
        print(f"\nalone: {alone}\ncrowd: {crowd}\n{crowd.rate / alone.rate:.2f} times; {before:.0f} -> {after:.0f} MB")
        assert crowd.broken == alone.broken == 0
        assert set(crowd.statuses) <= {200, 503}
        assert crowd.rate > alone.rate  # by how much depends on the machine (docs/performance.md)
        assert after - before < 20


def test_a_port_in_use_and_an_open_address_without_a_token_are_refused(
    run: Path, running: tuple[subprocess.Popen[str], str]
) -> None:
    port = running[1].rsplit(":", 1)[1].rstrip("/")
    for options in (("--port", port), ("--host", "0.0.0.0")):
        with pytest.raises(SystemExit) as left:
            main(["serve", str(run), *options])
        assert left.value.code == 2
