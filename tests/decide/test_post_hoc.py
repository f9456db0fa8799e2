"""From a trained network to a posterior of heads on its body."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import mixupmp
from mixupmp import MixupMPClassifier, Recipe, Rows, Standardize, posterior_of
from mixupmp.core.cut import Cut
from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.heads import HeadsPosterior
from mixupmp.core.kernels import PadCrop
from mixupmp.decide import post_hoc
from mixupmp.decide.post_hoc import DECAYS
from mixupmp.networks import CNN
from small_data import small_images, small_table

DATA = small_table(90)
QUICK = Recipe(epochs=60, optimizer="adamw", learning_rate=1e-2)


def trained(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(network.parameters(), 1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(DATA.train.inputs), DATA.train.labels).backward()
        optimizer.step()
    return network


NETWORK = trained()


def test_the_body_stays_and_heads_differ() -> None:
    before = {name: value.clone() for name, value in NETWORK.state_dict().items()}
    posterior = posterior_of(NETWORK, DATA.train.inputs, DATA.train.labels, members=3, recipe=QUICK)
    assert isinstance(posterior, HeadsPosterior)
    assert posterior.cut == Cut("3", "input")  # the first of the linear layers that have weights before them
    assert NETWORK.training
    assert all(parameter.requires_grad for parameter in NETWORK.parameters())
    for name, value in NETWORK.state_dict().items():
        assert torch.equal(value, before[name])
    first, second, _ = (network.state_dict() for network in posterior.networks)
    assert torch.equal(first["0.weight"], NETWORK.state_dict()["0.weight"])
    assert first["0.weight"].data_ptr() == second["0.weight"].data_ptr()
    assert not torch.equal(first["3.weight"], second["3.weight"])


def test_members_are_whole_networks_and_the_body_is_run_once() -> None:
    posterior = posterior_of(NETWORK, DATA.train, members=3, recipe=QUICK)
    alone = torch.stack([network(DATA.test.inputs) for network in posterior.networks])
    runs: list[int] = []
    posterior.networks[0][0].register_forward_hook(lambda *_: runs.append(1))
    torch.testing.assert_close(posterior.member_outputs(DATA.test.inputs), alone, rtol=1e-4, atol=1e-5)
    assert len(runs) == 1


def test_heads_of_standardized_features_are_put_back_into_the_network() -> None:
    """The heads that were fitted, on standardized features, answer as the whole networks do on inputs."""
    seen: list[torch.Tensor] = []
    original = post_hoc._completed

    def recorded(plan, on_features, heads):
        seen.append(heads.member_outputs(on_features.train.inputs))
        return original(plan, on_features, heads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(post_hoc, "_completed", recorded)
        posterior = posterior_of(NETWORK, DATA.train, members=2, recipe=QUICK)
    torch.testing.assert_close(posterior.member_outputs(DATA.train.inputs), seen[0], rtol=1e-3, atol=1e-4)


def test_heads_start_as_the_networks_own() -> None:
    """Before its first step a head makes of standardized features what the network makes of inputs."""
    starts: list[torch.Tensor] = []
    original = post_hoc.fit

    def recorded(plan, **options):
        features = plan.task.standardize(plan.train.inputs)
        assert plan.task.standardize.mean
        starts.extend(plan.build(member).eval()(features) for member in range(2))
        return original(plan, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(post_hoc, "fit", recorded)
        posterior_of(NETWORK, DATA.train, members=2, recipe=QUICK)
    expected = trained().eval()(DATA.train.inputs)
    for start in starts:
        torch.testing.assert_close(start, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("body", "decay"), [("3", 8.0), ("1", 1.0)])
def test_heads_of_one_layer_forget_faster(body: str, decay: float) -> None:
    posterior = posterior_of(NETWORK, DATA.train, body=body, members=1)
    assert posterior.origin is not None
    assert posterior.origin["spec"]["recipe"]["weight_decay"] == decay


def test_a_fit_by_the_sampler_gives_the_same_members(tmp_path) -> None:
    """`posterior_of` and `fit` of a plan with `Heads`, also in a run folder, are one thing."""
    posterior = posterior_of(NETWORK, DATA.train, members=2, ratio=1.0, alpha=0.5, recipe=QUICK)
    method = mixupmp.Method("heads", mixupmp.Predictive(1.0, mixupmp.Mixup(0.5)), mixupmp.Heads(2, "3"))
    plan = mixupmp.plan_for(mixupmp.Dataset("t", DATA.train, DATA.test, tuple("abc")), method, NETWORK, QUICK)
    again = mixupmp.fit(plan, run=tmp_path / "run")
    assert torch.equal(posterior.member_outputs(DATA.test.inputs), again.member_outputs(DATA.test.inputs))
    loaded = mixupmp.load(tmp_path / "run", network=trained)
    assert isinstance(loaded, HeadsPosterior)
    assert torch.equal(loaded.member_outputs(DATA.test.inputs), again.member_outputs(DATA.test.inputs))


def test_validation_rows_choose_the_cut_r_and_alpha() -> None:
    model = MixupMPClassifier.from_network(NETWORK, members=2, random_state=0).set_params(recipe=QUICK)
    y = np.array(["x", "y", "z"])[DATA.train.labels]
    model.fit(DATA.train.inputs.numpy()[:60], y[:60], validation=(DATA.train.inputs.numpy()[60:], y[60:]))
    tried = {(r.candidate.ratio, r.candidate.alpha) for r in model.selection_.results}
    assert tried == {(0.0, None), (1.0, 2.0), (inf, 0.1), (inf, 2.0)}
    assert model.posterior_.cut.layer in {"3", "5"}
    assert model.calibrator_ is not None
    assert model.score(DATA.test.inputs.numpy(), np.array(["x", "y", "z"])[DATA.test.labels]) > 0.8


def test_without_validation_rows_nothing_is_chosen() -> None:
    model = MixupMPClassifier.from_network(NETWORK, members=2, random_state=0).set_params(recipe=QUICK)
    model.fit(DATA.train.inputs.numpy(), DATA.train.labels.numpy())
    assert (model.ratio_, model.alpha_, model.selection_, model.calibrator_) == (inf, 0.1, None, None)
    assert clone(model).body == "auto"


def test_inputs_go_to_the_network_as_they_are(tmp_path) -> None:
    """An estimator standardizes its rows; a network that is already trained must not see them so."""
    far = Rows(DATA.train.inputs * 3 + 50, DATA.train.labels)
    shifted = nn.Sequential(*trained())
    with torch.no_grad():
        shifted[0].weight.div_(3)
        shifted[0].bias.sub_(shifted[0].weight.sum(1) * 50)
    model = MixupMPClassifier.from_network(shifted, members=2, random_state=0).set_params(recipe=QUICK)
    model.fit(far.inputs.numpy(), far.labels.numpy())
    assert model.score(far.inputs.numpy(), far.labels.numpy()) > 0.8
    assert model.posterior_.task.standardize == Standardize()
    model.save(tmp_path / "model")
    loaded = MixupMPClassifier.load(tmp_path / "model", network=lambda: nn.Sequential(*trained()))
    np.testing.assert_array_equal(loaded.predict_proba(far.inputs.numpy()), model.predict_proba(far.inputs.numpy()))


def test_images_a_named_body_and_augmented_repeats() -> None:
    data = small_images(36)
    torch.manual_seed(0)
    network = CNN(1, (20, 20), 3)
    posterior = posterior_of(
        network, data.train, body="second", members=2, kernel=PadCrop(2), standardize=data.standardize, recipe=QUICK
    )
    assert posterior.cut == Cut("second")
    assert posterior.probabilities(data.test.inputs).shape == (36, 3)
    # Eight repeats of 36 rows in batches of 128, and 60 epochs.
    assert {summary.steps for summary in posterior.summaries} == {180}


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UnknownName, match="layer 'feature'"):
        posterior_of(NETWORK, DATA.train, body="feature")
    with pytest.raises(InvalidArgument, match=r"body='features'"):
        posterior_of(nn.Sequential(nn.Linear(4, 3)), DATA.train)
    with pytest.raises(InvalidArgument, match="one that returns \\(rows, 3\\)"):
        posterior_of(nn.Linear(4, 7), DATA.train)
    with pytest.raises(
        InvalidArgument, match=r"y lacks some of the network's classes.*posterior_of\(\.\.\., classes=\)"
    ):
        posterior_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 7)), DATA.train)
    with pytest.raises(InvalidArgument, match="without a softmax at the end"):
        posterior_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(1)), DATA.train)
    with pytest.raises(InvalidArgument, match=r"a trained nn\.Module"):
        posterior_of("mlp", DATA.train)
    with pytest.raises(InvalidArgument, match="a lazy layer of this network has no weights yet"):
        posterior_of(nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 3)), DATA.train)


@pytest.mark.filterwarnings("ignore::mixupmp.estimators.base.UnderTrained")
def test_validation_rows_choose_the_weight_decay_where_there_is_no_recipe() -> None:
    held = (DATA.test.inputs.numpy(), DATA.test.labels.numpy())
    given = MixupMPClassifier.from_network(NETWORK, members=2, random_state=0).set_params(
        epochs=160
    )  # half of the usual steps
    for model, tried in (
        (given, set(DECAYS)),
        (clone(given).set_params(recipe=QUICK), {QUICK.weight_decay}),
    ):
        seen: set[float] = set()
        with pytest.MonkeyPatch.context() as patch:
            select = post_hoc._select

            def recorded(plan, *more, select=select, seen=seen):
                seen.add(plan.recipe.weight_decay)
                return select(plan, *more)

            patch.setattr(post_hoc, "_select", recorded)
            model.fit(DATA.train.inputs.numpy(), DATA.train.labels.numpy(), validation=held)
        assert seen == tried
