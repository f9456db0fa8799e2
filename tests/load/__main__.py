"""Load a real server with Locust: 64 clients, slow and cancelling ones among them, and SIGTERM at the end.

Usage: python -m tests.load [--minutes 10] [--out load.md]

Every answer is compared with what the posterior and the run's calibrator say offline; the server's memory is sampled;
what it accepted before SIGTERM must be answered, and its exit code must be 0.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.web.serve.test_process import memory, process

from mixupmp import load
from mixupmp.cli import main as mixupmp
from mixupmp.data import load as load_dataset
from mixupmp.decide.calibrators import calibrator_of, pool
from mixupmp.store.folder import RunFolder
from mixupmp.web.png import png

FIT = ("--rows", "400", "--epochs", "8", "--members", "4", "--network", "cnn")
FLAT = 20.0  # megabytes between the first minute and the last
PACKAGES = ("locust", "gevent", "uvicorn", "fastapi", "torch", "numpy")


def fitted(folder: Path) -> Path:
    try:
        mixupmp(["fit", "--out", str(folder), *FIT])
    except SystemExit as left:
        assert left.code == 0  # noqa: PT017 - the command ends so
    return folder


def cases(run: Path) -> list[dict[str, Any]]:
    """Requests of each content type, with their answers."""
    inputs = load_dataset("digits").test.inputs[:240]
    expected = pool(load(run).member_probabilities(inputs), calibrator_of(RunFolder(run).config())).tolist()
    found = []
    for start in range(0, len(inputs), 6):
        rows, many = inputs[start], inputs[start : start + 5]
        array = io.BytesIO()
        np.save(array, many.numpy())
        bodies = (
            ("application/json", json.dumps({"inputs": rows.tolist()}).encode(), expected[start : start + 1]),
            ("application/octet-stream", array.getvalue(), expected[start : start + 5]),
            ("image/png", png(inputs[start + 5]), expected[start + 5 : start + 6]),
        )
        for kind, body, answers in bodies:
            found.append({"type": kind, "body": base64.b64encode(body).decode(), "probabilities": answers})
    return found


def measured(run: Path, scratch: Path, seconds: float) -> tuple[dict[str, Any], list[float], int, str]:
    """What the clients counted, the server's megabytes each second, its exit code, and what it wrote."""
    (scratch / "cases.json").write_text(json.dumps(cases(run)))
    with process(run) as (server, address):
        said: list[str] = []
        assert server.stderr is not None
        reading = threading.Thread(target=lambda: said.append(server.stderr.read()))
        reading.start()
        words = [address, str(scratch / "cases.json"), str(seconds), str(server.pid)]
        clients = subprocess.Popen(
            [sys.executable, "-m", "tests.load.users", *words], stdout=subprocess.PIPE, text=True
        )
        sizes, ends = [], time.monotonic() + seconds
        while time.monotonic() < ends and clients.poll() is None:
            sizes.append(memory(server))
            time.sleep(1)
        counted = json.loads(clients.communicate(timeout=120)[0])
        code = server.wait(60)
        reading.join(20)
    return counted, sizes, code, said[0]


def failures(counted: dict[str, Any], grown: float, code: int) -> list[str]:
    bad = {name: counted.get(name, 0) for name in ("wrong", "broken", "lost at SIGTERM", "users left")}
    bad |= {f"status {status}": n for status, n in counted["statuses"].items() if status not in ("200", "503")}
    found = [f"{name}: {count}" for name, count in bad.items() if count]
    found += [f"{name}: none" for name in ("plain", "slow", "cancelled") if not counted.get(name)]
    if grown > FLAT:
        found.append(f"memory grew by {grown:.0f} MB")
    return [*found, *([f"exit code {code}"] if code else [])]


def report(counted: dict[str, Any], sizes: Sequence[float], code: int, said: str, seconds: float) -> tuple[str, bool]:
    settled = sizes[5:] if len(sizes) > 15 else sizes  # pools fill at first
    part = min(60, max(1, len(settled) // 3))
    first, last = sum(settled[:part]) / part, sum(settled[-part:]) / part
    statuses = {int(status): count for status, count in counted["statuses"].items()}
    failed = sum(count for status, count in statuses.items() if status >= 500 and status != 503)
    faults = failures(counted, last - first, code)
    rows = {
        "seconds before SIGTERM, and clients": f"{seconds:.0f}, {counted['users']}",
        "requests answered": f"{sum(statuses.values()):,}",
        "of plain clients: requests a second": f"{counted['rate']:.0f}",
        "p50, p95, p99": ", ".join(f"{counted[name]:.0f} ms" for name in ("p50", "p95", "p99")),
        "of slow clients (bodies byte by byte)": f"{counted.get('slow', 0):,}, p50 {counted['slow p50']:,.0f} ms",
        "cancelled by the client before the answer": f"{counted.get('cancelled', 0):,}",
        "wrong answers": counted.get("wrong", 0),
        "5xx other than 503; 503": f"{failed}; {statuses.get(503, 0)}",
        "connections that broke before SIGTERM": counted.get("broken", 0),
        f"memory of the server, mean of the first and the last {part} s": f"{first:.1f} MB, {last:.1f} MB",
        "answered after SIGTERM": counted.get("answered after SIGTERM", 0),
        "accepted before SIGTERM and not answered": counted.get("lost at SIGTERM", 0),
        "exit code of the server; lines that it wrote to its log": f"{code}; {len(said.splitlines())}",
    }
    lines = ["| | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in rows.items())]
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    where = f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f} (5 minutes), Python"
    lines += ["", f"- Machine: {where} {platform.python_version()}.", f"- Versions: {versions}."]
    lines.append(f"- Ended with: {'; '.join(faults) or 'no fault'}.")
    return "\n".join(lines) + "\n", not faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        run, seconds = fitted(Path(name) / "run"), 60 * options.minutes
        counted, sizes, code, said = measured(run, Path(name), seconds)
    text, passed = report(counted, sizes, code, said, seconds)
    print(text)
    print(said[-3000:], file=sys.stderr)
    if options.out is not None:
        options.out.write_text(text)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
