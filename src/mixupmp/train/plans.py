"""From rows and a method to a plan: one function for the estimators, the command line and Python.

Default recipes: what a small dataset needs is steps, not epochs. A hundred rows make one step an epoch, sixty thousand
make 469. On tables, members share weights (`shared_mixup_mp`) and inputs are encoded piecewise linearly; the learning
rate is constant, so that one training serves for all lengths, and the length is chosen (`decide.default`,
results/tables/README.md). For members of their own weights, 150 steps (results/selection/README.md:
300 steps or a rate of 3e-3 over-fit; 80 under-train wine). For images, 300 steps for 200 rows, growing with their
cube root, half as many blends in a step as rows, and at least 20 epochs: on 200 and 400 digits, 300 to 600 steps of
AdamW give the deep ensemble an NLL as good as 600 of SGD at .05, or better; on 2,000 rows of Fashion-MNIST, 40 epochs
have a calibrated NLL of .453 (r = 0) and .421 (r = 1) on other training rows, 19 epochs .478 and .454. The recipe for
fine-tuning is a convention, not a measurement.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import ceil, log2
from typing import Literal, NamedTuple

from torch import nn

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.foreign import Json
from mixupmp.core.given_network import check_sized
from mixupmp.core.heads import Heads, frozen_before
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.methods import Method, mixup_mp, shared_mixup_mp
from mixupmp.core.plan import Plan, initial_weights
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.recipe import Recipe, some_rows
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.shared import SharedEnsemble
from mixupmp.core.spec import decode, encode
from mixupmp.core.split import split
from mixupmp.core.streams import DatasetRows, IterableRows, has_labels
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.networks.factories import NetworkChoice, check_outputs, factory_for, for_encoder
from mixupmp.networks.tabular import quantile_edges

Kind = Literal["table", "shared", "images", "text", "fine-tune", "heads"]


class DefaultRecipe(NamedTuple):
    """A recipe, how many steps a fit by it takes, and the fewest epochs."""

    recipe: Recipe
    steps: int
    fewest_epochs: int = 20


_adamw = partial(Recipe, optimizer="adamw")
RECIPES: dict[Kind, DefaultRecipe] = {
    "table": DefaultRecipe(_adamw(learning_rate=1e-3, weight_decay=0.3), 150),
    # Of members that share weights; the steps, where the length is not chosen.
    "shared": DefaultRecipe(_adamw(learning_rate=2e-3, weight_decay=1e-2, schedule="constant"), 300),
    "images": DefaultRecipe(_adamw(pseudo_batch_size=64, learning_rate=5e-3, weight_decay=0.0), 300),
    "text": DefaultRecipe(_adamw(learning_rate=1e-2, weight_decay=1e-1), 1000, 10),
    "fine-tune": DefaultRecipe(_adamw(batch_size=64, learning_rate=5e-3, body_rate=0.04, weight_decay=1e-2), 300, 3),
    # results/post-hoc/README.md
    "heads": DefaultRecipe(_adamw(batch_size=64, learning_rate=1e-2, weight_decay=1.0, schedule="cosine"), 160, 2),
}
IMAGE_ROWS, MOST_EPOCHS = 200, 1000
SHARED_HIDDEN, SHARED_DROPOUT, SHARED_MEMBERS, MEMBERS = (128, 128), 0.1, 16, 4
# From so many rows on, 4 members share weights and not 16: what limits them is not over-fitting but training, which
# gets further in less time (results/tables/README.md).
MANY_ROWS = 30_000
WELL_TRAINED, WELL_EXPLAINED = 0.95, 0.5  # training accuracy, and the share of the variance in regression
TRIED_ROWS = 16  # on which a network is tried before it is trained
SOME_ROWS = 10_000  # of streamed rows, for the bins of a table's columns; and to tell whether members are trained


def plan_for(
    dataset: Dataset,
    method: Method,
    network: NetworkChoice = None,
    recipe: Recipe | Mapping[str, Json] | None = None,
    *,
    seed: int = 0,
    validation: Rows | None = None,
    initial: Posterior | None = None,
    device: str = "cpu",
) -> Plan:
    """A plan for classifying a dataset; see `make_plan`.

    Parameters
    ----------
    dataset
        Its training rows are fitted; `data.load` and `data.load_path` give one.
    method
        As `mixup_mp(ratio=1)`.
    network
        A name of the catalog, a module, a factory; None: chosen by the kind of the rows.
    recipe
        A `Recipe`, or some of its fields over the default one.
    seed
        Of every draw.
    validation, initial, device
        As for `Plan`; `initial` is a posterior whose members are the start.

    Returns
    -------
    Plan
        For `fit` and `select`.
    """
    if len(dataset.train) == 0:
        raise BadData(f"{dataset.name} has no training rows: read it with a test_fraction below 1.")
    shape = tuple(dataset.train.inputs.shape[1:])
    task = Task(Categorical(len(dataset.classes)), dataset.standardize, shape, dataset.classes, dataset.encoder)
    return make_plan(
        dataset.train, task, method, network, recipe, seed=seed, validation=validation, initial=initial, device=device
    )


def make_plan(
    train: Rows | DatasetRows | IterableRows,
    task: Task,
    method: Method,
    network: NetworkChoice = None,
    recipe: Recipe | Mapping[str, Json] | None = None,
    *,
    fine_tune: bool = False,
    seed: int = 0,
    validation: Rows | None = None,
    initial: Posterior | None = None,
    device: str = "cpu",
) -> Plan:
    """A plan, with what is left out chosen by the size and kind of the data.

    Parameters
    ----------
    network
        See `networks.factories.factory_for`. None: the CNN for images, an MLP for tables.
    recipe
        A recipe, or some of its fields over the default one of `recipe_for`.
    fine_tune
        Start every member from the weights of `network`, a module.
    validation
        Rows to evaluate after each epoch. A method that adapts to such rows takes a share of `train` if there are none.
    initial
        A posterior whose members are the start.
    """
    kind = kind_of(task, method, fine_tune)
    network = with_edges(for_encoder(network, task.encoder), train, task, kind == "shared")
    if isinstance(method.sampler, Heads):
        if not isinstance(network, nn.Module):
            raise InvalidArgument("network", network, "a trained nn.Module, for heads on its frozen body")
        fine_tune = True  # heads start as the network's own
        check_sized(network, "network")
        # While it is open where the body ends, nothing is frozen.
        network = frozen_before(method.sampler.cut, network) if method.sampler.layer else _with_gradients(network)
    factory = factory_for(network, task.input_shape, task.likelihood.outputs, method.dropout, fine_tune=fine_tune)
    if not isinstance(recipe, Recipe):
        recipe = recipe_for(len(train), kind, recipe)
    if method.validation_fraction and validation is None and has_labels(train):
        train, held = split(train, method.validation_fraction, seed)
        validation = held.read()
    plan = Plan(method, factory, train, task, recipe, seed, validation, initial_weights(initial), device)
    some = task.standardize(train.inputs[:TRIED_ROWS].cpu()) if isinstance(train, Rows) else None
    check_outputs(plan.template, task.example(), task.likelihood, some)
    return plan


def _with_gradients(network: nn.Module) -> nn.Module:
    """The network; a copy that can be trained where all of it is frozen, as people leave networks for predictions."""
    if any(parameter.requires_grad for parameter in network.parameters()):
        return network
    copied = copy.deepcopy(network)
    for parameter in copied.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return copied


def mixup_mp_for(
    shape: tuple[int, ...],
    network: NetworkChoice,
    ratio: float = 1.0,
    alpha: float = 0.4,
    members: int | None = None,
    share_weights: bool | None = None,
    rows: int = 0,
) -> Method:
    """MixupMP for so many rows of this shape.

    Parameters
    ----------
    members
        None: 16 that share weights, from 30,000 rows on 4; or 4 that do not.
    share_weights
        None: only for tables, where neither a network nor a number of members is given.
    """
    if share_weights is None:
        share_weights = len(shape) == 1 and (network is None or network == {}) and members is None
    if share_weights:
        usual = SHARED_MEMBERS if rows < MANY_ROWS else MEMBERS
        return shared_mixup_mp(ratio, alpha, usual if members is None else members)
    return mixup_mp(ratio, alpha, MEMBERS if members is None else members)


def with_edges(
    network: NetworkChoice, train: Rows | DatasetRows | IterableRows, task: Task, shared: bool
) -> NetworkChoice:
    """The default network of members that share weights, and the edges of a piecewise linear encoding from the rows."""
    table = len(task.input_shape) == 1
    if isinstance(network, str) and network == "tabular":
        network = {"name": network}
    if (network is None or network == {}) and shared and table:
        network = {"name": "tabular", "hidden": SHARED_HIDDEN, "dropout": SHARED_DROPOUT}
    named = isinstance(network, Mapping) and network.get("name") == "tabular" and "edges" not in network
    if not (named and table):
        return network
    (rows,) = train.batches([some_rows(train, None if isinstance(train, Rows) else SOME_ROWS)])
    return {**network, "edges": quantile_edges(task.standardize(rows.inputs))}  # type: ignore[dict-item]


def kind_of(task: Task, method: Method, fine_tune: bool = False) -> Kind:
    """What the default recipe depends on."""
    if isinstance(method.sampler, Heads):
        return "heads"
    if fine_tune:
        return "fine-tune"
    if isinstance(task.encoder, Vocabulary):
        return "text"
    if len(task.input_shape) > 1:
        return "images"
    return "shared" if isinstance(method.sampler, SharedEnsemble) else "table"


def recipe_for(rows: int, kind: Kind, given: Mapping[str, Json] | None = None) -> Recipe:
    """The default recipe for so many rows, with the given fields in place of its own."""
    recipe, steps, fewest = RECIPES[kind]
    if kind == "images":
        steps = max(steps, round(steps * (rows / IMAGE_ROWS) ** (1 / 3)))
    if kind == "shared":  # larger batches for more rows: from 64 up to 256 for 20,000
        recipe = replace(recipe, batch_size=min(256, max(64, 2 ** round(log2(rows / 100)))))
    given = given or {}
    recipe = decode({**encode(recipe), **encode(given)}, Recipe, "recipe")
    if "epochs" in given:
        return recipe
    steps_an_epoch = ceil(rows / (recipe.batch_size or rows))
    return replace(recipe, epochs=min(MOST_EPOCHS, max(fewest, ceil(steps / steps_an_epoch))))


def under_trained(plan: Plan, posterior: Posterior) -> str | None:
    """What to say of members that were trained for less than half of the default steps and do not fit their rows."""
    finished = [s for s in posterior.summaries if s.diverged_at is None]
    if not finished:
        return None
    rows, size = len(plan.train), plan.recipe.batch_size
    kind = kind_of(plan.task, plan.method, getattr(plan.network, "keep_weights", False))
    default = recipe_for(rows, kind, {"batch_size": size})
    if plan.recipe.epochs >= default.epochs / 2:
        return None
    if plan.task.likelihood.classes is None:
        reached, enough, what = _explained(plan, posterior), WELL_EXPLAINED, "of their targets' variance"
    else:
        reached = sum(s.training_accuracy or 0.0 for s in finished) / len(finished)
        enough, what = WELL_TRAINED, "training accuracy"
    if reached > enough:
        return None
    steps = max(s.steps for s in finished)
    usual = default.epochs * ceil(rows / (size or rows))
    return (
        f"members reached {reached:.0%} {what} in {steps} steps; about {usual} are usual for {rows} rows: "
        "train longer, or leave epochs out"
    )


def _explained(plan: Plan, posterior: Posterior) -> float:
    """The share of the training targets' variance that the posterior's mean explains, on some of the rows."""
    (rows,) = plan.train.batches([some_rows(plan.train, SOME_ROWS)])
    means, _ = plan.task.likelihood.moments(posterior.member_outputs(rows.inputs).cpu().double())
    targets = rows.labels.cpu().double()
    spread = float(targets.var(correction=0))
    return 1.0 if spread == 0 else max(0.0, 1 - float((means.mean(0) - targets).square().mean()) / spread)
