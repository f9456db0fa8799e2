"""Rows like the held-out ones are flagged no more often than was asked, new classes are found, what is saved stays."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from scipy import stats
from torch import Tensor, nn

from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import BadData, BadRun, InvalidArgument, UnknownName
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Rows, Standardize
from mixupmp.core.shared import SharedNetwork, SharedPosterior
from mixupmp.decide.detect import SCORES, Detector, fit_detector, read_detector, refitted_detector, row_scores
from mixupmp.decide.features import fit_reference, penultimate_features
from mixupmp.metrics import GuaranteeWarning, detection, mutual_information, predictive_entropy
from mixupmp.networks import MLP
from mixupmp.store.folder import DETECTOR
from mixupmp.store.manifest import Sealed, write_manifest
from small_posteriors import TASK, ensemble, inputs_of

SPLITS = 300


def detector_of(scores: Tensor) -> Detector:
    return Detector({"entropy": scores.double().sort().values})


@pytest.mark.parametrize(("n", "false_alarm"), [(19, 0.05), (200, 0.05), (333, 0.2)])
def test_false_alarms_follow_their_exact_law(n: int, false_alarm: float) -> None:
    """Of m exchangeable rows, the number flagged over random splits is beta-binomial (scores without ties)."""
    generator, m = torch.Generator().manual_seed(n), 500
    counts = []
    for _ in range(SPLITS):
        scores = torch.randn(n + m, generator=generator, dtype=torch.float64).exp()
        counts.append(int(detector_of(scores[:n]).judge(scores[n:], false_alarm=false_alarm).flagged.sum()))
    rank = math.ceil((n + 1) * (1 - false_alarm) - 1e-9)
    law = stats.betabinom(m, n + 1 - rank, rank)
    assert law.mean() / m <= false_alarm + 1e-9
    assert np.mean(counts) == pytest.approx(law.mean(), abs=4 * law.std() / math.sqrt(SPLITS))
    outside = sum(count < law.ppf(0.01) or count > law.ppf(0.99) for count in counts)
    assert outside <= stats.binom(SPLITS, 0.02).ppf(0.9999)


def test_p_values_by_hand_and_with_ties() -> None:
    detector = detector_of(torch.tensor([1.0, 2.0, 2.0, 3.0]))
    found = detector.judge(torch.tensor([0.0, 2.0, 2.5, 3.0, 4.0]), false_alarm=0.2)
    assert found.p_values.tolist() == [1.0, 0.8, 0.4, 0.4, 0.2]
    assert found.threshold == 3.0
    assert found.flagged.tolist() == [False, False, False, False, True]
    ties = detector_of(torch.zeros(99)).judge(torch.zeros(5))  # one member: no mutual information anywhere
    assert ties.p_values.tolist() == [1.0] * 5
    assert not ties.flagged.any()


def test_a_row_is_flagged_where_its_p_value_is_at_most_the_rate() -> None:
    generator = torch.Generator().manual_seed(0)
    detector = detector_of(torch.randn(199, generator=generator))
    for false_alarm in (0.005, 0.05, 0.13, 0.5, 0.9):
        found = detector.judge(torch.randn(1000, generator=generator), false_alarm=false_alarm)
        assert np.array_equal(found.flagged, found.p_values <= false_alarm + 1e-12)


def test_too_few_rows_flag_nothing_and_say_so() -> None:
    detector = detector_of(torch.arange(18.0))
    with pytest.warns(GuaranteeWarning, match=r"rate of 0\.05 needs at least 19 held-out rows and there were 18"):
        assert not detector.judge(torch.tensor([1e9])).flagged.any()
    assert not detector.attainable(0.05)
    assert "too few" in detector.guarantee(0.05)
    assert detector_of(torch.arange(19.0)).judge(torch.tensor([1e9])).flagged.all()


def test_a_score_that_is_no_number_is_flagged_as_its_p_value_says() -> None:
    found = detector_of(torch.arange(100.0)).judge(torch.tensor([math.nan, math.inf, 3.0]))
    assert found.flagged.tolist() == [True, True, False] == (found.p_values <= 0.05).tolist()
    with pytest.warns(GuaranteeWarning):
        assert not detector_of(torch.arange(9.0)).judge(torch.tensor([math.nan])).flagged.any()


def test_scores_are_those_of_the_metrics() -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 300)
    found = row_scores(posterior, inputs, SCORES, fit_reference(posterior, Rows(inputs, torch.arange(300) % 3)))
    members = posterior.member_probabilities(inputs)
    assert torch.allclose(found["entropy"].float(), predictive_entropy(members), atol=1e-5)
    assert torch.allclose(found["mutual_information"].float(), mutual_information(members), atol=1e-5)
    assert torch.allclose(found["max_probability"].float(), 1 - members.mean(0).amax(1), atol=1e-5)
    energy = -posterior.member_outputs(inputs).logsumexp(-1).mean(0)
    assert torch.allclose(found["energy"].float(), energy, atol=1e-5)
    assert float(found["nearest"].max()) < 2e-3, "every row is its own nearest neighbor, up to float32"
    one = row_scores(posterior, inputs[17:18], SCORES[:4])
    assert all(torch.equal(one[name], found[name][17:18]) for name in SCORES[:4]), "in any company"


def test_mahalanobis_distance_by_hand() -> None:
    """On a linear network without a hidden layer, the features are the inputs."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2000) % 3
    scale = torch.tensor([[2.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 3.0]])
    centers = 5 * torch.randn(3, 4, generator=generator)
    inputs = torch.randn(2000, 4, generator=generator) @ scale.T + centers[labels]
    posterior = EnsemblePosterior([nn.Sequential(nn.Linear(4, 3))], TASK, 1)
    reference = fit_reference(posterior, Rows(inputs, labels))
    assert reference is not None
    new = 3 * torch.randn(50, 4, generator=generator)
    precision = torch.linalg.inv(scale @ scale.T)
    gaps = new[:, None] - centers
    truth = torch.einsum("nki,ij,nkj->nk", gaps, precision, gaps).amin(1)
    assert torch.allclose(reference.distances(posterior, new, "mahalanobis").float(), truth, rtol=0.15, atol=0.3)


def test_features_are_what_the_last_layer_is_given() -> None:
    posterior, inputs = ensemble(2), inputs_of((4,), 5)
    features = penultimate_features(posterior, inputs)
    last = [network[-1] for network in posterior.networks]  # type: ignore[index]
    outputs = torch.stack([layer(own) for layer, own in zip(last, features, strict=True)])
    assert torch.allclose(outputs, posterior.member_outputs(inputs), atol=1e-6)
    torch.manual_seed(0)
    shared = SharedPosterior([SharedNetwork(MLP(4, 3), 6)], TASK)
    found = penultimate_features(shared, inputs, members=6)
    head = shared.network.network[-1]  # type: ignore[index]
    assert torch.allclose(head(found.flatten(0, 1)).view(6, 5, 3), shared.member_outputs(inputs), atol=1e-5)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, 3, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs[:, None])[:, :, 0]


def test_networks_without_a_linear_layer_have_the_other_scores() -> None:
    posterior, inputs = EnsemblePosterior([Convolutional()], TASK, 1), inputs_of((4,), 40)
    assert fit_reference(posterior, Rows(inputs, torch.zeros(40, dtype=torch.int64))) is None
    detector = fit_detector(posterior, inputs)
    assert detector.detect(posterior, inputs).score == "entropy"
    with pytest.raises(InvalidArgument, match=r"one that the .* have: entropy, .*'nearest'.*layer is linear"):
        detector.detect(posterior, inputs, "nearest")


def test_new_classes_are_found() -> None:
    """Four clusters, one left out of the fit."""
    from mixupmp import Dataset, Recipe, deep_ensemble, fit, plan_for

    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(800) % 4
    inputs = torch.randn(800, 2, generator=generator) + 6 * torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1.0]])[labels]
    known = labels < 3
    train = Rows(inputs[known][:300], labels[known][:300])
    data = Dataset("clusters", train, train, ("a", "b", "c"), Standardize((3.0, 3.0), (3.0, 3.0)))
    recipe = Recipe(epochs=15, batch_size=32, optimizer="adamw", learning_rate=1e-2)
    posterior = fit(plan_for(data, deep_ensemble(3), "mlp", recipe), engine="inline")
    detector = fit_detector(posterior, inputs[known][300:450], fit_reference(posterior, train))
    inside, outside = (detector.detect(posterior, rows) for rows in (inputs[known][450:], inputs[~known]))
    assert inside.score == "nearest"
    assert inside.flagged.mean() < 0.15
    assert outside.flagged.mean() > 0.5
    assert detection(torch.from_numpy(inside.scores), torch.from_numpy(outside.scores)).auroc > 0.9


def test_saved_and_read_back_it_is_the_same(tmp_path: Path) -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 120)
    reference = fit_reference(posterior, Rows(inputs[:60], torch.arange(60) % 3))
    detector = fit_detector(posterior, inputs[60:], reference)
    (tmp_path / DETECTOR).write_bytes(save(detector.tensors()))
    write_manifest(tmp_path)
    again = read_detector(Sealed(tmp_path))
    assert again is not None
    assert not again.refitted
    for score in SCORES:
        ours, theirs = (one.detect(posterior, 2 * inputs, score) for one in (detector, again))
        assert np.array_equal(ours.p_values, theirs.p_values)
        assert ours.threshold == theirs.threshold
    outputs = posterior.member_outputs(inputs)
    refitted = Detector.from_tensors(refitted_detector([outputs[:, :50], outputs[:, 50:]]).tensors())
    assert refitted.refitted
    assert refitted.rows == 120
    assert refitted.guarantee().startswith("the aim is to flag 5.0%")
    assert "without a guarantee" in refitted.guarantee()
    assert detector.guarantee().startswith("at most 5.0% of rows")


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    good = detector_of(torch.arange(5.0)).tensors()
    bad: list[dict[str, Tensor]] = [
        {**good, "held_out.entropy": torch.tensor([2.0, 1.0], dtype=torch.float64)},
        {**good, "held_out.entropy": torch.tensor([1.0, math.inf], dtype=torch.float64)},
        {**good, "held_out.entropy": torch.zeros(3)},
        {**good, "held_out.entropy": torch.zeros(0, dtype=torch.float64)},
        {**good, "held_out.mood": torch.zeros(5, dtype=torch.float64)},
        {**good, "held_out.energy": torch.zeros(4, dtype=torch.float64)},
        {**good, "reference.features": torch.zeros(2, 3, 4)},
        {**good, "reference.features": torch.zeros(2, 3), "reference.labels": torch.zeros(3, dtype=torch.int64)},
        {"held_out.entropy": good["held_out.entropy"]},
    ]
    for tensors in bad:
        (tmp_path / DETECTOR).write_bytes(save(tensors))
        write_manifest(tmp_path)
        with pytest.raises(BadRun, match=f"{DETECTOR} is not a detector"):
            read_detector(Sealed(tmp_path))


def test_bad_input_is_named() -> None:
    detector = detector_of(torch.arange(50.0))
    for rate in (0.0, 1.0, -0.1, math.nan, "a", None):
        with pytest.raises(InvalidArgument, match="false_alarm"):
            detector.judge(torch.zeros(1), false_alarm=rate)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="'nearest'"):
        detector.threshold(score="nearst")
    with pytest.raises(InvalidArgument, match="there are none"):
        Detector({}).threshold()
    posterior, other = ensemble(), EnsemblePosterior([MLP(4, 3, (7,))], Task(Categorical(3), Standardize(), (4,)), 1)
    reference = fit_reference(posterior, Rows(inputs_of((4,), 20), torch.zeros(20, dtype=torch.int64)))
    assert reference is not None
    with pytest.raises(InvalidArgument, match="fitted to"):
        reference.distances(other, inputs_of((4,), 2), "nearest")
    with pytest.raises(BadData, match="int64"):
        type(reference).from_tensors({"features": torch.zeros(1, 2, 3), "labels": torch.zeros(2)})
