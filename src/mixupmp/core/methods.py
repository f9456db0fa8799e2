"""Every method of the paper, as a point on two axes: which future, and how samples arise.

A method is a value. To add one, write its function here and put it in `ALL_METHODS`: that list drives
`mixupmp methods` and the tests that every method must pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from math import inf
from typing import Any, Literal

from mixupmp.core.base_measures import BaseMeasure, ClassAdjustedMixup, Mixup, Perturbed, Uniform
from mixupmp.core.errors import InvalidArgument, check, check_dropout, check_known, is_number
from mixupmp.core.kernels import Kernel, identity
from mixupmp.core.predictive import Predictive
from mixupmp.core.samplers import DropoutMasks, Ensemble, Laplace, Sampler
from mixupmp.core.shared import SharedEnsemble
from mixupmp.core.weights import Dirichlet, StabilizedDirichlet

PAPER_DROPOUT = 0.3
PAPER_MIXUP = Mixup(2.0)


@dataclass(frozen=True)
class Method:
    """Which future, and how samples arise.

    Parameters
    ----------
    name
        As the command line spells it.
    predictive, sampler
        Which future, and how samples arise.
    dropout
        Rate of the networks' dropout layers.
    validation_fraction
        Share of the rows that the predictive adapts to.
    """

    name: str
    predictive: Predictive
    sampler: Sampler
    dropout: float = 0.0  # the rate with which a network built by name is given
    validation_fraction: float = 0.0  # share of the training rows that the fit keeps to adapt its predictive

    def __post_init__(self) -> None:
        check(isinstance(self.predictive, Predictive), "predictive", self.predictive, "a Predictive")
        samples = callable(getattr(self.sampler, "posterior", None)) and not isinstance(self.sampler, type)
        check(samples, "sampler", self.sampler, "a sampler, as Ensemble(4) or DropoutMasks(20)")
        check_dropout(self.dropout)
        share = self.validation_fraction
        check(is_number(share) and 0 <= share < 1, "validation_fraction", share, "a share in [0, 1)")
        must = "between 0 and 1 for a base measure that adapts to validation rows"
        check(share > 0 or not self.predictive.adaptive, "validation_fraction", share, must)


def paper_names(constructor: Callable[..., Method]) -> Callable[..., Method]:
    """Let a constructor take the paper's `r` for `ratio`."""

    @wraps(constructor)
    def method(*arguments: object, **options: object) -> Method:
        if "r" in options:
            if "ratio" in options or len(arguments) > 0:
                raise InvalidArgument("r", options["r"], "left out where ratio is given", "They are the same number.")
            options["ratio"] = options.pop("r")
        return constructor(*arguments, **options)

    return method


def single_network(kernel: Kernel = identity) -> Method:
    """NN: one network, the mode of everything that follows."""
    return Method("single-network", Predictive(kernel=kernel), Ensemble(1))


def mixup(alpha: float = 2.0, kernel: Kernel = identity) -> Method:
    """Mixup: one network on blends of pairs only (Zhang et al. 2018). MixupMP with r = infinity and B = 1."""
    return Method("mixup", Predictive(inf, Mixup(alpha), kernel), Ensemble(1))


def reg_mixup(alpha: float = 10.0, kernel: Kernel = identity) -> Method:
    """RegMixup: one network on the data and, as often, on blends (Pinto et al. 2022). MixupMP with r = 1 and B = 1."""
    return Method("reg-mixup", _mixup_predictive(1.0, alpha, kernel), Ensemble(1))


@paper_names
def mixup_mp_single(ratio: float = 1.0, alpha: float = 2.0, kernel: Kernel = identity) -> Method:
    """MixupMP-single: one posterior sample of MixupMP."""
    return Method("mixup-mp-single", _mixup_predictive(ratio, alpha, kernel), Ensemble(1))


def laplace(
    members: int = 20,
    subset: Literal["last_layer", "all"] = "last_layer",
    structure: Literal["kron", "full", "diag"] = "kron",
    kernel: Kernel = identity,
) -> Method:
    """Laplace: a Gaussian around one trained network (Daxberger et al. 2021). Needs laplace-torch."""
    return Method("laplace", Predictive(kernel=kernel), Laplace(members, subset, structure))


def deep_ensemble(members: int = 4, kernel: Kernel = identity) -> Method:
    """DE: networks from different starts on the same data (Lakshminarayanan et al. 2017). MixupMP with r = 0."""
    return Method("deep-ensemble", Predictive(kernel=kernel), Ensemble(members))


def bayesian_bootstrap(members: int = 4, kernel: Kernel = identity) -> Method:
    """BB: each member weighs the rows by its own draw of Dirichlet(1, .., 1) (Rubin 1981)."""
    return Method("bayesian-bootstrap", Predictive(kernel=kernel, weights=Dirichlet()), Ensemble(members))


def stabilized_bootstrap(members: int = 4, bound: float = 2.0, kernel: Kernel = identity) -> Method:
    """Stabilized BB: the bootstrap's weights kept within a bound, as the proof of its equivalence with DE asks."""
    weights = StabilizedDirichlet(bound)
    return Method("stabilized-bootstrap", Predictive(kernel=kernel, weights=weights), Ensemble(members))


@paper_names
def dp_mp_perturbed(ratio: float = 1.0, variance: float = 4.0, members: int = 10, atoms: int | None = None) -> Method:
    """DP-MP with a Perturbed base: Algorithm 1, whose new rows are seen rows with Gaussian noise."""
    return _dp_mp("dp-mp-perturbed", ratio, Perturbed(variance), members, atoms)


@paper_names
def dp_mp_uniform(
    ratio: float = 1.0, low: float = -15.0, high: float = 15.0, members: int = 10, atoms: int | None = None
) -> Method:
    """DP-MP with a Uniform base: Algorithm 1, whose new rows are uniform in a box, with random labels."""
    return _dp_mp("dp-mp-uniform", ratio, Uniform(low, high), members, atoms)


@paper_names
def mixup_mp(ratio: float = 1.0, alpha: float = 2.0, members: int = 4, kernel: Kernel = identity) -> Method:
    """MixupMP: repeats of the (augmented) data plus, r times as much, Mixup blends of them (Algorithm 2)."""
    return Method("mixup-mp", _mixup_predictive(ratio, alpha, kernel), Ensemble(members))


@paper_names
def martingale_posterior(
    ratio: float = 1.0, base: BaseMeasure = PAPER_MIXUP, members: int = 4, kernel: Kernel = identity
) -> Method:
    """MP: as MixupMP, with any base measure in the place of Mixup, as warped-mixup or cutmix."""
    return Method("martingale-posterior", Predictive(ratio, base, kernel), Ensemble(members))


def mixup_ensemble(alpha: float = 2.0, members: int = 4, kernel: Kernel = identity) -> Method:
    """Mixup ensemble: members trained on blends only. MixupMP with r = infinity."""
    return Method("mixup-ensemble", Predictive(inf, Mixup(alpha), kernel), Ensemble(members))


def mc_dropout(members: int = 20, dropout: float = PAPER_DROPOUT, kernel: Kernel = identity) -> Method:
    """MC dropout: one network, its dropout masks as members (Gal & Ghahramani 2016)."""
    return Method("mc-dropout", Predictive(kernel=kernel), DropoutMasks(members), dropout)


@paper_names
def mixup_mp_mc(
    ratio: float = 1.0, alpha: float = 2.0, members: int = 20, dropout: float = PAPER_DROPOUT, kernel: Kernel = identity
) -> Method:
    """MixupMP-MC: MixupMP at the cost of one network, by dropout masks."""
    return Method("mixup-mp-mc", _mixup_predictive(ratio, alpha, kernel), DropoutMasks(members), dropout)


def mixup_mc(
    alpha: float = 2.0, members: int = 20, dropout: float = PAPER_DROPOUT, kernel: Kernel = identity
) -> Method:
    """Mixup-MC: the Mixup ensemble by dropout masks. MixupMP-MC with r = infinity."""
    return Method("mixup-mc", Predictive(inf, Mixup(alpha), kernel), DropoutMasks(members), dropout)


def ca_mixup_mc(
    alpha: float = 2.0,
    members: int = 20,
    dropout: float = PAPER_DROPOUT,
    validation_fraction: float = 0.05,
    kernel: Kernel = identity,
) -> Method:
    """CAMixup-MC: after each epoch, Mixup goes on only for classes it is over-confident on (Wen et al. 2021)."""
    predictive = Predictive(inf, ClassAdjustedMixup(alpha), kernel)
    return Method("ca-mixup-mc", predictive, DropoutMasks(members), dropout, validation_fraction)


@paper_names
def shared_mixup_mp(ratio: float = 1.0, alpha: float = 0.4, members: int = 16, kernel: Kernel = identity) -> Method:
    """Shared MixupMP: members share all weights but rank-one adapters (TabM, Gorishniy et al. 2025). For tables."""
    return Method("shared-mixup-mp", _mixup_predictive(ratio, alpha, kernel), SharedEnsemble(members))


ALL_METHODS: tuple[Callable[..., Method], ...] = (
    single_network,
    mixup,
    reg_mixup,
    mixup_mp_single,
    laplace,
    deep_ensemble,
    bayesian_bootstrap,
    stabilized_bootstrap,
    dp_mp_perturbed,
    dp_mp_uniform,
    mixup_mp,
    martingale_posterior,
    mixup_ensemble,
    mc_dropout,
    mixup_mp_mc,
    mixup_mc,
    ca_mixup_mc,
    shared_mixup_mp,
)


def method_names() -> dict[str, Callable[..., Method]]:
    """Each method's name, as the command line spells it."""
    return {constructor.__name__.replace("_", "-"): constructor for constructor in ALL_METHODS}


def method_named(name: str, **options: object) -> Method:
    """The method of this name. Options left None keep its defaults; one that it does not take is refused."""
    known = method_names()
    check_known("method", name, known)
    given = {key: value for key, value in options.items() if value is not None}
    takes = inspect.signature(known[name]).parameters
    for key, value in given.items():
        if key not in takes:
            raise InvalidArgument(key, value, f"left out for the method {name!r}", f"It takes {', '.join(takes)}.")
    return known[name](**given)


def arguments_of(method: Method) -> dict[str, Any] | None:
    """The arguments with which its constructor makes this method again, without those that are the default.

    None where no constructor of `ALL_METHODS` makes it.
    """
    constructor = method_names().get(method.name)
    if constructor is None:
        return None
    parts = (method.predictive.weights, method.sampler, method.predictive.base, method.predictive, method)
    known = {name: value for part in parts for name, value in getattr(part, "__dict__", {}).items()}
    given = {name: known[name] for name in inspect.signature(constructor).parameters if name in known}
    try:
        return given if constructor(**given) == method else None
    except InvalidArgument:  # an argument of a base measure of the user's own
        return None


def _mixup_predictive(ratio: float, alpha: float, kernel: Kernel) -> Predictive:
    # Built first, so that a bad alpha is refused even where r = 0 leaves it unused.
    base = Mixup(alpha)
    return Predictive(ratio, base, kernel)


def _dp_mp(name: str, ratio: float, base: BaseMeasure, members: int, atoms: int | None) -> Method:
    return Method(name, Predictive(ratio, base, weights=Dirichlet(atoms)), Ensemble(members))
