r"""Is a predictive a martingale? A diagnostic for any method that predicts classes from rows.

A martingale posterior rests on predictives P_n with

    E[P_{n+1}(y | x) | z_1, .., z_n] = P_n(y | x),    z_{n+1} ~ P_n:

rows that the method itself expects to see must not, on average, change its mind (Fong, Holmes & Walker 2023; Falck et
al. 2024 test it of language models). Here futures are simulated: inputs are drawn from those given, labels from the
current prediction; the method learns from all rows, predicts anew, and its predictions for some queries are compared
with those before. What is left on average over futures is drift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, expm1, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import check, is_whole
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows
from mixupmp.data.arrays import as_inputs
from mixupmp.metrics.checks import checked_probabilities
from mixupmp.train.run import Engine, fit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# (inputs, labels, seed) -> predict, which maps inputs to probabilities (rows, classes).
Learner = Callable[[Any, Integers, int], Callable[[Any], Floats]]
FLIPS = 2000
NUMBERED = "Labels of any kind are numbered by np.unique(labels, return_inverse=True)[1]."


@dataclass(frozen=True)
class MartingaleDiagnostic:
    """How far a predictive is from a martingale.

    Attributes
    ----------
    drift : (queries, classes)
        The mean over futures of the change in probability.
    standard_error : (queries, classes)
        Of the drift, over futures.
    size : float
        Root mean square of the drift over queries and classes, with its noise taken off: of the squared mean change,
        the part that averaging over this many futures would leave of changes without drift is subtracted. 0 where that
        is more than all of it.
    change : float
        Root mean square of a single future's change: what `size` is to be compared with.
    p_value : float
        Of the hypothesis of no drift: the share of random signs, one for each future, that give a mean change at least
        as large. Exact where changes are symmetric about zero without drift. They are not where predictions are
        confident, as a rare label makes up for many small changes; so it is at least the chance that all labels drawn
        are the most probable ones, unless the drift is more than rare labels can make up for. Draw more rows or
        futures where that is the reason for a large one.
    futures, rows : int
        How many were simulated, and the new rows in each.
    """

    drift: Floats
    standard_error: Floats
    size: float
    change: float
    p_value: float
    futures: int
    rows: int

    def __str__(self) -> str:
        verdict = "drifts" if self.p_value < 0.05 else "shows no drift"
        return (
            f"the predictive {verdict}: {self.rows} rows drawn from it move its probabilities by {self.change:.4f} "
            f"(root mean square), on average over {self.futures} futures by {self.size:.4f} (p = {self.p_value:.2g})"
        )


def martingale_diagnostic(
    learner: Learner,
    inputs: Any,
    labels: object,
    queries: Any,
    *,
    rows: int | None = None,
    steps: int = 1,
    futures: int = 20,
    seed: int = 0,
) -> MartingaleDiagnostic:
    """Simulate futures from a method's own predictions, and measure how they change them on average.

    Parameters
    ----------
    learner
        Learns from rows: ``learner(inputs, labels, seed)`` returns a function from inputs to probabilities. Called with
        the seed of a future before and after the new rows, so that what the seed alone changes cancels out.
    inputs, labels
        The rows seen: an array, a tensor, a data frame or a list, which the learner gets in the same form, and class
        numbers from 0, which it gets as an array.
    queries
        Inputs at which predictions are compared.
    rows
        New rows of each step; None: a tenth of those seen.
    steps
        After each step the method learns anew and the next rows are drawn from its new predictions.
    futures
        At least 6, for a p-value below .05.
    seed
        Of the futures.

    Returns
    -------
    MartingaleDiagnostic
        The drift, and whether it is beyond chance.

    Examples
    --------
    >>> import numpy as np
    >>> def urn(inputs, labels, seed):  # Laplace's rule of succession, a martingale
    ...     p = (np.bincount(labels, minlength=2) + 1) / (len(labels) + 2)
    ...     return lambda inputs: np.tile(p, (len(inputs), 1))
    >>> found = martingale_diagnostic(urn, np.zeros((10, 1)), np.array([0] * 7 + [1] * 3), np.zeros((1, 1)))
    >>> found.p_value > 0.05
    True
    """
    numbers = _class_numbers(labels, len(inputs))
    new = max(1, len(numbers) // 10) if rows is None else rows
    check(is_whole(new), "rows", rows, "a whole number, at least 1")
    check(is_whole(steps), "steps", steps, "a whole number, at least 1")
    check(is_whole(futures, 2), "futures", futures, "a whole number, at least 2")
    check(len(queries) > 0, "queries", queries, "at least one row")
    found = [_change(learner, inputs, numbers, queries, new, steps, seed, number) for number in range(futures)]
    changes, log_chances = (np.stack(values) for values in zip(*found, strict=True))
    return _diagnostic(changes, log_chances, seed, new * steps)


def _diagnostic(changes: Floats, log_chances: Floats, seed: int, rows: int) -> MartingaleDiagnostic:
    """Of the changes (futures, queries, classes) that so many new rows made."""
    futures, drift = len(changes), changes.mean(0)
    error = changes.std(0, ddof=1) / sqrt(futures)
    squared = float((drift**2 - error**2).mean())
    return MartingaleDiagnostic(
        drift=drift,
        standard_error=error,
        size=sqrt(max(0.0, squared)),
        change=sqrt(float((changes**2).mean())),
        p_value=_p_value(changes.reshape(futures, -1), float(log_chances.mean()), seed),
        futures=futures,
        rows=rows,
    )


def plan_learner(plan: Plan, engine: Engine = "auto") -> Learner:
    """A plan as a learner: fits its posterior to the rows, and predicts with it. Labels of rows are classes.

    Parameters
    ----------
    plan
        Its rows are replaced by those of the future.
    engine
        As for `fit`.

    Returns
    -------
    Learner
        For `martingale_diagnostic`.
    """

    def tensor(inputs: Any) -> Tensor:
        is_tensor = isinstance(inputs, Tensor)
        return inputs if is_tensor else as_inputs(np.asarray(inputs), "inputs", plan.task.input_shape)

    def learn(inputs: Any, labels: Integers, seed: int) -> Callable[[Any], Floats]:
        rows = Rows(tensor(inputs), torch.from_numpy(labels))
        posterior = fit(replace(plan.on(rows), seed=seed), engine=engine)
        return lambda inputs: posterior.probabilities(tensor(inputs)).cpu().double().numpy()

    plan.task.require_classes("for the martingale diagnostic")
    return learn


def _class_numbers(labels: object, rows: int) -> Integers:
    """The labels as an array, one for each row."""
    numbers = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    right = numbers.dtype.kind in "iu" and numbers.ndim == 1 and numbers.size > 0 and numbers.min() >= 0
    check(right, "labels", numbers.ravel()[:5].tolist(), "the class numbers of rows, counted from 0", NUMBERED)
    check(len(numbers) == rows, "labels", len(numbers), f"as many as inputs, {rows}")
    return numbers.astype(np.int64)


def _probabilities(values: object, rows: int, classes: int | None = None) -> Floats:
    """What a learner predicts for so many rows."""
    name = "the learner's probabilities"
    found = checked_probabilities(values if isinstance(values, Tensor) else np.asarray(values, np.float64), name=name)
    wanted = (rows, classes or found.shape[1])
    check(found.shape == wanted, name, tuple(found.shape), f"of shape {wanted}, (rows, classes)")
    return found.cpu().double().numpy()


def _take(inputs: Any, places: Integers) -> Any:
    """These rows, in the form of the inputs."""
    if isinstance(inputs, list | tuple):
        return [inputs[place] for place in places]
    return inputs.iloc[places] if hasattr(inputs, "iloc") else inputs[places]


def _change(
    learner: Learner, inputs: Any, labels: Integers, queries: Any, rows: int, steps: int, seed: int, future: int
) -> tuple[Floats, float]:
    """The change in probabilities (queries, classes) along a future; log chance that its labels are the likeliest."""
    draws = np.random.default_rng((seed, future))
    own = int(draws.integers(2**31))
    chosen = np.arange(len(labels))
    predict = learner(inputs, labels, own)
    before = _probabilities(predict(queries), len(queries))
    classes, log_chance = before.shape[1], 0.0
    must = f"class numbers below {classes}, as the learner predicts {classes} classes"
    check(int(labels.max()) < classes, "labels", int(labels.max()), must, NUMBERED)
    for _ in range(steps):
        places = draws.integers(len(inputs), size=rows)
        probabilities = _probabilities(predict(_take(inputs, places)), rows, classes)
        shares = probabilities.cumsum(1)
        log_chance += float(np.log(probabilities.max(1) / shares[:, -1]).sum())
        uniform = draws.random((rows, 1)) * shares[:, -1:]
        labels = np.concatenate([labels, (uniform >= shares[:, :-1]).sum(1)])
        chosen = np.concatenate([chosen, places])
        predict = learner(_take(inputs, chosen), labels, own)
    return _probabilities(predict(queries), len(queries), classes) - before, log_chance


def _p_value(changes: Floats, log_chance: float, seed: int) -> float:
    """The share of random signs of the futures that give a mean at least as large, the true signs among them.

    At least the chance that no unlikely label is drawn in any future, unless the mean is more than such labels can make
    up for: they change a probability by at most one. `log_chance` is that of a single future.
    """
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (FLIPS, len(changes)))
    sizes = np.square(signs @ changes).sum(1)
    true = np.square(changes.sum(0)).sum()
    share = float((1 + (sizes >= true * (1 - 1e-12)).sum()) / (1 + FLIPS))
    made_up_for = float(np.abs(changes.mean(0)).max()) <= -expm1(log_chance)
    return max(share, exp(len(changes) * log_chance)) if made_up_for else share
