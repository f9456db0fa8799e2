"""A fit seen while it happens: three methods are all a logger needs.

`TensorBoardLogger` is here (extra `tensorboard`). For Weights & Biases or MLflow the three methods are one line each;
the guide "Choose r" (docs/guides/choose-r.md) shows both:

    class WandbLogger:
        def start(self, settings): self.run = wandb.init(config=settings)
        def log(self, values, step): self.run.log(values)  # its own steps may never go back, and members' do
        def finish(self, results): self.run.summary.update(results); self.run.finish()
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import torch

from mixupmp.core.errors import extra
from mixupmp.core.foreign import Json
from mixupmp.core.member_summary import EpochRecord, MemberSummary
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.metrics import evaluate
from mixupmp.train.progress import Callback


class Logger(Protocol):
    """Where the numbers of a fit go."""

    def start(self, settings: dict[str, Json]) -> None:
        """A fit begins; its plan as nested plain values."""
        ...

    def log(self, values: dict[str, float], step: int) -> None:
        """Numbers by name at a step, while it happens.

        "member 0/loss" and, after each epoch, "member 0/validation nll" and the like by training step, and
        "posterior/disagreement in training" as soon as two members have passed it; at the end "posterior/ece" and the
        like by number of members.
        """
        ...

    def finish(self, results: dict[str, float]) -> None:
        """The fit is over; its last numbers."""
        ...


class LoggingCallback(Callback):
    """Passes what a fit reports to a logger, and on to another callback."""

    def __init__(self, logger: Logger, callback: Callback) -> None:
        self.logger, self.callback = logger, callback
        self.votes: dict[int, list[list[int]]] = {}  # of the members that have passed a step

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        if isfinite(loss):
            self.logger.log({f"member {member}/loss": loss}, step)
        self.callback.on_step(member, step, total, loss)

    def on_epoch_end(self, record: EpochRecord) -> None:
        values = {
            f"member {record['member']}/{_NAMED.get(key, key.replace('_', ' '))}": float(value)
            for key, value in record.items()
            if key not in ("member", "epoch", "seconds", "step", "votes") and value is not None
        }
        votes = self.votes.setdefault(record["step"], [])
        votes += [record["votes"]] if record.get("votes") else []
        if len(votes) > 1:
            values["posterior/disagreement in training"] = disagreement(votes)
        self.logger.log(values, record["step"])
        self.callback.on_epoch_end(record)

    def on_member_end(self, summary: MemberSummary) -> None:
        self.callback.on_member_end(summary)

    def on_message(self, text: str) -> None:
        self.callback.on_message(text)

    def should_stop(self) -> bool:
        return self.callback.should_stop()


_NAMED = {"loss": "epoch loss"}


def disagreement(votes: list[list[int]]) -> float:
    """The share of validation rows on which two members, taken at random, predict different classes."""
    pairs = list(combinations(torch.tensor(votes), 2))
    return float(torch.stack([(one != other).float().mean() for one, other in pairs]).mean())


def logging_to(logger: Logger | None, plan: Plan, callback: Callback | None = None) -> Callback:
    """The callback for `fit(progress=...)`; call `log_posterior` when it has returned."""
    if logger is None:
        return callback or Callback()
    logger.start(plan.document())
    return LoggingCallback(logger, callback or Callback())


def log_posterior(logger: Logger | None, posterior: Posterior, validation: Rows | None) -> None:
    """Validation NLL, ECE and disagreement (mutual information) of the first 1, 2, .. members, and the end.

    A curve that still falls at its end asks for more members.
    """
    if logger is None:
        return
    results: dict[str, float] = {"posterior/members": float(posterior.members)}
    if validation is not None and posterior.task.likelihood.classes:
        probabilities = posterior.member_probabilities(validation.inputs).cpu()
        for members in range(1, posterior.members + 1):
            found = evaluate(probabilities[:members], validation.labels)
            names = {"nll": "nll", "ece": "ece", "acc": "accuracy", "mutual_information": "disagreement"}
            values = {f"posterior/{name}": float(found[key] or 0.0) for key, name in names.items()}
            logger.log(values, members)
            results |= values
    logger.finish(results)


class TensorBoardLogger:
    """Writes event files for TensorBoard: `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.writer: Any = None

    def start(self, settings: dict[str, Json]) -> None:
        with extra("tensorboard", "tensorboard", "Logging to TensorBoard"):
            from torch.utils.tensorboard import SummaryWriter
        self.writer = SummaryWriter(str(self.folder))
        self.writer.add_text("settings", "\n".join(f"    {line}" for line in _lines(settings)))

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name.replace(" ", "_"), value, step)

    def finish(self, results: dict[str, float]) -> None:
        self.writer.close()
        self.writer = None  # an open file would keep a fitted estimator from being pickled


def _lines(settings: dict[str, Json], prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}: {value}"
