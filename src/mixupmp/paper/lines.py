"""The lines of the paper's tables: a label, a group, and the posteriors of each repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from mixupmp.paper.settings import Setting

SINGLE, EXPLICIT, IMPLICIT = "Single model", "Explicit ensemble", "Implicit ensemble"
ALPHAS = (0.1, 0.4, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a table; `label` is also how the paper's figures are looked up."""

    group: str
    label: str
    repeats: tuple[Wanted, ...]


def label_of(name: str, ratio: float | None = None, alpha: float | None = None) -> str:
    """'MixupMP r=0.1 alpha=2': a method with its hyperparameters, as the data file of the paper's figures has it."""
    parts = [name]
    if ratio is not None and not isinf(ratio):
        parts.append(f"r={ratio:g}")
    if alpha is not None:
        parts.append(f"alpha={alpha:g}")
    return " ".join(parts)


def ensembles(setting: Setting, method: Method) -> tuple[Wanted, ...]:
    """One posterior for each repeat."""
    return tuple(Wanted(setting.plan(method, seed)) for seed in setting.seeds)


def singles(setting: Setting, method: Method) -> tuple[Wanted, ...]:
    """Two single members of each repeat's ensemble: the paper has twice as many runs of single models."""
    return tuple(
        Wanted(setting.plan(method, seed), (number,)) for number in range(min(2, setting.members))
        for seed in setting.seeds
    )  # fmt: skip


def mixup_mp_ensembles(setting: Setting, ratio: float, alpha: float) -> tuple[Wanted, ...]:
    """MixupMP at any r in [0, inf]; r = 0 is the deep ensemble and r = infinity the Mixup ensemble."""
    return ensembles(setting, at_ratio(setting, ratio, alpha))


def at_ratio(setting: Setting, ratio: float, alpha: float) -> Method:
    """The explicit ensemble at this r."""
    if ratio == 0:
        return deep_ensemble(setting.members, setting.kernel)
    if isinf(ratio):
        return mixup_ensemble(alpha, setting.members, setting.kernel)
    return mixup_mp(ratio, alpha, setting.members, setting.kernel)


def single_lines(setting: Setting, alphas: Sequence[float], with_laplace: bool = True) -> list[Line]:
    """NN, MixupMP-single, Mixup and Laplace: single members of the explicit ensembles, never trained again."""
    found = [Line(SINGLE, "NN", singles(setting, at_ratio(setting, 0, 1)))]
    for ratio, name in ((0.1, "MixupMP-single"), (1.0, "MixupMP-single"), (inf, "Mixup")):
        for alpha in alphas:
            label = label_of(name, ratio, alpha)
            found.append(Line(SINGLE, label, singles(setting, at_ratio(setting, ratio, alpha))))
    if with_laplace:
        found.append(Line(SINGLE, "Laplace", ensembles(setting, laplace(setting.masks, kernel=setting.kernel))))
    return found


def explicit_lines(setting: Setting, alphas: Sequence[float]) -> list[Line]:
    """DE, MixupMP and the Mixup ensemble."""
    found = [Line(EXPLICIT, "DE", mixup_mp_ensembles(setting, 0, 1))]
    for ratio, name in ((0.1, "MixupMP"), (1.0, "MixupMP"), (inf, "Mixup Ensemble")):
        found += [Line(EXPLICIT, label_of(name, ratio, a), mixup_mp_ensembles(setting, ratio, a)) for a in alphas]
    return found


def implicit_lines(setting: Setting, alphas: Sequence[float]) -> list[Line]:
    """MC dropout, MixupMP-MC, Mixup-MC and CAMixup-MC."""
    masks, kernel = setting.masks, setting.kernel
    found = [Line(IMPLICIT, "MC Dropout", ensembles(setting, mc_dropout(masks, kernel=kernel)))]
    methods = [
        *(("MixupMP-MC", r, a, mixup_mp_mc(r, a, masks, kernel=kernel)) for r in (0.1, 1.0) for a in alphas),
        *(("Mixup-MC", None, a, mixup_mc(a, masks, kernel=kernel)) for a in alphas),
        *(("CAMixup-MC", None, a, ca_mixup_mc(a, masks, kernel=kernel)) for a in alphas),
    ]
    for name, ratio, alpha, method in methods:
        found.append(Line(IMPLICIT, label_of(name, ratio, alpha), ensembles(setting, method)))
    return found


def comparison_lines(setting: Setting, alphas: Sequence[float]) -> list[Line]:
    """Every line of the in-distribution table."""
    return [*single_lines(setting, alphas), *explicit_lines(setting, alphas), *implicit_lines(setting, alphas)]


def wanted_of(lines: Sequence[Line]) -> list[Wanted]:
    return [wanted for line in lines for wanted in line.repeats]
