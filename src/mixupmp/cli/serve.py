"""`mixupmp serve`: a run behind HTTP."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixupmp.cli.catalogs import names
from mixupmp.cli.options import OTHER_DATA, DataRoot, FalseAlarm, Run
from mixupmp.cli.output import remark
from mixupmp.cli.playground import Host, Port, Token
from mixupmp.core.errors import BadRun, InvalidArgument, MixupMPError, check_known

if TYPE_CHECKING:
    from mixupmp.core.posterior import Posterior
    from mixupmp.core.rows import Rows
    from mixupmp.decide.detect import Detector

_DATA = f"Held-out rows for prediction sets, abstention and flags: {OTHER_DATA}. \\[the test rows of the run's data]"
_SCORE = (
    f"What flags go by, as in detect: {names('mixupmp.decide.detect.SCORES')}, or auto; compared with the rows that "
    "the fit held out, or with --data. \\[entropy, compared with the rows for prediction sets]"
)


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
    score: Annotated[str | None, typer.Option(help=_SCORE)] = None,
    most_rows: Annotated[int, typer.Option(help="The most rows in a request.")] = 1024,
    most_bytes: Annotated[int, typer.Option(help="The most bytes in a request.")] = 8 * 2**20,
    seconds: Annotated[float, typer.Option(help="The most seconds until a request is answered.")] = 10.0,
    rate: Annotated[float | None, typer.Option(help="Requests a second from one address. \\[unlimited]")] = None,
) -> None:
    """Serve a run: POST /predict takes JSON, .npy or an image; the page at / shows the members vote.

    Concurrent requests are computed together. On SIGTERM, it finishes the requests it has and exits with code 0.

    [bold]Examples[/bold]

        mixupmp serve runs/first
        mixupmp serve runs/first --score nearest --data more-rows.npz
        curl localhost:8713/predict -H 'Content-Type: image/png' --data-binary @photo.png
        MIXUPMP_TOKEN=... mixupmp serve runs/first --host 0.0.0.0 --runtime onnx
    """
    import torch

    from mixupmp.decide.calibrators import calibrator_of
    from mixupmp.store.folder import RunFolder
    from mixupmp.store.load import load
    from mixupmp.web.security import check_exposure
    from mixupmp.web.serve import Limits, serve_model, served_model

    check_exposure(host, token, rate)
    limits = Limits(body=most_bytes, bodies=max(Limits.bodies, most_bytes), seconds=seconds)
    limits = replace(limits, rows=most_rows, waiting=max(Limits.waiting, most_rows))
    torch.set_num_threads(1)
    posterior = load(run)
    remark(f"preparing {run}")
    held_out = _held_out(run, posterior, data, data_root)
    model = served_model(
        posterior,
        held_out,
        runtime=runtime.value,
        coverage=coverage,
        risk=risk,
        title=run.absolute().name,
        calibrator=calibrator_of(RunFolder(run).config()),
        detector=_detector(run, posterior, score, held_out if data is not None else None),
        false_alarm=false_alarm,
        score=score,
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


def _detector(run: Path, posterior: Posterior, score: str | None, given: Rows | None) -> Detector | None:
    """What `mixupmp detect` compares a score with: the rows that the fit held out, or --data as its --held-out."""
    from mixupmp.decide.detect import AUTO, FEATURE_SCORES, SCORES, fit_detector, read_detector
    from mixupmp.store.manifest import Sealed

    kept = read_detector(Sealed(run))
    if score is None:
        return kept
    check_known("score", score, (AUTO, *SCORES))
    reference = None if kept is None else kept.reference
    if score in FEATURE_SCORES and reference is None:
        must = f"a score that needs no features of training rows, which {run} does not hold"
        hint = (
            "Take entropy or energy; or fit it again by mixupmp fit, or save its estimator, with a linear last layer."
        )
        raise InvalidArgument("--score", score, must, hint)
    if given is not None:
        return fit_detector(posterior, given.inputs, reference)
    if kept is None or not kept.held_out:
        raise BadRun(f"{run} was fitted without held-out rows: give some that it was not trained on, --data DATA")
    if score not in (AUTO, *kept.held_out):
        must = f"one that {run} holds for the rows held out from its fit: {', '.join(kept.held_out)}"
        raise InvalidArgument("--score", score, must, "Or give rows that it was not trained on, --data DATA.")
    if kept.refitted:
        remark("note: members were fitted again after rows were held out: the rate is approximate without --data")
    return kept


def _print_address(address: str) -> None:
    remark(f"Serving at {address}   (its API: {address}docs)")
