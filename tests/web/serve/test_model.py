from __future__ import annotations

import pytest
import torch

from mixupmp import Rows
from mixupmp.core.errors import InvalidArgument
from mixupmp.decide.calibrators import Temperature
from mixupmp.decide.detect import SCORES, fit_detector, refitted_detector
from mixupmp.decide.features import fit_reference
from mixupmp.metrics import mutual_information, predictive_entropy
from mixupmp.web.serve import served_model
from mixupmp.web.serve.model import DecisionRule, fit_decision_rule

from .models import image_model, image_posterior, images, table_posterior


def test_answers_are_the_posteriors() -> None:
    model = image_model()
    inputs = images(5, seed=9)
    members = model.posterior.member_probabilities(inputs)
    for row, prediction in enumerate(model.predict(inputs)):
        assert prediction is not None
        told = prediction.model_dump()
        assert torch.allclose(torch.tensor(told["members"]), members[:, row], atol=1e-7)
        assert torch.allclose(torch.tensor(told["probabilities"]), members.mean(0)[row], atol=1e-7)
        assert told["entropy"] == pytest.approx(float(predictive_entropy(members)[row]), abs=1e-6)
        assert told["mutual_information"] == pytest.approx(float(mutual_information(members)[row]), abs=1e-6)
        assert told["predicted"] == model.classes[told["number"]] == model.classes[int(members.mean(0)[row].argmax())]
        assert told["predicted"] in told["set"]


def test_rows_too_large_for_the_network_have_no_answer() -> None:
    model = served_model(table_posterior())
    answers = model.predict(torch.tensor([[1.0] * 5, [3e38] * 5]))
    assert answers[0] is not None
    assert answers[1] is None


def test_held_out_rows_give_the_sets_their_coverage() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4000, 4)
    labels = torch.distributions.Categorical(logits=logits).sample()
    answers = {id(part): part for part in (logits[:2000], logits[2000:])}

    def members(inputs: torch.Tensor) -> torch.Tensor:
        return inputs.softmax(-1)[None]

    rule = fit_decision_rule(members, Rows(logits[:2000], labels[:2000]), 0.9, 0.3)
    sets = rule.sets(logits[2000:].softmax(-1))
    covered = float(sets.gather(1, labels[2000:, None]).double().mean())
    assert 0.87 < covered < 0.93
    accepted = rule.accepts(logits[2000:].softmax(-1))
    wrong = logits[2000:].argmax(1) != labels[2000:]
    assert accepted.any()
    assert float(wrong[accepted].double().mean()) < 0.35
    assert f"in at least 90% of rows like the {rule.rows} held-out ones" in rule.guarantee().guarantee
    assert answers


def test_without_held_out_rows_nothing_is_guaranteed() -> None:
    rule = DecisionRule(0.8, 0.1)
    probabilities = torch.tensor([[0.5, 0.31, 0.19], [0.95, 0.03, 0.02]])
    assert rule.sets(probabilities).tolist() == [[True, True, False], [True, False, False]]
    assert rule.accepts(probabilities).tolist() == [False, True]
    assert rule.guarantee().guarantee.startswith("none")


def test_too_few_rows_give_whole_sets_and_say_so() -> None:
    posterior = image_posterior()
    inputs = images(5)
    model = served_model(posterior, Rows(inputs, torch.tensor([0, 1, 2, 3, 0])), coverage=0.99)
    assert model.rule.sets(torch.full((2, 4), 0.25)).all()
    guarantee = model.rule.guarantee().guarantee
    assert "5 held-out rows are too few" in guarantee
    assert guarantee.count("abstain") == 1


def test_onnx_gives_the_same_answers() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    posterior = image_posterior()
    inputs = images(6)
    ours, theirs = (served_model(posterior, runtime=runtime).members(inputs) for runtime in ("torch", "onnx"))
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_bad_arguments_are_named() -> None:
    for given in ({"coverage": 1.0}, {"risk": 0.0}, {"runtime": "tpu"}):
        with pytest.raises(InvalidArgument, match=next(iter(given))):
            served_model(table_posterior(), **given)  # type: ignore[arg-type]


def test_averaged_probabilities_are_calibrated_and_those_of_members_are_not() -> None:
    plain = image_model()
    model = served_model(plain.posterior, calibrator=Temperature(0.5))
    inputs = images(5, seed=9)
    members = model.posterior.member_probabilities(inputs)
    for row, prediction in enumerate(model.predict(inputs)):
        assert prediction is not None
        squares = members.double().mean(0)[row].square()  # T = 1/2
        assert torch.allclose(torch.tensor(prediction.probabilities).double(), squares / squares.sum(), atol=1e-6)
        assert torch.allclose(torch.tensor(prediction.members), members[:, row], atol=1e-7)


def test_guarantees_are_those_of_calibrated_probabilities() -> None:
    logits = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    rows = Rows(logits, logits.argmax(1))
    scaled = fit_decision_rule(lambda inputs: inputs.softmax(-1)[None], rows, 0.9, 0.3, Temperature(0.25))
    directly = fit_decision_rule(lambda inputs: (4 * inputs).softmax(-1)[None], rows, 0.9, 0.3)
    assert scaled.abstention is not None
    assert directly.abstention is not None
    assert scaled.abstention.threshold == pytest.approx(directly.abstention.threshold, abs=1e-5)


def test_strange_rows_are_flagged_at_the_rate_that_was_asked() -> None:
    posterior, generator = image_posterior(), torch.Generator().manual_seed(0)
    familiar = Rows(images(99, seed=1), torch.randint(0, 4, (99,), generator=generator))
    model = served_model(posterior, familiar, false_alarm=0.1)
    entropy = predictive_entropy(posterior.member_probabilities(familiar.inputs))
    for prediction in model.predict(images(40, seed=2)):
        assert prediction is not None
        as_strange = int((entropy >= prediction.entropy).sum())
        assert prediction.p_value == pytest.approx((1 + as_strange) / 100, abs=0.011)  # float32 may pass one
        assert prediction.flagged == (prediction.p_value <= 0.1)
    assert model.rule.guarantee().flags == "at most 10.0% of rows like the 99 held-out ones are flagged, by entropy"
    kept = served_model(posterior, detector=refitted_detector([posterior.member_outputs(familiar.inputs)]))
    assert kept.rule.guarantee().flags.startswith("the aim is to flag 5.0% of rows")
    assert kept.predict(images(1))[0].p_value is not None  # type: ignore[union-attr]
    bare = served_model(posterior).predict(images(1))[0]
    assert bare is not None
    assert bare.p_value is None
    assert bare.flagged is None
    with pytest.raises(InvalidArgument, match="false_alarm"):
        served_model(posterior, false_alarm=1.5)


@pytest.mark.parametrize("score", SCORES)
def test_flags_by_any_score_are_those_of_the_detector(score: str) -> None:
    posterior = table_posterior()
    rows = Rows(torch.randn(99, 5), torch.arange(99) % 3)
    detector = fit_detector(posterior, rows.inputs[50:], fit_reference(posterior, rows))
    model = served_model(posterior, rows, detector=detector, false_alarm=0.1, score=score)
    inputs = 3 * torch.randn(30, 5)
    expected = detector.detect(posterior, inputs, score, 0.1)
    for row, one in enumerate(model.predict(inputs)):
        assert one is not None
        assert (one.score, one.p_value) == (expected.scores[row], expected.p_values[row])
        assert one.flagged == expected.flagged[row]
    said = model.rule.guarantee()
    assert (said.score, said.score_threshold) == (score, expected.threshold)
    assert said.flags == f"at most 10.0% of rows like the 49 held-out ones are flagged, by {score}"
    assert said.rows == 99  # of sets and abstention
    assert model.predict(torch.tensor([[1.0] * 5, [3e38] * 5]))[1] is None


@pytest.mark.parametrize("score", ["energy", "nearest"])
def test_onnx_gives_the_same_scores(score: str) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    posterior = table_posterior()
    rows = Rows(torch.randn(99, 5), torch.arange(99) % 3)
    detector = fit_detector(posterior, rows.inputs[50:], fit_reference(posterior, rows))
    models = [served_model(posterior, detector=detector, score=score, runtime=name) for name in ("torch", "onnx")]  # type: ignore[arg-type]
    ours, theirs = (torch.tensor([one.score for one in model.predict(rows.inputs[:9]) if one]) for model in models)
    assert len(ours) == len(theirs) == 9
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_score_needs_rows_to_compare_with() -> None:
    posterior = table_posterior()
    with pytest.raises(InvalidArgument, match="Give held_out, or a detector"):
        served_model(posterior, score="energy")
    rows = Rows(torch.randn(40, 5), torch.arange(40) % 3)
    assert served_model(posterior, rows, score="energy").rule.guarantee().score == "energy"
    with pytest.raises(InvalidArgument, match="Distances need a network"):
        served_model(posterior, rows, score="nearest")
