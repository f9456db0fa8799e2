"""The lines of the paper's tables: a label, a group, a method, and which of its members stand for a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf, isinf

from mixupmp.core.methods import (
    Method,
    ca_mixup_mc,
    deep_ensemble,
    laplace,
    mc_dropout,
    mixup_ensemble,
    mixup_mc,
    mixup_mp,
    mixup_mp_mc,
)
from mixupmp.paper.members import Wanted
from mixupmp.paper.reference import EXPLICIT, IMPLICIT, SINGLE
from mixupmp.paper.settings import Setting

ALPHAS = (0.1, 0.4, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a table; `label` is also how the paper's figures are looked up.

    Parameters
    ----------
    runs
        The members of one repeat that are evaluated by themselves; None: all of them together.
    repeats
        How many repeats, where not all of the setting's.
    """

    group: str
    label: str
    method: Method
    runs: tuple[int, ...] | None = None
    repeats: int | None = None

    @property
    def missing_package(self) -> str | None:
        """A package that the line needs and that is not installed."""
        needed: str | None = getattr(self.method.sampler, "requires", None)
        return None if needed is None or find_spec(needed) is not None else needed

    def wanted(self, setting: Setting) -> list[Wanted]:
        """The posteriors of all runs: by run, then by seed."""
        members = [None] if self.runs is None else [(run,) for run in self.runs]
        plans = [setting.plan(self.method, seed) for seed in setting.seeds[: self.repeats]]
        return [Wanted(plan, chosen) for chosen in members for plan in plans]


def label_of(name: str, ratio: float | None = None, alpha: float | None = None) -> str:
    """'MixupMP r=0.1 alpha=2': a method with its hyperparameters, as the data file of the paper's figures has it."""
    parts = [name]
    if ratio is not None and not isinf(ratio):
        parts.append(f"r={ratio:g}")
    if alpha is not None:
        parts.append(f"alpha={alpha:g}")
    return " ".join(parts)


def ensemble_label(ratio: float, alpha: float) -> str:
    """The label of the explicit ensemble at this r: r = 0 is DE, r = infinity the Mixup ensemble."""
    if ratio == 0:
        return "DE"
    return label_of("Mixup Ensemble" if isinf(ratio) else "MixupMP", ratio, alpha)


def ensemble_at(setting: Setting, ratio: float, alpha: float) -> Method:
    """The explicit ensemble at this r."""
    if ratio == 0:
        return deep_ensemble(setting.members, setting.kernel)
    if isinf(ratio):
        return mixup_ensemble(alpha, setting.members, setting.kernel)
    return mixup_mp(ratio, alpha, setting.members, setting.kernel)


def single_lines(setting: Setting, alphas: Sequence[float]) -> list[Line]:
    """NN, MixupMP-single, Mixup and Laplace: members of the explicit ensembles, never trained again.

    Two of each repeat, as the paper averages single models over six runs and ensembles over three.
    """
    runs = tuple(range(min(2, setting.members)))
    found = [Line(SINGLE, "NN", ensemble_at(setting, 0, 1), runs)]
    for ratio, name in ((0.1, "MixupMP-single"), (1.0, "MixupMP-single"), (inf, "Mixup")):
        found += [Line(SINGLE, label_of(name, ratio, a), ensemble_at(setting, ratio, a), runs) for a in alphas]
    return [*found, Line(SINGLE, "Laplace", laplace(setting.masks, kernel=setting.kernel), runs)]


def explicit_lines(setting: Setting, alphas: Sequence[float]) -> list[Line]:
    """DE, MixupMP and the Mixup ensemble."""
    found = [Line(EXPLICIT, "DE", ensemble_at(setting, 0, 1))]
    for ratio in (0.1, 1.0, inf):
        found += [Line(EXPLICIT, ensemble_label(ratio, a), ensemble_at(setting, ratio, a)) for a in alphas]
    return found


def implicit_lines(setting: Setting, alphas: Sequence[float]) -> list[Line]:
    """MC dropout, MixupMP-MC, Mixup-MC and CAMixup-MC."""
    masks, kernel = setting.masks, setting.kernel
    found = [("MC Dropout", mc_dropout(masks, kernel=kernel))]
    found += [
        (label_of("MixupMP-MC", r, a), mixup_mp_mc(r, a, masks, kernel=kernel)) for r in (0.1, 1.0) for a in alphas
    ]
    found += [(label_of("Mixup-MC", alpha=a), mixup_mc(a, masks, kernel=kernel)) for a in alphas]
    found += [(label_of("CAMixup-MC", alpha=a), ca_mixup_mc(a, masks, kernel=kernel)) for a in alphas]
    return [Line(IMPLICIT, label, method) for label, method in found]


def open_choices(setting: Setting) -> list[str]:
    """What `comparison_lines` do otherwise than the text, or where it leaves a choice open."""
    return [
        "single models are members of the ensembles, at most two of each, not independent runs as in the paper (6 in "
        "its main table); those of a repeat count once, by their mean",
        f"dropout is {_place_of_dropout(setting)}, as the text gives its rate alone",
        "Laplace: the last layer, Kronecker factors, prior precision by the marginal likelihood, "
        f"{setting.masks} draws of the linearized network, as the text names the package alone",
        "CAMixup-MC: a class is mixed where mean confidence exceeds accuracy on its validation rows, with "
        f"{setting.masks} dropout masks, and every class in the first epoch, as the text does not say",
    ]


def _place_of_dropout(setting: Setting) -> str:
    """Where the network has dropout, under the setting's protocol."""
    if setting.network_class != "CNN":
        return "between the two convolutions of a block"
    authors = setting.protocol.initialization == "xavier"  # with it come the authors' networks
    return "after the convolutions and the linear layers" if authors else "after the linear layers"


def comparison_lines(setting: Setting, alphas: Sequence[float]) -> list[Line]:
    """Every line of the in-distribution table."""
    return [*single_lines(setting, alphas), *explicit_lines(setting, alphas), *implicit_lines(setting, alphas)]
