"""`mixupmp corrupt`: a corrupted copy of a test set, and a contact sheet of all corruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixupmp.cli.options import DataRoot, Json
from mixupmp.cli.output import progress_of, show
from mixupmp.core.errors import InvalidArgument

SHOWN = 3  # images in a cell of the contact sheet


def command(
    data: Annotated[str, typer.Option(help="A dataset of images, by name or path.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The folder for the copy.")] = None,
    sheet: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw all 19 x 5 to .png, .pdf or .svg.")] = None,
    data_root: DataRoot = None,
    size: Annotated[int | None, typer.Option(help="Resize the images of a folder to this side.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the random corruptions.")] = 0,
    workers: Annotated[int | None, typer.Option(help="The number of threads. \\[one for each core]")] = None,
    as_json: Json = False,
) -> None:
    """Corrupt a test set as CIFAR-C does: 19 corruptions at 5 severities.

    The copy has the published layout: one .npy for each corruption, with the severities one after another, and
    labels.npy. Written to <data root>/<name>-c, it is found by evaluate --corruption and by reproduce. An interrupted
    copy is continued.

    [bold]Examples[/bold]

        mixupmp corrupt --data cifar10 --out data/cifar10-c
        mixupmp corrupt --data digits --sheet corruptions.png
    """
    from mixupmp.core.threads import cores
    from mixupmp.data import CORRUPTIONS, contact_sheet, write_corrupted
    from mixupmp.train.settings import DataSettings, load_data

    if out is None and sheet is None:
        raise InvalidArgument("--out", None, "a folder for the copy, unless only --sheet FILE is wanted")
    dataset = load_data(DataSettings(name=data, root=data_root, size=size))
    result: dict[str, object] = {"data": dataset.name, "rows": len(dataset.test), "corruptions": list(CORRUPTIONS)}
    lines = []
    if out is not None:
        with progress_of("corrupting", len(CORRUPTIONS)) as one_more:
            write_corrupted(
                dataset, out, seed, cores() if workers is None else workers, written=lambda name: one_more()
            )
        result["written"] = str(out)
        lines.append(f"{len(dataset.test):,} images under {len(CORRUPTIONS)} corruptions at 5 severities: {out}/")
    if sheet is not None:
        contact_sheet(dataset.test.inputs[:SHOWN], sheet, seed)
        result["sheet"] = str(sheet)
        lines.append(f"All corruptions of {min(SHOWN, len(dataset.test))} images: {sheet}")
    show(as_json, result, lines)
