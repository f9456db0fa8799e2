"""The futures that the playground offers: the paper's, and every base measure of the list that takes points.

This is the only place that defines the choice: scenes, the page's options and its scripts are given it from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch

from mixupmp.core.base_measures import (
    BASE_MEASURES,
    AdaptiveBaseMeasure,
    AtLayer,
    BaseMeasure,
    Mixup,
    Perturbed,
    Uniform,
)
from mixupmp.core.batch import Batch
from mixupmp.core.errors import MixupMPError
from mixupmp.core.methods import (
    Method,
    bayesian_bootstrap,
    dp_mp_perturbed,
    dp_mp_uniform,
    martingale_posterior,
    mixup_mp,
)
from mixupmp.data.clusters import LIMIT

SLIDERS = ("alpha", "variance")  # what a base measure may call its settings, for the page to have a slider


@dataclass(frozen=True)
class OfferedFuture:
    """One of the futures to choose from.

    Parameters
    ----------
    name
        In links.
    title, description
        On the page.
    settings
        The fields of a scene that it depends on, beside those of the fit.
    make
        The method, given `members` and these settings.
    heading
        Over the picture; empty: the title.
    """

    name: str
    title: str
    description: str
    settings: tuple[str, ...]
    make: Callable[..., Method]
    heading: str = ""


PAPER = (
    OfferedFuture("mixup-mp", "MixupMP", "the data, and Mixup of pairs of rows", ("ratio", "alpha"), mixup_mp),
    OfferedFuture(
        "bayesian-bootstrap", "BB", "the data alone, with random weights", (), bayesian_bootstrap, "Bayesian bootstrap"
    ),
    OfferedFuture(
        "dp-mp-perturbed", "DP-MP Perturbed", "the data, and noisy copies of it", ("ratio", "variance"), dp_mp_perturbed
    ),
    OfferedFuture(
        "dp-mp-uniform",
        "DP-MP Uniform",
        "the data, and noise with random labels",
        ("ratio",),
        partial(dp_mp_uniform, low=-LIMIT, high=LIMIT),
    ),
)
OF_PAPER: tuple[BaseMeasure, ...] = (Mixup(), Perturbed(), Uniform())  # their base measures, as listed


def futures() -> dict[str, OfferedFuture]:
    """All of them by name, in the order of the page: the paper's first."""
    return {one.name: one for one in (*PAPER, *others())}


def others() -> list[OfferedFuture]:
    """Those of the list of base measures that take points in the plane, without the paper's."""
    return [_of(name, base) for name, base in BASE_MEASURES.items() if base not in OF_PAPER and takes_points(base)]


def takes_points(base: BaseMeasure) -> bool:
    """Whether a base measure makes points of points, found out by trying it.

    Not those that adapt to validation rows, which the playground does not have, nor those inside a network.
    """
    if isinstance(base, AdaptiveBaseMeasure | AtLayer):
        return False
    draws = torch.Generator().manual_seed(0)
    seen = Batch(torch.randn(8, 2, generator=draws), torch.eye(2)[torch.arange(8) % 2], torch.ones(8))
    try:
        made = base.sample(seen, 64, draws)  # enough for all parts of a mixture
    except MixupMPError:
        return False
    return made.inputs.shape == (64, 2)


def _of(name: str, base: BaseMeasure) -> OfferedFuture:
    own: set[str] = {entry.name for entry in fields(base)} if is_dataclass(base) else set()
    settings = tuple(slider for slider in SLIDERS if slider in own)
    return OfferedFuture(name, *_words(name, base), ("ratio", *settings), partial(_martingale_posterior, base))


def _martingale_posterior(base: Any, ratio: float, members: int, **settings: float) -> Method:
    return martingale_posterior(ratio, replace(base, **settings) if settings else base, members)


def _words(name: str, base: BaseMeasure) -> tuple[str, str]:
    """Title and description: the first line of the docstring, "SMOTE: a point between ... (Chawla et al. 2002)."."""
    line = (type(base).__doc__ or "").strip().partition("\n")[0]
    line = re.sub(r"\s*\([^()]*\)", "", line).replace("`", "").rstrip(". ")
    title, colon, description = line.partition(": ")
    if not colon or len(title.split()) > 3:
        title, description = name.replace("-", " ").capitalize(), line
    if description[1:2].islower() or description[1:2] == " ":
        description = description[0].lower() + description[1:]
    return re.sub(r"Mixup$", "MixupMP", title), description
