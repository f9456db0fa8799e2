"""How many members are enough: an anytime-valid test of what doubling them gains on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from mixupmp.core.errors import InvalidArgument, check, is_number, is_whole
from mixupmp.core.plan import Plan
from mixupmp.core.samplers import Ensemble
from mixupmp.core.seeds import generator
from mixupmp.core.streams import has_labels
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.calibrators import Temperature
from mixupmp.decide.default import Choice
from mixupmp.decide.held_out import effective_weights, folds
from mixupmp.train.run import Engine, fit

FLOOR = 1e-3  # of the probabilities whose logs are compared: it bounds the gain of a row
LARGEST = 0.5 * log(1 / FLOOR) - log(2 / (1 + FLOOR))  # log of a mean of FLOOR and 1, less the mean of their logs


@dataclass(frozen=True)
class Enough:
    """So many members, whether the test says that more would gain less than the tolerance, and a temperature."""

    members: int
    decided: bool
    gains: dict[int, float]  # mean gain in NLL of so many members over half of them
    calibrator: Temperature

    def applied(self, choice: Choice, calibrate: bool) -> Choice:
        """The choice with so many members, and the temperature of so many."""
        method = replace(choice.plan.method, sampler=Ensemble(self.members))
        calibrator = self.calibrator if calibrate else None
        return replace(choice, plan=replace(choice.plan, method=method), calibrator=calibrator)


def doubling_gains(probabilities: Tensor, labels: Tensor) -> Tensor:
    """What all members gain over half of them on each row, in [0, LARGEST]: for probabilities (members, rows, classes),

        log (p + q)/2 - (log p + log q)/2

    with p and q the probabilities that either half gives the true class, at least `FLOOR`.
    """
    true = probabilities.gather(2, labels.expand(len(probabilities), -1).unsqueeze(2)).squeeze(2).double()
    half = len(true) // 2
    pair = torch.stack([true[:half].mean(0), true[half : 2 * half].mean(0)]).clamp_min(FLOOR)
    return pair.mean(0).log() - pair.log().mean(0)


def e_process(gains: Tensor, tolerance: float) -> Tensor:
    r"""Evidence after each row that the mean gain is below the tolerance, by betting.

    The wealth prod_i (1 + lambda_i (tolerance - g_i)), where lambda_i depends on the rows before i alone, is a
    nonnegative supermartingale if the mean is the tolerance or more: it ever reaches 1/level with probability at most
    `level` (Ville), whatever is looked at on the way.

    References
    ----------
    Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by betting, JRSS B 86.
    """
    count = torch.arange(1, len(gains) + 1, dtype=torch.float64)
    mean = (gains.cumsum(0) + tolerance) / (count + 1)  # regularized by one row at the tolerance
    variance = ((gains - mean).square().cumsum(0) + (LARGEST / 4) ** 2) / (count + 1)
    edge = tolerance - mean
    bets = (edge / (variance + edge.square())).clamp(0, 0.5 / (LARGEST - tolerance))
    before = torch.cat([torch.zeros(1, dtype=torch.float64), bets[:-1]])
    return (before * (tolerance - gains)).log1p().cumsum(0).exp()


def enough_members(
    plan: Plan,
    *,
    tolerance: float = 0.01,
    level: float = 0.05,
    most: int = 32,
    share: float = 0.2,
    engine: Engine = "auto",
) -> Enough:
    """Double the members of an ensemble until doubling them again would gain less than `tolerance` in NLL.

    A member's gain falls as members are added: the gain of 2B over B is about half that of B over B/2. So B members are
    enough where an e-process over held-out rows rejects that B gained `tolerance` or more over B/2. The k-th look has
    level / (k (k + 1)), so that all looks together stop too early with probability at most `level`. Where the rows do
    not decide, `most` members are trained.

    Parameters
    ----------
    share
        Of the rows, held out for it.
    """
    check(is_number(tolerance) and 0 < tolerance < LARGEST, "tolerance", tolerance, f"between 0 and {LARGEST:.2f}")
    check(is_number(level) and 0 < level < 1, "level", level, "between 0 and 1")
    check(is_whole(most, 2), "most", most, "a whole number, at least 2")
    if plan.task.likelihood.classes is None or not has_labels(plan.train):
        raise InvalidArgument("members", "auto", "a number, where labels are not classes or are not known beforehand")
    train, held = next(folds(plan.train, share, True, plan.seed))
    rows = held.read()
    order = torch.randperm(len(rows), generator=generator(plan.seed, "rows"))
    rows = rows.take(order)
    labels, inputs = rows.labels, rows.inputs
    trial = replace(plan.on(train), method=replace(plan.method, sampler=Ensemble(most)))
    found = torch.empty(0)
    gains: dict[int, float] = {}
    for look, members in enumerate(_doubled(most), 1):
        new = fit(trial, engine=engine, members=range(len(found), members)).member_outputs(inputs).cpu().softmax(-1)
        found = torch.cat([found, new]) if len(found) else new
        gained = doubling_gains(found, labels)
        gains[members] = float(gained.mean())
        decided = bool(e_process(gained, tolerance).max() >= look * (look + 1) / level)
        if decided:
            break
    temperature = fit_temperature(found.double().mean(0), labels, warn=False, weights=effective_weights([rows]))
    return Enough(members, decided, gains, temperature)


def _doubled(most: int) -> list[int]:
    """2, 4, 8 and so on, and `most`."""
    return sorted({min(2**k, most) for k in range(1, most.bit_length() + 1)})
