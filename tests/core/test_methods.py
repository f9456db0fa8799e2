"""Every method of the paper, and how they are each other's special cases."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

import mixupmp
from mixupmp.core.base_measures import BaseMeasure, ClassAdjustedMixup, Mixture, Mixup, Perturbed, WarpedMixup
from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.kernels import cifar_kernel, identity
from mixupmp.core.methods import (
    ALL_METHODS,
    Method,
    arguments_of,
    bayesian_bootstrap,
    ca_mixup_mc,
    deep_ensemble,
    dp_mp_perturbed,
    dp_mp_uniform,
    laplace,
    martingale_posterior,
    mc_dropout,
    method_named,
    method_names,
    mixup,
    mixup_ensemble,
    mixup_mc,
    mixup_mp,
    mixup_mp_mc,
    mixup_mp_single,
    reg_mixup,
    single_network,
    stabilized_bootstrap,
)
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.predictive import Predictive
from mixupmp.core.recipe import Recipe
from mixupmp.core.samplers import DropoutMasks, Ensemble
from mixupmp.core.spec import decode, encode
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit
from small_data import small_images, small_table

RECIPE = Recipe(epochs=2, batch_size=16, learning_rate=0.05)
PARAMETERS = [
    pytest.param(
        make,
        marks=pytest.mark.skipif(
            make is laplace and importlib.util.find_spec("laplace") is None, reason="laplace-torch is not installed"
        ),
        id=make.__name__,
    )
    for make in ALL_METHODS
]


def built(make: Callable[..., Method]) -> Method:
    """The method at a size for tests, and with validation rows enough for a small table."""
    if make is ca_mixup_mc:
        return make(members=3, validation_fraction=0.2)
    return make(members=3) if "members" in inspect.signature(make).parameters else make()


def plan_of(method: Method, seed: int = 0, network: str = "mlp") -> Plan:
    dataset = small_table() if network == "mlp" else small_images()
    return plan_for(dataset, method, network, RECIPE, seed=seed)


@cache
def fitted(make: Callable[..., Method], seed: int = 0) -> Posterior:
    return fit(plan_of(built(make), seed), engine="inline")


def bits(posterior: Posterior) -> list[dict[str, Tensor]]:
    return [network.state_dict() for network in posterior.networks]


def same(first: list[dict[str, Tensor]], second: list[dict[str, Tensor]]) -> bool:
    """Bit for bit."""
    return len(first) == len(second) and all(
        one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
        for one, two in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("make", PARAMETERS)
def test_every_method_fits_and_gives_probabilities(make: Callable[..., Method]) -> None:
    method, posterior = built(make), fitted(make)
    inputs = small_table().test.inputs
    each = posterior.member_probabilities(inputs)
    assert posterior.members == each.shape[0]
    assert each.shape[1:] == (60, 3)
    assert bool((each >= 0).all())
    assert torch.allclose(each.sum(-1), torch.ones(each.shape[:2]), atol=1e-5)
    together = posterior.probabilities(inputs)
    assert torch.allclose(together.sum(-1), torch.ones(60), atol=1e-5)
    assert torch.allclose(together, each.mean(0), atol=1e-6)
    assert len(posterior.networks) == posterior.wanted
    assert posterior.wanted == method.sampler.networks == len(posterior.summaries)
    assert make.__doc__
    assert method.name == make.__name__.replace("_", "-")


@pytest.mark.parametrize("make", PARAMETERS)
def test_the_same_seed_gives_the_same_bits_and_another_gives_others(make: Callable[..., Method]) -> None:
    first, other = fitted(make), fitted(make, 1)
    torch.manual_seed(99)
    again = fit(plan_of(built(make)), engine="inline")
    assert same(bits(first), bits(again))
    assert not same(bits(first), bits(other))
    inputs = small_table().test.inputs
    assert torch.equal(first.member_outputs(inputs), again.member_outputs(inputs))
    assert not torch.equal(first.member_outputs(inputs), other.member_outputs(inputs))


@pytest.mark.parametrize("make", PARAMETERS)
def test_a_member_by_itself_is_the_member_of_the_ensemble(make: Callable[..., Method]) -> None:
    whole = fitted(make)
    networks = len(whole.networks)
    for member in {0, networks - 1}:
        alone = fit(plan_of(built(make)), engine="inline", members=(member,))
        assert same(bits(alone), [bits(whole)[member]])
        assert alone.wanted == 1
    if networks > 2:
        some = fit(plan_of(built(make)), engine="inline", members=(2, 0), keep_collapsed=True)
        assert same(bits(some), [bits(whole)[2], bits(whole)[0]])


@pytest.mark.parametrize("network", ["mlp", "cnn"])
@pytest.mark.parametrize(
    ("general", "special"),
    [
        (mixup_mp(0.0, 2.0, 2), deep_ensemble(2)),
        (mixup_mp(inf, 0.5, 2), mixup_ensemble(0.5, 2)),
        (mixup_mp(0.0, 2.0, 1), single_network()),
        (deep_ensemble(1), single_network()),
        (mixup_mp(0.7, 0.5, 1), mixup_mp_single(0.7, 0.5)),
        (mixup_mp(inf, 0.5, 1), mixup(0.5)),
        (mixup_ensemble(0.5, 1), mixup(0.5)),
        (mixup_mp_mc(0.0, members=2), mc_dropout(2)),
        (mixup_mp_mc(inf, 0.5, 2), mixup_mc(0.5, 2)),
        (dp_mp_perturbed(0.0, members=2), bayesian_bootstrap(2)),
        (dp_mp_uniform(0.0, members=2), bayesian_bootstrap(2)),
        (deep_ensemble(2, kernel=lambda x: x), deep_ensemble(2)),
    ],
    ids=lambda method: method.name,
)
def test_special_cases_are_bit_for_bit_the_same(general: Method, special: Method, network: str) -> None:
    """r = 0 is the deep ensemble, r = infinity the Mixup ensemble, B = 1 the single networks, c = 0 the bootstrap."""
    one, two = (fit(plan_of(method, network=network), engine="inline") for method in (general, special))
    assert same(bits(one), bits(two))
    inputs = (small_table() if network == "mlp" else small_images()).test.inputs
    assert torch.equal(one.probabilities(inputs), two.probabilities(inputs))


def test_r_of_zero_is_the_deep_ensemble_with_a_kernel_too() -> None:
    kernel = cifar_kernel()
    one, two = (
        fit(plan_of(method, network="cnn"), engine="inline")
        for method in (mixup_mp(0.0, members=2, kernel=kernel), deep_ensemble(2, kernel))
    )
    assert same(bits(one), bits(two))


def test_methods_differ_where_they_should() -> None:
    methods = [single_network, mixup, mixup_mp_single, bayesian_bootstrap, stabilized_bootstrap, dp_mp_perturbed]
    firsts = [bits(fitted(make))[0] for make in methods]
    for place, one in enumerate(firsts):
        for two in firsts[place + 1 :]:
            assert not same([one], [two])


def test_class_adjusted_mixup_starts_as_mixup() -> None:
    """In its first epoch it mixes every class, as Mixup-MC does on the same rows."""
    method = ca_mixup_mc(0.5, 3, validation_fraction=0.2)
    recipe = Recipe(epochs=1, batch_size=16)
    plan = plan_for(small_table(), method, "mlp", recipe)
    plain = Plan(mixup_mc(0.5, 3), plan.network, plan.train, plan.task, recipe)
    assert same(bits(fit(plan, engine="inline")), bits(fit(plain, engine="inline")))


@pytest.mark.parametrize("make", [mc_dropout, mixup_mp_mc, mixup_mc])
def test_no_dropout_leaves_one_distribution(make: Callable[..., Method]) -> None:
    posterior = fit(plan_of(make(members=4, dropout=0.0)), engine="inline")
    each = posterior.member_probabilities(small_table().test.inputs)
    assert posterior.members == 4
    assert torch.equal(each, each[:1].expand_as(each))
    assert "no dropout" in posterior.notes[0]
    kept = fitted(make).member_probabilities(small_table().test.inputs)
    assert not torch.equal(kept[0], kept[1])


def test_every_method_has_a_name_and_can_be_built_by_it() -> None:
    assert len(method_names()) == len(ALL_METHODS) >= 18
    for name, make in method_names().items():
        assert method_named(name) == make()
        assert method_named(name).name == name
    assert method_named("mixup-mp", ratio=0.5, alpha=None, members=7) == mixup_mp(0.5, members=7)


def test_dropout_and_validation_are_the_papers() -> None:
    assert {make().dropout for make in (mc_dropout, mixup_mp_mc, mixup_mc, ca_mixup_mc)} == {0.3}
    assert {make().dropout for make in ALL_METHODS} == {0.0, 0.3}
    assert ca_mixup_mc().validation_fraction == 0.05


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mixup_mp(ratio=-1), "ratio must be"),
        (lambda: mixup_mp(ratio=float("nan")), "ratio must be"),
        (lambda: mixup_mp(ratio=0, alpha=0), "alpha must be"),
        (lambda: mixup_mp(alpha=-2), "alpha must be"),
        (lambda: mixup_mp(members=0), "members must be"),
        (lambda: mixup(alpha=0), "alpha must be"),
        (lambda: mixup_ensemble(alpha=float("nan")), "alpha must be"),
        (lambda: mixup_mp_single(ratio=-0.1), "ratio must be"),
        (lambda: deep_ensemble(0), "members must be"),
        (lambda: deep_ensemble(2.0), "members must be"),  # type: ignore[arg-type]
        (lambda: deep_ensemble(kernel="crop"), "kernel must be"),  # type: ignore[arg-type]
        (lambda: bayesian_bootstrap(-1), "members must be"),
        (lambda: stabilized_bootstrap(bound=1), "bound must be"),
        (lambda: dp_mp_perturbed(variance=0), "variance must be"),
        (lambda: dp_mp_perturbed(atoms=0), "atoms must be"),
        (lambda: dp_mp_perturbed(ratio=-1), "ratio must be"),
        (lambda: dp_mp_uniform(low=1, high=0), "high must be"),
        (lambda: mc_dropout(dropout=1), "dropout must be"),
        (lambda: mc_dropout(dropout=-0.1), "dropout must be"),
        (lambda: mc_dropout(dropout="0.3"), "dropout must be"),  # type: ignore[arg-type]
        (lambda: mixup_mp_mc(members=0), "members must be"),
        (lambda: mixup_mc(alpha=0), "alpha must be"),
        (lambda: ca_mixup_mc(alpha=0), "alpha must be"),
        (lambda: ca_mixup_mc(validation_fraction=0), "validation_fraction must be"),
        (lambda: ca_mixup_mc(validation_fraction=1), "validation_fraction must be"),
        (lambda: laplace(subset="some"), "subset must be"),
        (lambda: laplace(structure="low-rank"), "structure must be"),
        (lambda: Method("m", Predictive(), Ensemble(2), validation_fraction=-0.5), "validation_fraction must be"),
        (lambda: Method("m", Predictive(inf, ClassAdjustedMixup(1.0)), DropoutMasks(2)), "validation_fraction must be"),
        (lambda: Method("m", Mixup(1.0), Ensemble(2)), "predictive must be"),  # type: ignore[arg-type]
        (lambda: Method("m", Predictive(), 4), "sampler must be"),  # type: ignore[arg-type]
        (lambda: method_named("deep-ensemble", alpha=1.0), "alpha must be left out for the method 'deep-ensemble'"),
    ],
)
def test_bad_settings_are_named(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build()


def test_an_unknown_method_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown method 'mixup-pm'\. Did you mean 'mixup-mp'"):
        method_named("mixup-pm")


@pytest.mark.parametrize("constructor", [mixup_mp, mixup_mp_single, mixup_mp_mc, dp_mp_perturbed, dp_mp_uniform])
def test_the_papers_r_is_the_ratio(constructor: Callable[..., Method]) -> None:
    assert constructor(r=0.3) == constructor(ratio=0.3) == constructor(0.3)
    for both in (lambda: constructor(0.3, r=0.3), lambda: constructor(ratio=0.3, r=0.3)):
        with pytest.raises(InvalidArgument, match="the same number"):
            both()


def test_the_estimators_are_at_the_top_too() -> None:
    from mixupmp.estimators import MixupMPClassifier

    assert mixupmp.MixupMPClassifier is MixupMPClassifier
    for name in mixupmp.__all__:
        assert getattr(mixupmp, name) is not None
    with pytest.raises(AttributeError, match="MixupClassifier"):
        _ = mixupmp.MixupClassifier


def test_reg_mixup_is_one_sample_of_mixup_mp() -> None:
    """Pinto et al. 2022: the data and, with equal weight, blends; their alpha is 10 or 20."""
    regularized = reg_mixup()
    assert regularized.predictive == mixup_mp(ratio=1.0, alpha=10.0).predictive
    assert regularized.sampler == Ensemble(1)


@pytest.mark.parametrize("base", [WarpedMixup(0.4), Mixture((Mixup(), Perturbed()))], ids=repr)
def test_any_base_measure_makes_a_method_that_is_written_down(base: BaseMeasure) -> None:
    method = martingale_posterior(0.5, base, members=2)
    assert arguments_of(method) == {"ratio": 0.5, "base": base, "members": 2, "kernel": identity}
    assert decode(encode(method), Method) == method
    assert fit(plan_of(method)).members == 2
