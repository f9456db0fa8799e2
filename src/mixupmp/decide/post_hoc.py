"""From a trained network to a posterior: heads on its frozen body, each fitted to its own future of features.

Where the network is cut, the weight decay, r and alpha are chosen on rows that the network was not trained on: on its
own training rows its features look better than they are. Without such rows, all layers from the first of the last three
linear ones are fitted on, to blends alone: see results/post-hoc/README.md for the measurements. Heads start as the
network's own, and the weight decay is what makes them forget how sure it was of its rows.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from mixupmp.core.arrays import ArrayLayout, as_tensor
from mixupmp.core.cut import Cut
from mixupmp.core.cut_places import find_cuts, named_cut, no_cut
from mixupmp.core.encoders import encoded
from mixupmp.core.errors import InvalidArgument, check
from mixupmp.core.fields import Fields, RawInputs, is_several
from mixupmp.core.given_network import as_taken, check_sized, read_given
from mixupmp.core.heads import Heads, frozen_before
from mixupmp.core.kernels import Kernel, identity
from mixupmp.core.layouts import check_layout
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.member_summary import left_out
from mixupmp.core.methods import Method, mixup_mp
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Rows, Standardize
from mixupmp.core.samplers import Ensemble
from mixupmp.core.split import split
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.default import Choice
from mixupmp.decide.held_out import effective_weights
from mixupmp.decide.search import Candidate, Search
from mixupmp.decide.select import Selection, select
from mixupmp.networks.factories import Given
from mixupmp.train.features import HeadFactory, heads_plans
from mixupmp.train.plans import make_plan
from mixupmp.train.run import Engine, fit

RATIO, ALPHA = inf, 0.1  # where there are no rows to choose on
PAIRS: tuple[tuple[float, float | None], ...] = ((0.0, None), (1.0, 2.0), (inf, 0.1), (inf, 2.0))
DECAYS = (0.1, 1.0, 8.0, 30.0)  # weight decays of AdamW; the more a body has learned by heart, the larger
LAST_LAYER_DECAY = 8.0  # of heads of one layer, whose features the network has learned to separate, with no such rows
MEMBERS, COMPARED = 4, 2  # heads of a posterior, and of each candidate in a comparison


def posterior_of(
    network: nn.Module,
    X: RawInputs | ArrayLike | Rows,
    y: ArrayLike | Tensor | None = None,
    *,
    validation: tuple[RawInputs | ArrayLike, ArrayLike | Tensor] | Rows | float | None = None,
    body: str | None = None,
    members: int = MEMBERS,
    ratio: float | None = None,
    alpha: float | None = None,
    kernel: Kernel = identity,
    standardize: Standardize | Fields | None = None,
    layout: str | None = None,
    classes: tuple[str, ...] = (),
    recipe: Recipe | None = None,
    seed: int = 0,
    device: str = "cpu",
    engine: Engine = "auto",
) -> Posterior:
    """A posterior from one trained classifier: its body frozen, `members` heads fitted to futures of its features.

    Heads start as the network's own.

    Parameters
    ----------
    network
        Takes rows of X as they are and returns logits. It is copied, not changed.
    X, y
        Its training rows: floats as the network takes them; pixels, of which uint8 are divided by 255 and uint16 by
        65,535; a list of PIL images; tokens; or a dict or tuple of arrays for a network of several inputs. Class
        numbers. `Rows` bring their own labels.
    validation
        Rows that the network was *not* trained on, (X, y): they choose where it is cut, the weight decay (where there
        is no `recipe`), r and alpha, by the NLL. A share, such as .2: that much of X, for a network that was trained on
        other data. None: nothing is chosen. `MixupMPClassifier.from_network` fits a temperature to them too.
    body
        The layer whose outputs are the features, as `named_modules` names it. None: one of the last three linear layers
        is found, and what goes into it.
    members, ratio, alpha
        How many heads; r and alpha of MixupMP, where they are not to be chosen.
    kernel
        Augmentation: the features of eight augmented repeats of each row are computed.
    standardize
        Scales raw inputs for the network, as `dataset.standardize` does; None: as they are.
    layout
        The axes of X, as for `fit` of the estimators: "NHWC", "NTC", "tokens". None: as the network takes them, with
        channels last turned to channels first where it takes only these.
    classes
        Their names; numbers where left out.
    recipe, seed, device, engine
        Of the heads' fit.

    Returns
    -------
    Posterior
        A row's features are computed once for all members.

    Examples
    --------
    >>> posterior = posterior_of(network, X_train, y_train, validation=(X_val, y_val))  # doctest: +SKIP
    """
    check(isinstance(network, nn.Module), "network", network, "a trained nn.Module, for heads on its frozen body")
    check_sized(network, "network")
    check_layout(layout)
    train, scaling, encoder = _training_rows(network, X, y, layout, standardize)
    held = None
    if isinstance(validation, float):
        train, held = split(train, validation, seed)
    elif validation is not None:
        held = _held_out(validation, scaling, encoder)
    count = len(classes) or int(train.labels.max()) + 1
    pixels = train.inputs.dtype == torch.uint8 if isinstance(scaling, Standardize) else None
    task = Task(Categorical(count), scaling, tuple(train.inputs.shape[1:]), classes, encoder, pixels)
    method = heads_method(members, kernel)
    plan = make_plan(train, task, method, network, recipe, seed=seed, validation=held, device=device)
    decays = DECAYS if recipe is None else ()
    # A posterior has no temperature of its own, so what is chosen must do without.
    choice = fit_heads(plan, body=body, ratio=ratio, alpha=alpha, decays=decays, calibrate=False, engine=engine)
    assert choice.posterior is not None
    return choice.posterior


def _training_rows(
    network: nn.Module,
    X: Any,
    y: ArrayLike | Tensor | None,
    layout: str | None,
    standardize: Standardize | Fields | None,
) -> tuple[Rows, Standardize | Fields, ArrayLayout | None]:
    """X and y as rows, what scales them for the network, and how to read more of X where it is not such rows."""
    if isinstance(X, Rows):
        scaling = standardize or as_taken(network, X.inputs)
        scaling.pack(X.inputs)  # refuses what the network cannot take
        return X, scaling, None
    inputs, scaling, encoder = read_given(network, _plain(X, "X"), layout, standardize, "X")
    return _rows(inputs, y, "X"), scaling, encoder


def _plain(X: Any, name: str) -> Any:
    """X, unless it is a Dataset."""
    if isinstance(X, TorchDataset | DataLoader):
        hint = "MixupMPClassifier.from_network(network).fit(dataset, None) reads it."
        raise InvalidArgument(name, type(X).__name__, "arrays or tensors in memory", hint)
    return X


def _held_out(validation: Any, scaling: Standardize | Fields, encoder: ArrayLayout | None) -> Rows:
    if isinstance(validation, Rows):
        scaling.pack(validation.inputs)
        return validation
    known = isinstance(validation, tuple) and len(validation) == 2
    check(known, "validation", validation, "rows (X, y), a share of X as .2, or None")
    X, y = _plain(validation[0], "validation"), validation[1]
    if encoder is None and not is_several(X):
        X = as_tensor(X, "validation")
    return _rows(scaling.pack(encoded(encoder, X)), y, "validation")


def _rows(inputs: Tensor, y: ArrayLike | Tensor | None, name: str) -> Rows:
    check(y is not None, "y", None, f"the label of every row of {name}")
    given = y.cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    hint = "MixupMPClassifier.from_network takes any labels."
    check(given.dtype.kind in "biu", "y", str(given.dtype), "whole numbers of classes", hint)
    labels = torch.as_tensor(given)
    check(len(inputs) == len(labels), "y", len(labels), f"{len(inputs)} labels, one for each row of {name}")
    return Rows(inputs.float() if inputs.dtype == torch.float64 else inputs, labels.long())


def heads_method(members: int | None, kernel: Kernel = identity) -> Method:
    """MixupMP with heads on a body that is to be found."""
    method = mixup_mp(RATIO, ALPHA, kernel=kernel)
    return replace(method, sampler=Heads(MEMBERS if members is None else members))


def fit_heads(
    plan: Plan,
    *,
    body: str | None = None,
    ratio: float | None = None,
    alpha: float | None = None,
    decays: tuple[float, ...] = DECAYS,
    calibrate: bool = True,
    engine: Engine = "auto",
) -> Choice:
    """Fit heads to futures of features; what is open is chosen on the plan's validation rows, if it has any.

    One thing after another: the cut, the weight decay among `decays` (none: the recipe's), then r and alpha; by the
    NLL, with `calibrate` that after a temperature, which is then fitted.
    """
    cuts = _cuts(plan, body)
    whole = [_with_cut(plan, cut) for cut in (cuts if plan.validation is not None else cuts[-1:])]
    plans = list(zip(whole, heads_plans(whole, plan.template), strict=True))
    fixed = Candidate(RATIO if ratio is None else ratio, ALPHA if alpha is None else alpha)
    selection, calibrator = None, None
    if plan.validation is not None:
        chosen, on_features = _best(plans, fixed, calibrate, engine)
        recipes = [replace(plan.recipe, weight_decay=decay) for decay in decays] or [plan.recipe]
        pairs = [_with_recipe((chosen, on_features), recipe) for recipe in recipes]
        plans = [_best(pairs, fixed, calibrate, engine)]
        selection = _select(plans[0][1], _pairs(ratio, alpha), calibrate, engine)
    elif decays and _is_one_layer(plans[0][1].template):
        plans = [_with_recipe(plans[0], replace(plan.recipe, weight_decay=LAST_LAYER_DECAY))]
    candidate = fixed if selection is None else selection.chosen
    chosen, on_features = (candidate.applied(own) for own in plans[0])
    heads = fit(replace(on_features, validation=None), engine=engine)
    if calibrate and (held := on_features.validation) is not None:
        probabilities, weights = heads.probabilities(held.inputs).cpu(), effective_weights([held])
        calibrator = fit_temperature(probabilities, held.labels, warn=False, weights=weights)
    return Choice(chosen, selection, calibrator, posterior=_completed(chosen, on_features, heads))


def _with_recipe(plans: tuple[Plan, Plan], recipe: Recipe) -> tuple[Plan, Plan]:
    whole, on_features = plans
    return replace(whole, recipe=recipe), replace(on_features, recipe=recipe)


def _is_one_layer(head: nn.Module) -> bool:
    return sum(1 for module in head.modules() if next(module.parameters(recurse=False), None) is not None) == 1


def _best(plans: list[tuple[Plan, Plan]], candidate: Candidate, calibrate: bool, engine: Engine) -> tuple[Plan, Plan]:
    """Of plans and their heads' plans those with the smallest NLL on the validation rows."""
    if len(plans) == 1:
        return plans[0]
    pair = ((candidate.ratio, candidate.alpha),)
    scores = [_select(on_features, pair, calibrate, engine).results[0].score for _, on_features in plans]
    return plans[min(range(len(plans)), key=scores.__getitem__)]


def _select(plan: Plan, pairs: tuple[tuple[float, float | None], ...], calibrate: bool, engine: Engine) -> Selection:
    """Compare pairs of r and alpha by a few members each, on the plan's validation rows."""
    method = replace(plan.method, sampler=Ensemble(min(COMPARED, plan.method.sampler.networks)))
    search = Search(pairs=pairs, standard_errors=0.0, calibrate=calibrate)
    return select(replace(plan, method=method), search, engine=engine, held_out=plan.validation)


def _cuts(plan: Plan, body: str | None) -> list[Cut]:
    (first,) = plan.train.batches([torch.arange(2)])
    inputs = plan.task.standardize(first.inputs)
    if body is not None:
        return [named_cut(plan.template, body, inputs)]
    cuts = find_cuts(plan.template, inputs)
    if not cuts:
        raise no_cut(plan.template, inputs)
    return cuts


def _pairs(ratio: float | None, alpha: float | None) -> tuple[tuple[float, float | None], ...]:
    """The candidates that agree with what is fixed; what is fixed itself, where none of them does."""
    ratios = [r for r, _ in PAIRS] if ratio is None else [ratio]
    pairs = [(r, None if r == 0 else a) for r in dict.fromkeys(ratios) for a in _alphas(r, alpha)]
    return tuple(dict.fromkeys(pairs))


def _alphas(ratio: float, alpha: float | None) -> list[float]:
    known = [a for r, a in PAIRS if r == ratio and a is not None]
    return [alpha] if alpha is not None else known or [ALPHA]


def _with_cut(plan: Plan, cut: Cut) -> Plan:
    """The plan with its network frozen before this cut."""
    sampler = plan.method.sampler
    assert isinstance(sampler, Heads)
    assert isinstance(plan.network, Given)
    method = replace(plan.method, sampler=replace(sampler, layer=cut.layer, at=cut.at))
    return replace(plan, method=method, network=Given(frozen_before(cut, plan.network.network), keep_weights=True))


def _completed(plan: Plan, on_features: Plan, heads: Posterior) -> Posterior:
    """The posterior of whole networks, from that of heads on features."""
    assert isinstance(on_features.network, HeadFactory)
    complete = replace(on_features.network, whole=True).completed
    networks, out = iter(heads.networks), left_out(heads.summaries)
    return plan.posterior(
        [(s, {} if s.member in out else complete(next(networks).state_dict())) for s in heads.summaries]
    )
