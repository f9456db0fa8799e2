"""How one network is fitted: optimizer, schedule, batch sizes, when to stop. The paper's recipes are at the end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import cos, inf, pi
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from mixupmp.core.errors import check, is_number, is_whole
from mixupmp.core.rows import RowSource

_CHOICES: dict[str, tuple[object, ...]] = {
    "optimizer": ("sgd", "adamw"),
    "schedule": ("constant", "steps", "one-cycle", "cosine"),
    "precision": ("float32", "bfloat16", "float16"),
}
_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "learning_rate": ("positive and finite", lambda value: 0 < value < inf),
    "momentum": ("in [0, 1)", lambda value: 0 <= value < 1),
    "weight_decay": ("zero or more, and finite", lambda value: 0 <= value < inf),
    "factor": ("positive and finite", lambda value: 0 < value < inf),
    "body_rate": ("in (0, 1]", lambda value: 0 < value <= 1),
    "warm_up": ("in (0, 1)", lambda value: 0 < value < 1),
}


def _eager(optimizer: type[Any]) -> type[Any]:
    """The optimizer without the wrappers that serve torch.compile.

    Their first call imports torch._dynamo, which takes longer than importing torch and longer than a short fit.
    """
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    plain = {name: inspect.unwrap(getattr(optimizer, name)) for name in names}
    step = torch.no_grad()(inspect.unwrap(optimizer.step))
    return type(optimizer.__name__, (optimizer,), {**plain, "step": step})


_EagerAdamW, _EagerSGD = _eager(AdamW), _eager(SGD)


@dataclass(frozen=True)
class Recipe:
    """Everything about a fit that is neither the method, nor the network, nor the data.

    Parameters
    ----------
    epochs
        Passes over the rows; with `epochs_after_interpolation`, the most there may be.
    batch_size, pseudo_batch_size
        n_mb, None: all rows in one batch; t_mb, None: as many as seen rows in the batch.
    optimizer, learning_rate, momentum, nesterov, weight_decay
        SGD or AdamW, and their settings as torch names them.
    schedule, milestones, factor, warm_up
        Of the learning rate. "steps" multiplies it by `factor` at the epochs `milestones`; "one-cycle" rises over the
        share `warm_up` of all steps and then falls, as "cosine" does from the start.
    body_rate, unfreeze
        Learning rate of all but the network's head, as a share of the head's; epochs after which one more part is
        trained, from the head down, 0: all from the start.
    epochs_after_interpolation
        Stop this many epochs after 100% training accuracy.
    threads
        For each member; one and two give different bits.
    precision, compile
        Of the forward pass: the others are for GPUs; whether `torch.compile` is used.
    """

    epochs: int = 20
    batch_size: int | None = 128
    pseudo_batch_size: int | None = None
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: Literal["constant", "steps", "one-cycle", "cosine"] = "one-cycle"
    milestones: tuple[int, ...] = (60, 120, 160)
    factor: float = 0.2
    warm_up: float = 0.3
    body_rate: float = 1.0
    unfreeze: int = 0
    epochs_after_interpolation: int | None = None
    # Threads belong to the recipe: one and two give different bits. One for each member, members side by side, is
    # also the faster use of the cores.
    threads: int = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_numbers()
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            check(value in known, name, value, f"one of {', '.join(map(str, known))}")
        for name in ("nesterov", "compile"):
            check(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        check(
            self.epochs_after_interpolation is None or self.schedule in ("constant", "steps"),
            "schedule",
            self.schedule,
            "'constant' or 'steps' with epochs_after_interpolation",
            "The other schedules must know the number of steps beforehand.",
        )
        object.__setattr__(self, "milestones", tuple(self.milestones))

    def _check_counts(self) -> None:
        for name in ("epochs", "threads"):
            check(is_whole(getattr(self, name)), name, getattr(self, name), "a whole number, at least 1")
        for name in ("batch_size", "pseudo_batch_size"):
            value = getattr(self, name)
            check(value is None or is_whole(value), name, value, "a whole number, at least 1, or None")
        check(self.batch_size != 1, "batch_size", 1, "at least 2", "One row cannot be mixed or batch-normalized.")
        check(is_whole(self.unfreeze, 0), "unfreeze", self.unfreeze, "a whole number of epochs, zero or more")
        after = self.epochs_after_interpolation
        must = "a whole number, zero or more, or None"
        check(after is None or is_whole(after, 0), "epochs_after_interpolation", after, must)
        listed = isinstance(self.milestones, list | tuple) and all(is_whole(epoch, 0) for epoch in self.milestones)
        check(listed, "milestones", self.milestones, "a list of epochs, whole numbers")

    def _check_numbers(self) -> None:
        for name, (must, allowed) in _NUMBERS.items():
            value = getattr(self, name)
            check(is_number(value) and allowed(value), name, value, must)

    def rate(self, step: int, steps_an_epoch: int) -> float:
        """The learning rate at this step. A function of the step alone, so a resume needs no schedule state."""
        total = self.epochs * steps_an_epoch
        if self.schedule == "steps":
            passed = sum(step >= milestone * steps_an_epoch for milestone in self.milestones)
            return self.learning_rate * self.factor**passed
        if self.schedule == "cosine":
            return self.learning_rate * _fall(step / total)
        if self.schedule == "one-cycle":
            peak = self.warm_up * total
            if step < peak:
                return self.learning_rate * (1 - 0.96 * _fall(step / peak))  # from 1/25 of the peak
            return self.learning_rate * max(_fall((step - peak) / (total - peak)), 1e-4)
        return self.learning_rate

    def records(self, epoch: int) -> bool:
        """Whether this epoch goes into the history: every one, or 200 of them where there are more."""
        return epoch % max(1, self.epochs // 200) == 0 or epoch == self.epochs

    def build_optimizer(self, parameters: Iterable[Tensor]) -> Optimizer:
        """A fused optimizer. All of them act elementwise, so members in one program stay independent."""
        trained = [p for p in parameters if p.requires_grad]
        rate = torch.tensor(self.learning_rate) if self.compile else self.learning_rate
        adamw, sgd = (AdamW, SGD) if self.compile else (_EagerAdamW, _EagerSGD)
        if self.optimizer == "adamw":
            return adamw(trained, lr=rate, weight_decay=self.weight_decay, fused=True)
        return sgd(
            trained,
            lr=rate,
            momentum=self.momentum,
            nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay,
            fused=True,
        )


def some_rows(rows: RowSource, most: int | None = None) -> Tensor:
    """Indices of all rows, or of `most` of them: evenly spaced, as rows may be sorted by class.

    The first ones of rows that can only be read in their order, all of which would have to be read otherwise.
    """
    count = min(len(rows), most or len(rows))
    return torch.arange(count) if rows.sequential else torch.arange(count) * len(rows) // count


def batches_of(rows: int, batch_size: int | None, order: Tensor) -> list[Tensor]:
    """The order cut into batches. A last batch of one row, which nothing can normalize, joins the one before."""
    if batch_size is None or batch_size >= rows:
        return [order]
    chunks = list(order.split(batch_size))
    if len(chunks[-1]) == 1:
        chunks[-2:] = [torch.cat(chunks[-2:])]
    return chunks


def paper_images() -> Recipe:
    """CIFAR-10, CIFAR-100 and Fashion-MNIST in the paper: 200 epochs, rate .1 times .2 at 60, 120 and 160."""
    return Recipe(epochs=200, schedule="steps")


def paper_clusters() -> Recipe:
    """The paper's 2-D example: 10,000 full-batch epochs of plain gradient descent at rate .5."""
    return Recipe(
        epochs=10_000,
        batch_size=None,
        learning_rate=0.5,
        momentum=0.0,
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
    )


def paper_bootstrap() -> Recipe:
    """The paper's comparison of BB and DE: rate 5e-4, to 100% training accuracy and 1,000 epochs more."""
    return Recipe(
        epochs=100_000,
        learning_rate=5e-4,
        momentum=0.9,
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        epochs_after_interpolation=1000,
    )


def _fall(share: float) -> float:
    return 0.5 * (1 + cos(pi * min(max(share, 0.0), 1.0)))
