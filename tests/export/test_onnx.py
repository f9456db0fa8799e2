"""The ONNX graph against PyTorch, in onnxruntime, for every kind of posterior."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from mixupmp import Method, Recipe, laplace, mc_dropout, mixup_mp, plan_for, shared_mixup_mp
from mixupmp.core.errors import InvalidArgument, MixupMPError
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset
from mixupmp.core.tokenizers import WordPieces
from mixupmp.core.version import __version__
from mixupmp.data import load
from mixupmp.decide.calibrators import Isotonic, VarianceFactor, VectorScaling
from mixupmp.decide.detect import OUTPUT_SCORES, PROBABILITY_SCORES, Detected, Detector, fit_detector
from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier, MixupMPRegressor, PosteriorClassifier
from mixupmp.export.flags import Flags
from mixupmp.export.onnx import export_onnx
from mixupmp.metrics import mutual_information, predictive_entropy
from mixupmp.networks import MLP, TextCNN
from mixupmp.train.run import fit
from small_posteriors import ensemble, inputs_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def fitted(dataset: Dataset, method: Method, network: Any) -> Posterior:
    recipe = Recipe(epochs=2, learning_rate=0.05)
    return fit(plan_for(dataset, method, network, recipe), engine="inline")


def answers(path: Path, inputs: torch.Tensor) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"inputs": inputs.numpy()}), strict=True))


@pytest.mark.parametrize(
    ("method", "network", "kind"),
    [
        (mixup_mp(members=3), "cnn", "images"),
        (mc_dropout(4), "cnn", "images"),
        pytest.param(mixup_mp(members=2), "resnet18", "images", marks=pytest.mark.slow),
        (mc_dropout(3, dropout=0.5), "mlp", "table"),
        (shared_mixup_mp(members=3), "mlp", "table"),
    ],
    ids=["cnn", "dropout", "batch norm", "table", "shared weights"],
)
def test_onnxruntime_agrees_on_raw_inputs(
    method: Method, network: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    dataset: Dataset = request.getfixturevalue(kind)
    if network == "resnet18":
        from mixupmp.networks import ResNet18

        posterior = fitted(dataset, method, lambda: ResNet18(1, 3, width=8))
    else:
        posterior = fitted(dataset, method, network)
    path = tmp_path / "model.onnx"
    metadata = export_onnx(posterior, path)
    for rows in (1, 5, 48):
        inputs = dataset.test.inputs[:rows]
        found, members = answers(path, inputs), posterior.member_probabilities(inputs)
        assert np.abs(found["member_probabilities"] - members.numpy()).max() < 1e-5
        assert np.abs(found["probabilities"] - members.mean(0).numpy()).max() < 1e-5
        assert np.abs(found["entropy"] - predictive_entropy(members).numpy()).max() < 1e-5
        assert np.abs(found["mutual_information"] - mutual_information(members).numpy()).max() < 1e-5
    stored = {p.key: p.value for p in onnx.load(str(path)).metadata_props}
    assert metadata.items() <= stored.items()
    assert json.loads(stored["mixupmp.classes"]) == ["a", "b", "c"]
    assert ("dropout mask" in stored["mixupmp.frozen"]) == (method.name == "mc-dropout")


@pytest.mark.slow
def test_a_laplace_posterior_of_the_last_layer(table: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("laplace")
    posterior = fitted(table, laplace(3), lambda: MLP(4, 3, (8,)))
    export_onnx(posterior, tmp_path / "model.onnx")
    found = answers(tmp_path / "model.onnx", table.test.inputs)
    assert (
        np.abs(found["member_probabilities"] - posterior.member_probabilities(table.test.inputs).numpy()).max() < 1e-5
    )
    everywhere = fitted(table, laplace(2, subset="all", structure="diag"), lambda: MLP(4, 3, (8,)))
    with pytest.raises(MixupMPError, match="of the last layer"):
        export_onnx(everywhere, tmp_path / "other.onnx")


def test_calibration_goes_with_it(table: Dataset, tmp_path: Path) -> None:
    posterior = fitted(table, mixup_mp(members=2), lambda: MLP(4, 3, (8,)))
    mean = posterior.probabilities(table.test.inputs)
    calibrator = VectorScaling((1.0, 2.0, 0.5), (0.0, 0.1, -0.1))
    export_onnx(posterior, tmp_path / "model.onnx", calibrator=calibrator)
    found = answers(tmp_path / "model.onnx", table.test.inputs)["probabilities"]
    assert np.abs(found - calibrator(mean).numpy()).max() < 1e-5
    curves = ((0.0, 1.0),) * 3
    with pytest.raises(MixupMPError, match="temperature or vector"):
        export_onnx(posterior, tmp_path / "model.onnx", calibrator=Isotonic(curves, curves, 0.1))


def test_the_exporter_says_nothing_about_torchvision(table: Dataset, tmp_path: Path) -> None:
    said: list[logging.LogRecord] = []
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        metadata = export_onnx(fitted(table, mixup_mp(members=1), "mlp"), tmp_path / "model.onnx")
    finally:
        logger.removeHandler(handler)
    assert said == []
    assert metadata["mixupmp.version"] == __version__


def test_estimators_export_themselves(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(60, 3)).astype(np.float32)
    recipe = Recipe(epochs=2, learning_rate=0.01)
    classifier = MixupMPClassifier(1, members=2, recipe=recipe).fit(features, features[:, 0] > 0)
    classifier.calibrate_on(features, features[:, 0] > 0, kept=0)
    classifier.export_onnx(tmp_path / "classifier.onnx")
    found = answers(tmp_path / "classifier.onnx", torch.from_numpy(features))
    assert np.abs(found["probabilities"] - classifier.predict_proba(features)).max() < 1e-5
    regressor = MixupMPRegressor(1, 1.0, members=2, recipe=recipe).fit(features, 50 + 9 * features[:, 0])
    regressor.calibrator_ = VarianceFactor(2.5)
    regressor.export_onnx(tmp_path / "regressor.onnx")
    found = answers(tmp_path / "regressor.onnx", torch.from_numpy(features))
    mean, deviation = regressor.predict(features, return_std=True)
    assert np.allclose(found["predicted_mean"], mean, rtol=1e-5)
    assert np.allclose(found["predicted_deviation"], deviation, rtol=1e-4)


def test_a_graph_flags_what_the_detector_flags(tmp_path: Path) -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 300)
    detector, new = fit_detector(posterior, inputs[:200]), 3 * inputs[200:]
    for score in (*PROBABILITY_SCORES, *OUTPUT_SCORES):
        expected = detector.detect(posterior, new, score, 0.1)
        scores, p_values, flagged = Flags(detector, score, 0.1)(posterior.member_outputs(new), new)
        assert np.allclose(scores, expected.scores, atol=1e-5)
        assert np.abs(p_values.numpy() - expected.p_values).max() <= 2 / 201  # float32 may pass a held-out score
        assert (flagged.numpy() != expected.flagged).mean() <= 0.01
    metadata = export_onnx(posterior, tmp_path / "m.onnx", flags=Flags(detector, "mutual_information", 0.1))
    assert "false-alarm rate of 0.1" in metadata["mixupmp.frozen"]
    found = answers(tmp_path / "m.onnx", new)
    expected = detector.detect(posterior, new, "mutual_information", 0.1)
    assert np.allclose(found["score"], expected.scores, atol=1e-5)
    assert np.abs(found["p_value"] - expected.p_values).max() <= 2 / 201
    assert (found["flagged"] != expected.flagged).mean() <= 0.01
    assert found["flagged"].any()


def agrees(path: Path, given: dict[str, np.ndarray], expected: Detected, rows: int) -> None:
    """Scores, p-values and verdicts of a graph are those of `detect`; float32 may pass one held-out score."""
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, given), strict=True))
    assert np.allclose(found["score"], expected.scores, rtol=1e-3, atol=1e-5)
    assert np.abs(found["p_value"] - expected.p_values).max() <= 2 / (rows + 1)
    near = np.isclose(expected.scores, expected.threshold, rtol=1e-3)
    assert (found["flagged"] == expected.flagged)[~near].all()
    assert near.mean() < 0.1
    assert 0 < found["flagged"].sum() < len(found["flagged"])
    stored = {p.key: p.value for p in onnx.load(str(path)).metadata_props}
    assert f"the threshold {expected.threshold:.6g} of flags" in stored["mixupmp.frozen"]
    assert float(stored["mixupmp.threshold"]) == expected.threshold
    assert float(stored["mixupmp.false_alarm"]) == expected.false_alarm
    assert stored["mixupmp.score"] == expected.score


SCORES_TRIED = ("auto", "mahalanobis", "entropy", "energy")


@pytest.mark.parametrize("method", [mixup_mp(members=2), mc_dropout(3)], ids=["ensemble", "dropout"])
def test_a_graph_of_an_image_classifier_detects_as_it_does(method: Method, tmp_path: Path) -> None:
    digits = load("digits")
    recipe = Recipe(epochs=12, batch_size=32, optimizer="adamw", learning_rate=5e-3)
    model = PosteriorClassifier(method, network="cnn", recipe=recipe, calibrate=False, random_state=0)
    model.fit(digits.train.inputs[:300], digits.train.labels[:300])
    model.calibrate_on(digits.test.inputs[:200], digits.test.labels[:200])
    noise = torch.randint(0, 256, (20, 1, 8, 8), generator=torch.Generator().manual_seed(1))
    new = torch.cat([digits.test.inputs[200:240], noise.to(torch.uint8)])
    for score in SCORES_TRIED:
        expected = model.detect(new, 0.1, score)
        model.export_onnx(tmp_path / f"{score}.onnx", false_alarm=0.1, score=score)
        agrees(tmp_path / f"{score}.onnx", {"inputs": new.numpy()}, expected, model.detector_.rows)
    model.export_onnx(tmp_path / "plain.onnx", false_alarm=0.1)
    assert model.detect(new, 0.1).score == "nearest"
    agrees(tmp_path / "plain.onnx", {"inputs": new.numpy()}, model.detect(new, 0.1), model.detector_.rows)


def test_a_graph_of_a_text_classifier_detects_as_it_does(tmp_path: Path) -> None:
    sentences = [f"{verb} my {what} {when}" for verb in ("pay", "show", "close") for what in ("bill", "account", "loan")
                 for when in ("now", "today", "soon", "please", "again", "twice")]  # fmt: skip
    labels = np.array([sentence.split()[0] for sentence in sentences])
    vocabulary = WordPieces.of(sentences)
    tokens = vocabulary(sentences)
    odd = vocabulary(["sell the boat", "loan loan loan", "account now today soon", "what is it", "bill again twice"])
    recipe = Recipe(epochs=8, batch_size=16, optimizer="adamw", learning_rate=5e-3)
    network = TextCNN(vocabulary.size, 3)
    model = DeepEnsembleClassifier(2, network=network, recipe=recipe, calibrate=False, random_state=0)
    model.fit(tokens[::2], labels[::2], layout="tokens").calibrate_on(tokens[1::2], labels[1::2], kind=None)
    new = torch.cat([tokens, odd])
    for score in SCORES_TRIED:
        expected = model.detect(new, 0.2, score)
        model.export_onnx(tmp_path / f"{score}.onnx", false_alarm=0.2, score=score)
        agrees(tmp_path / f"{score}.onnx", {"inputs": new.numpy()}, expected, model.detector_.rows)


def test_features_of_an_ensemble_are_not_computed_twice(images: Dataset, tmp_path: Path) -> None:
    model = DeepEnsembleClassifier(2, network="cnn", recipe=Recipe(epochs=1), calibrate=False, random_state=0)
    model.fit(images.train.inputs, images.train.labels).calibrate_on(images.test.inputs, images.test.labels)
    convolutions = []
    for score in ("entropy", "nearest"):
        model.export_onnx(tmp_path / "m.onnx", false_alarm=0.1, score=score)
        convolutions.append(sum(node.op_type == "Conv" for node in onnx.load(str(tmp_path / "m.onnx")).graph.node))
    assert convolutions == [4, 4]


def test_a_score_that_the_held_out_rows_lack_is_named() -> None:
    with pytest.raises(InvalidArgument, match="need a network whose last layer is linear"):
        Flags(Detector({}), "nearest")
    with pytest.raises(InvalidArgument, match="there are none"):
        Flags(Detector({}))
