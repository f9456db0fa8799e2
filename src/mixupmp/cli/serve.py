"""`mixupmp serve`: a run behind HTTP."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixupmp.cli.options import OTHER_DATA, DataRoot, FalseAlarm, Run
from mixupmp.cli.output import remark
from mixupmp.cli.playground import Host, Port, Token
from mixupmp.core.errors import MixupMPError

if TYPE_CHECKING:
    from mixupmp.core.posterior import Posterior
    from mixupmp.core.rows import Rows

_DATA = f"Held-out rows for prediction sets and abstention: {OTHER_DATA}. \\[the test rows of the run's data]"


class Runtime(StrEnum):
    """What computes the members' outputs."""

    torch = "torch"
    onnx = "onnx"


def command(
    run: Run,
    host: Host = "127.0.0.1",
    port: Port = 8713,
    token: Token = None,
    runtime: Annotated[Runtime, typer.Option(help="What computes the answers.")] = Runtime.torch,
    data: Annotated[str | None, typer.Option(help=_DATA)] = None,
    data_root: DataRoot = None,
    coverage: Annotated[float, typer.Option(help="The coverage of the prediction sets.")] = 0.9,
    risk: Annotated[float, typer.Option(help="The share of accepted answers that may be wrong.")] = 0.05,
    false_alarm: FalseAlarm = 0.05,
    most_rows: Annotated[int, typer.Option(help="The most rows in a request.")] = 1024,
    most_bytes: Annotated[int, typer.Option(help="The most bytes in a request.")] = 8 * 2**20,
    seconds: Annotated[float, typer.Option(help="The most seconds until a request is answered.")] = 10.0,
    rate: Annotated[float | None, typer.Option(help="Requests a second from one address. \\[unlimited]")] = None,
) -> None:
    """Serve a run: POST /predict takes JSON, .npy or an image; the page at / shows the members vote.

    Concurrent requests are computed together. On SIGTERM, it finishes the requests it has and exits with code 0.

    [bold]Examples[/bold]

        mixupmp serve runs/first
        curl localhost:8713/predict -H 'Content-Type: image/png' --data-binary @photo.png
        MIXUPMP_TOKEN=... mixupmp serve runs/first --host 0.0.0.0 --runtime onnx
    """
    import torch

    from mixupmp.decide.calibrators import calibrator_of
    from mixupmp.decide.detect import read_detector
    from mixupmp.store.folder import RunFolder
    from mixupmp.store.load import load
    from mixupmp.store.manifest import Sealed
    from mixupmp.web.security import check_exposure
    from mixupmp.web.serve import Limits, serve_model, served_model

    check_exposure(host, token, rate)
    limits = Limits(
        rows=most_rows,
        waiting=max(Limits.waiting, most_rows),
        body=most_bytes,
        bodies=max(Limits.bodies, most_bytes),
        seconds=seconds,
    )
    torch.set_num_threads(1)
    posterior = load(run)
    remark(f"preparing {run}")
    model = served_model(
        posterior,
        _held_out(run, posterior, data, data_root),
        runtime=runtime.value,
        coverage=coverage,
        risk=risk,
        title=run.absolute().name,
        calibrator=calibrator_of(RunFolder(run).config()),
        detector=read_detector(Sealed(run)),
        false_alarm=false_alarm,
    )
    remark("guarantee: {0.guarantee}; flags: {0.flags}".format(model.rule.guarantee()))
    serve_model(model, host=host, port=port, token=token, limits=limits, rate=rate, ready=_print_address)


def _held_out(run: Path, posterior: Posterior, name: str | None, root: str | None) -> Rows | None:
    """The rows that sets and abstention rest on; without the run's data, it is served without a guarantee."""
    from mixupmp.cli.scoring import dataset_for, labels_for

    try:
        dataset = dataset_for(run, name, root, posterior.task.encoder)
        return labels_for(posterior.task, dataset, dataset.test)
    except MixupMPError as error:
        if name is not None:
            raise
        remark(f"note: no held-out rows ({error})")
        return None


def _print_address(address: str) -> None:
    remark(f"Serving at {address}   (its API: {address}docs)")
