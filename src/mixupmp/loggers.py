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
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mixupmp.data.rows import Rows
from mixupmp.errors import MissingExtra
from mixupmp.fit.job import Progress, Quiet
from mixupmp.fit.plan import Plan
from mixupmp.loss import Categorical
from mixupmp.metrics import evaluate
from mixupmp.posterior import Posterior, Summary


class Logger(Protocol):
    """Where the numbers of a fit go."""

    def start(self, settings: dict[str, Any]) -> None:
        """A fit begins; its plan as nested plain values."""
        ...

    def log(self, values: dict[str, float], step: int) -> None:
        """Numbers by name at a step: "member 0/loss" by training step, "posterior/ece" by number of members."""
        ...

    def finish(self, results: dict[str, float]) -> None:
        """The fit is over; its last numbers."""
        ...


class LoggingProgress:
    """Hands what a fit shows of itself to a logger: losses as it goes, each member's epochs when it is done."""

    def __init__(self, logger: Logger, steps_an_epoch: int) -> None:
        self.logger, self.steps_an_epoch = logger, steps_an_epoch

    def moved(self, member: int, step: int, total: int, loss: float) -> None:
        self.logger.log({f"member {member}/loss": loss}, step)

    def finished(self, summary: Summary) -> None:
        for record in summary.history:
            named = {"loss": "epoch loss"}
            values = {
                f"member {summary.member}/{named.get(key, key.replace('_', ' '))}": float(value)
                for key, value in record.items()
                if key not in ("member", "epoch", "seconds") and value is not None
            }
            self.logger.log(values, record["epoch"] * self.steps_an_epoch)

    def say(self, text: str) -> None: ...


@contextmanager
def logging_to(logger: Logger | None, plan: Plan) -> Iterator[Progress]:
    """The progress to give to `fit`; call `log_posterior` when it has returned."""
    if logger is None:
        yield Quiet()
        return
    size = plan.recipe.batch_size or len(plan.train)  # type: ignore[arg-type]
    logger.start(plan.describe())
    yield LoggingProgress(logger, max(1, -(-len(plan.train) // size)))  # type: ignore[arg-type]


def log_posterior(logger: Logger | None, posterior: Posterior, validation: Rows | None) -> None:
    """Validation NLL, ECE and disagreement (mutual information) of the first 1, 2, .. members, and the end.

    A curve that still falls at its end asks for more members.
    """
    if logger is None:
        return
    results: dict[str, float] = {"posterior/members": float(posterior.members)}
    if validation is not None and isinstance(posterior.task.likelihood, Categorical):
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

    def start(self, settings: dict[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", "tensorboard", "Logging to TensorBoard") from error
        self.writer = SummaryWriter(str(self.folder))
        self.writer.add_text("settings", "\n".join(f"    {line}" for line in _lines(settings)))

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name.replace(" ", "_"), value, step)

    def finish(self, results: dict[str, float]) -> None:
        self.writer.close()
        self.writer = None  # an open file would keep a fitted estimator from being pickled


def _lines(settings: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}: {value}"
