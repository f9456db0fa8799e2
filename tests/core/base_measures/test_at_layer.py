"""Base measures that act inside the network."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from mixupmp import (
    AtLayer,
    Categorical,
    Dirichlet,
    Ensemble,
    Method,
    MixupMPClassifier,
    Perturbed,
    Predictive,
    Recipe,
    Rows,
    Task,
    fit,
    plan_for,
)
from mixupmp.core.base_measures import BaseMeasure, Mixup, WarpedMixup
from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.fields import Fields
from mixupmp.core.plan import Plan
from mixupmp.networks import CNN, MLP
from mixupmp.train.features import on_fixed_features
from mixupmp.train.forward import forward_inside
from mixupmp.train.member import MemberFit
from mixupmp.train.run import choose_engine
from small_data import small_images, small_table

DATA = small_table(40)
RECIPE = Recipe(epochs=3, batch_size=16, learning_rate=0.05)


def plan(base: BaseMeasure, network: object, ratio: float = 1.0) -> Plan:
    method = Method("inside", Predictive(ratio, base), Ensemble(2))
    return plan_for(DATA, method, network, RECIPE)  # type: ignore[arg-type]


def weights(given: Plan, engine: str = "inline") -> list[Tensor]:
    networks = fit(given, engine=engine).networks  # type: ignore[arg-type]
    return [value for network in networks for value in network.state_dict().values()]


@pytest.mark.parametrize("ratio", [0.5, inf])
@pytest.mark.parametrize("base", [Mixup(0.5), Perturbed(0.1)], ids=["mixup", "perturbed"])
def test_at_the_input_of_the_first_layer_it_is_the_base_measure_itself(base: BaseMeasure, ratio: float) -> None:
    """`Flatten` changes nothing in a table, so blending what comes out of it is blending raw inputs."""
    inside = weights(plan(AtLayer(base, "0"), lambda: MLP(4, 3, hidden=(8,)), ratio))
    torch.testing.assert_close(inside, weights(plan(base, lambda: MLP(4, 3, hidden=(8,)), ratio)))


def test_what_a_linear_layer_gives_for_a_blend_is_the_blend_of_what_it_gives() -> None:
    """So before the first ReLU manifold Mixup is Mixup, and after it is not."""
    given = weights(plan(Mixup(0.5), lambda: MLP(4, 3, hidden=(8,))))
    torch.testing.assert_close(weights(plan(AtLayer(Mixup(0.5), "1"), lambda: MLP(4, 3, hidden=(8,)))), given)
    later = weights(plan(AtLayer(Mixup(0.5), "2"), lambda: MLP(4, 3, hidden=(8,))))
    assert not torch.allclose(later[0], given[0], atol=1e-4)


@pytest.mark.parametrize("ratio", [1.0, inf])
def test_on_a_frozen_body_the_vectorized_engine_gives_the_reference(ratio: float, monkeypatch) -> None:
    """Features are computed once and blended; the reference runs the body at every step and blends inside."""
    torch.manual_seed(0)
    network = MLP(4, 3, hidden=(8, 6))
    network[1].requires_grad_(False)
    given = plan(AtLayer(Mixup(0.5), "2"), network, ratio)
    fitted, why_not = on_fixed_features(given)
    assert why_not is None
    assert choose_engine(fitted, 2) == "vectorized"
    fast = weights(given, "vectorized")
    with monkeypatch.context() as patch:
        patch.setattr("mixupmp.train.run.on_fixed_features", lambda plan: (plan, None))
        torch.testing.assert_close(fast, weights(given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ratio", [0.5, inf])
@pytest.mark.parametrize(("layer", "at"), [("1", "output"), ("2", "output"), ("3", "input"), ("4", "output")])
@pytest.mark.parametrize("base", [Mixup(0.5), WarpedMixup(0.5), Perturbed(0.1)], ids=["mixup", "warped", "perturbed"])
def test_inside_an_mlp_the_vectorized_engine_gives_the_reference(
    base: BaseMeasure, layer: str, at: Literal["input", "output"], ratio: float
) -> None:
    """All layers are trained; those before the cut by the slopes of the blends too."""
    given = plan(AtLayer(base, layer, at), lambda: MLP(4, 3, hidden=(8, 6)), ratio)
    assert choose_engine(given, 2) == "vectorized"
    torch.testing.assert_close(weights(given, "vectorized"), weights(given), rtol=1e-5, atol=1e-5)


def test_weighted_rows_and_more_pseudo_rows_inside_an_mlp() -> None:
    given = plan(AtLayer(Mixup(0.5), "2"), lambda: MLP(4, 3, hidden=(8, 6)))
    rows = given.train
    assert isinstance(rows, Rows)
    weighted = Rows(rows.inputs, rows.labels, torch.linspace(0.5, 1.5, len(rows)))
    given = replace(given, train=weighted, recipe=replace(RECIPE, pseudo_batch_size=24))
    torch.testing.assert_close(weights(given, "vectorized"), weights(given), rtol=1e-5, atol=1e-5)


def test_blends_of_inputs_or_outputs_and_of_unknown_layers_are_left_to_the_reference() -> None:
    for layer in ("0", "3"):
        assert choose_engine(plan(AtLayer(Mixup(), layer), lambda: MLP(4, 3, hidden=(8,))), 2) != "vectorized"
    with pytest.raises(UnknownName, match="layer"):
        fit(plan(AtLayer(Mixup(), "9"), lambda: MLP(4, 3, hidden=(8,))))


def test_where_layers_before_it_are_trained_it_says_so() -> None:
    network = MLP(4, 3, hidden=(8, 6))
    network[3].requires_grad_(False)
    _, why_not = on_fixed_features(plan(AtLayer(Mixup(0.5), "3"), network))
    assert why_not is not None
    assert "layers before the output of '3' are trained" in why_not


class Words(nn.Module):
    """A classifier of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(tokens)).mean(1))


def test_tokens_are_blended_after_the_embedding() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(80) % 2
    X = torch.randint(0, 15, (80, 6), generator=generator) + 15 * y[:, None]
    recipe = Recipe(epochs=40, optimizer="adamw", learning_rate=0.05)
    model = MixupMPClassifier(1.0, 0.5, 2, network=Words, mix_layer="embedding", recipe=recipe, random_state=0)
    model.fit(X.numpy(), y.numpy(), layout="tokens")
    assert isinstance(model.method_.predictive.base, AtLayer)
    assert model.alpha_ == 0.5
    assert model.score(X.numpy(), y.numpy()) > 0.95


class Masked(nn.Module):
    """A classifier of tokens by name, whose mask is used after the embedding; `looks` at the tokens there too."""

    def __init__(self, looks: bool = False) -> None:
        super().__init__()
        self.embedding, self.head, self.looks = nn.Embedding(30, 8), nn.Linear(8, 2), looks

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        values = torch.tanh(self.embedding(input_ids)) * attention_mask[..., None]
        last = (input_ids > 20).sum(1, keepdim=True) if self.looks else 0.0
        return self.head(values.sum(1) / attention_mask.sum(1, keepdim=True)) + last


def masked_rows() -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(80) % 2
    ids = torch.randint(0, 15, (80, 6), generator=generator) + 15 * y[:, None]
    mask = torch.arange(6) < torch.randint(2, 7, (80, 1), generator=generator)
    ids = torch.where(mask, ids, torch.randint(0, 30, (80, 6), generator=generator))  # what a mask hides misleads
    return {"input_ids": ids, "attention_mask": mask.long()}, y


@pytest.mark.parametrize("ratio", [1.0, inf])
def test_embeddings_are_blended_where_a_mask_is_used_after_them(ratio: float) -> None:
    X, y = masked_rows()
    recipe = Recipe(epochs=40, optimizer="adamw", learning_rate=0.05, pseudo_batch_size=30)
    model = MixupMPClassifier(ratio, 0.5, 2, network=Masked, mix_layer="embedding", recipe=recipe, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.95
    with pytest.raises(InvalidArgument, match="Name another layer"):
        model.set_params(network=partial(Masked, True)).fit(X, y)


def test_the_mask_of_a_blend_is_the_union_of_masks() -> None:
    """The pseudo rows' masks are those of the pairs whose embeddings are blended, with the same draws."""
    X, y = masked_rows()
    fields = Fields.of(X)
    rows = Rows(fields.pack(X), y)
    method = Method("m", Predictive(inf, AtLayer(Mixup(0.5), "embedding")), Ensemble(1))
    whole = Plan(method, Masked, rows, Task(Categorical(2), fields, fields.shape), Recipe(batch_size=None))
    member = MemberFit(whole, 0)
    seen = next(iter(member.future.batches([torch.arange(80)], member.draws)))
    given: list[Tensor] = []
    member.network.register_forward_pre_hook(lambda module, args, kwargs: given.append(kwargs), with_kwargs=True)
    twin = torch.Generator().set_state(member.draws.get_state())
    assert member.inside is not None
    outputs, batch = forward_inside(member.network, member.inside, member.future, seen.inputs, seen, member.draws)
    assert len(outputs) == len(batch.targets) == 80
    pairs = member.future.with_pseudo_rows(seen._replace(inputs=torch.eye(80)), twin).inputs > 0
    union = (pairs.float() @ X["attention_mask"].float()) > 0
    assert torch.equal(given[0]["attention_mask"][80:].bool(), union)


def test_images_inside_a_convolutional_network() -> None:
    data = small_images(36)
    method = Method("inside", Predictive(1.0, AtLayer(Mixup(), "first")), Ensemble(1))
    posterior = fit(plan_for(data, method, lambda: CNN(1, (20, 20), 3), RECIPE))
    assert posterior.probabilities(data.test.inputs).shape == (36, 3)


class Around(nn.Module):
    """What goes around the layer has as many rows as the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(inputs + self.inner(inputs))


def test_wrong_places_are_named() -> None:
    with pytest.raises(InvalidArgument, match="depend on the values there alone"):
        fit(plan(AtLayer(Mixup(), "inner"), Around))
    with pytest.raises(UnknownName, match="layer 'embedding'"):
        fit(plan(AtLayer(Mixup()), Around))
    with pytest.raises(InvalidArgument, match="Atoms that are drawn once"):
        Predictive(1.0, AtLayer(Mixup(), "inner"), weights=Dirichlet())
    with pytest.raises(InvalidArgument, match="the name of a layer"):
        AtLayer(Mixup(), "")
