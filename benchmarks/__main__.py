"""`make bench`: every row is a ratio measured in one run, interleaved, best of several; also written as JSON.

Each row of the JSON says which run measured it. With `--only`, the file's other rows stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import streaming, tables, training, using
from benchmarks.timing import Row
from mixupmp import __version__

ALL = {
    "cnn-epoch": training.cnn_epoch,
    "clusters": training.clusters,
    "wide-resnet": training.wide_resnet,
    "dropout": training.dropout,
    "augmentation": using.augmentation,
    "prediction": using.prediction,
    "metrics": using.metrics,
    "more-members": training.more_members,
    "frozen-body": training.frozen_body,
    "checkpointing": training.checkpointing,
    "streamed": streaming.streamed,
    "default-fit": tables.default_fit,
    "shared-members": tables.shared_members,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller work, under two minutes; noisier")
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL), help="some of the rows")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.json"), help="where the JSON goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    table = Table("work", "against", "ours", "theirs", "ratio", "goal", title="measured in one run, best of several")
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ) as progress:  # fmt: skip
        task = progress.add_task("benchmarks", total=len(options.only))
        for name in options.only:
            progress.update(task, description=name)
            for row in ALL[name](options.quick):
                _add(table, row)
                rows.append({"name": name, **_report(row), "run": _run(name, options)})
            progress.advance(task)
    Console().print(table)
    some = set(options.only) != set(ALL) and options.out.exists()
    others = json.loads(options.out.read_text())["rows"] if some else []
    options.out.write_text(json.dumps({"rows": merged(others, rows)}, indent=2) + "\n")


def merged(others: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows in the order of `ALL`, those that are measured again in place of the old ones."""
    again = {row["name"] for row in rows}
    kept = [row for row in others if row["name"] not in again]
    return sorted(kept + rows, key=lambda row: list(ALL).index(row["name"]))


def _add(table: Table, row: Row) -> None:
    mark = "[green]" if row.reached else "[red]"
    unit = (lambda v: f"{v / 1e9:.0f} GFLOP/s") if "FLOP/s" in row.work else _seconds
    ours, theirs = (row.theirs, row.ours) if "FLOP/s" in row.work else (row.ours, row.theirs)
    ratio = f"{row.ratio:.0%}" if "FLOP/s" in row.work else f"{row.ratio:.2f}x"
    table.add_row(row.work, row.against, unit(ours), unit(theirs), f"{mark}{ratio}", row.goal)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.2f} ms"


def _report(row: Row) -> dict[str, Any]:
    return {**vars(row), "ratio": row.ratio, "reached": row.reached}


def _run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """When, where and with what a row was measured; the load of the machine is that at its end."""
    only = "" if set(options.only) == set(ALL) else f" --only {name}"
    return {
        "command": f"python -m benchmarks{only}{' --quick' if options.quick else ''}",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()},
        "versions": {"mixupmp": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


if __name__ == "__main__":
    main()
