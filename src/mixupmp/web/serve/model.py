"""What the server answers: members' probabilities, prediction sets, abstention, and flags of strange rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from mixupmp.core.errors import BadRun, InvalidArgument, check
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.decide.abstain import Abstention, fit_abstention
from mixupmp.decide.calibrators import Calibrator, pool
from mixupmp.decide.conformal import Conformal, fit_conformal
from mixupmp.decide.detect import FALSE_ALARM, PROBABILITY_SCORES, Detector, fit_detector
from mixupmp.export.inputs import graph_inputs
from mixupmp.metrics import GuaranteeWarning, mutual_information, predictive_entropy
from mixupmp.web.serve.runtimes import (
    MemberProbabilities,
    ScoredMembers,
    onnx_members,
    onnx_scored_members,
    torch_members,
    torch_scored_members,
)
from mixupmp.web.serve.schemas import Guarantee, Prediction

SCORE = "entropy"  # by which rows are flagged unless another is asked for
EXAMPLES = 12  # held-out images on the page


@dataclass(frozen=True)
class DecisionRule:
    """Prediction sets and abstention, from held-out rows where there are any.

    Without them, a set is the smallest with `coverage` of the posterior predictive, and rows are accepted where the
    posterior predictive itself expects at most a share `risk` of errors.
    """

    coverage: float = 0.9
    risk: float = 0.05
    conformal: Conformal | None = None
    abstention: Abstention | None = None
    rows: int = 0  # held-out rows
    detector: Detector | None = None
    false_alarm: float = FALSE_ALARM
    score: str = SCORE  # that flags go by

    def __post_init__(self) -> None:
        check(0 < self.coverage < 1, "coverage", self.coverage, "between 0 and 1, both excluded")
        check(0 < self.risk < 1, "risk", self.risk, "between 0 and 1, both excluded")
        check(0 < self.false_alarm < 1, "false_alarm", self.false_alarm, "between 0 and 1, both excluded")

    def sets(self, probabilities: Tensor) -> Tensor:
        """bool (rows, classes): which classes are in each row's prediction set."""
        if self.conformal is not None:
            if not self.conformal.attainable(self.coverage):
                return torch.ones_like(probabilities, dtype=torch.bool)
            return self.conformal.predict_set(probabilities, self.coverage, allow_empty=False)
        ordered, order = probabilities.sort(1, descending=True)
        inside = ordered.cumsum(1) - ordered < self.coverage
        return torch.zeros_like(inside).scatter_(1, order, inside)

    def accepts(self, probabilities: Tensor) -> Tensor:
        """bool (rows,): whether to answer."""
        if self.abstention is not None:
            return self.abstention.accepts(probabilities)
        return probabilities.amax(1) >= 1 - self.risk

    def flags(self, scores: Tensor) -> tuple[list[float | None], list[bool | None]]:
        """p-values of rows with these scores, and whether each is flagged as unlike the held-out ones."""
        if self.detector is None:
            return [None] * len(scores), [None] * len(scores)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GuaranteeWarning)  # `guarantee` says so
            found = self.detector.judge(scores, self.score, self.false_alarm)
        return found.p_values.tolist(), found.flagged.tolist()

    def guarantee(self) -> Guarantee:
        """What sets, abstention and flags guarantee."""
        flags, score, limit = "none: no rows were held out", None, None
        if self.detector is not None:
            score = self.score
            if self.detector.attainable(self.false_alarm):
                limit = self.detector.threshold(self.false_alarm, score)
            flags = f"{self.detector.guarantee(self.false_alarm)}, by {self.score}"
        if self.conformal is None or self.abstention is None:
            sentence = "none: no held-out rows were given, so sets and abstention rest on the model's own probabilities"
            return Guarantee(
                coverage=self.coverage,
                risk=self.risk,
                guarantee=sentence,
                false_alarm=self.false_alarm,
                flags=flags,
                score=score,
                score_threshold=limit,
            )
        like = f"rows like the {self.rows} held-out ones"
        covered = f"prediction sets hold the true class in at least {self.coverage:.0%} of {like}"
        if not self.conformal.attainable(self.coverage):
            covered = f"{self.rows} held-out rows are too few for this coverage: sets hold all classes"
        rule = self.abstention
        answered = rule.reason
        if rule.threshold is not None:
            answered = (
                f"it answers where its confidence is at least {rule.threshold:.3f}, and then errs on at most "
                f"{self.risk:.0%} of them, with {rule.confidence:.0%} certainty"
            )
        return Guarantee(
            coverage=self.coverage,
            risk=self.risk,
            rows=self.rows,
            threshold=rule.threshold,
            guarantee=f"{covered}; {answered}".rstrip("."),
            false_alarm=self.false_alarm,
            flags=flags,
            score=score,
            score_threshold=limit,
        )


def fit_decision_rule(
    members: MemberProbabilities,
    rows: Rows,
    coverage: float,
    risk: float,
    calibrator: Calibrator | None = None,
    false_alarm: float = FALSE_ALARM,
) -> DecisionRule:
    """The rule with the guarantees that held-out rows give; training must not have seen them."""
    blocks = [members(block) for block in rows.inputs.split(512)]
    probabilities = torch.cat([pool(block, calibrator) for block in blocks])
    scores = torch.cat([PROBABILITY_SCORES[SCORE](block.double()) for block in blocks])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)  # `guarantee` says so
        conformal = fit_conformal("lac", probabilities, rows.labels)
        abstention = fit_abstention(probabilities, rows.labels, risk)
    detector = Detector({SCORE: scores.sort().values})
    return DecisionRule(coverage, risk, conformal, abstention, len(rows), detector, false_alarm)


@dataclass(frozen=True)
class ServedModel:
    """A posterior with its decision rule, ready to answer rows."""

    posterior: Posterior
    members: MemberProbabilities
    rule: DecisionRule
    classes: tuple[str, ...]
    runtime: str = "torch"
    title: str = "A posterior"
    examples: Sequence[tuple[Tensor, str]] = field(default=())  # raw inputs with their labels, for the page
    calibrator: Calibrator | None = None
    scored: ScoredMembers | None = None  # where flags go by another score than entropy

    @property
    def pixels_only(self) -> bool:
        """Whether only pixels 0..255 are taken: an ONNX graph of images has one input type."""
        return self.runtime == "onnx" and graph_inputs(self.posterior.task)[0].dtype == torch.uint8

    def predict(self, inputs: Tensor) -> list[Prediction | None]:
        """A prediction for each row, or None where a network's output was not finite."""
        with torch.inference_mode():
            members, scores = (self.members(inputs), None) if self.scored is None else self.scored(inputs)
            finite = torch.isfinite(members).all(-1).all(0)
            members = torch.where(finite[:, None], members, torch.tensor(1 / members.shape[-1]))
            mean = pool(members, self.calibrator)
            confidence, number = mean.max(1)
            sets, accepted = self.rule.sets(mean).tolist(), self.rule.accepts(mean).tolist()
            scores = PROBABILITY_SCORES[SCORE](members.double()) if scores is None else scores
            p_values, flagged = self.rule.flags(scores)
            columns: dict[str, list[Any]] = {
                "number": number.tolist(),
                "confidence": confidence.tolist(),
                "probabilities": mean.tolist(),
                "members": members.transpose(0, 1).tolist(),
                "entropy": predictive_entropy(mean).tolist(),
                "mutual_information": mutual_information(members).tolist(),
                "score": [None] * len(scores) if self.rule.detector is None else scores.tolist(),
                "p_value": p_values,
                "flagged": flagged,
            }
        predictions: list[Prediction | None] = []
        for row, usable in enumerate(finite.tolist()):
            values = {name: column[row] for name, column in columns.items()}
            inside = [name for name, is_in in zip(self.classes, sets[row], strict=True) if is_in]
            predicted = self.classes[values["number"]]
            prediction = Prediction(predicted=predicted, set=inside, accepted=accepted[row], **values)
            predictions.append(prediction if usable else None)
        return predictions


def served_model(
    posterior: Posterior,
    held_out: Rows | None = None,
    *,
    runtime: Literal["torch", "onnx"] = "torch",
    coverage: float = 0.9,
    risk: float = 0.05,
    title: str = "A posterior",
    calibrator: Calibrator | None = None,
    detector: Detector | None = None,
    false_alarm: float = FALSE_ALARM,
    score: str | None = None,
) -> ServedModel:
    """Make a posterior ready to serve.

    Parameters
    ----------
    posterior
        Of a classifier.
    held_out
        Rows that training did not see: prediction sets and abstention get their guarantees from them.
    runtime
        What computes: torch, or onnxruntime on an exported graph.
    coverage
        Of the prediction sets.
    risk
        The share of wrong answers among accepted rows that is tolerated.
    title
        The model's name on the page.
    calibrator
        Of the averaged probabilities; those of members stay as they are.
    detector
        Of rows that the fit held out, for flags where `held_out` is not given.
    false_alarm
        The share of rows like the held-out ones that may be flagged.
    score
        What flags go by: a name of `mixupmp.decide.detect.SCORES`, or "auto", compared as `detect` does with the rows
        of `detector`, or else with `held_out`. None: entropy, compared with `held_out`, or else with `detector`.

    Returns
    -------
    ServedModel
        For `serve_model` and `create_app`.
    """
    outputs = posterior.task.require_classes("to be served")
    check(runtime in ("torch", "onnx"), "runtime", runtime, "'torch' or 'onnx'")
    classes = _class_names(posterior, outputs)
    if score is not None:
        detector = _compared_with(posterior, score, detector, held_out)
        score = detector.score_named(score)
    members, scored = _runtime(posterior, runtime, detector, score)
    usable = detector if detector is not None and (score or SCORE) in detector.held_out else None
    rule = DecisionRule(coverage, risk, detector=usable, false_alarm=false_alarm, score=score or SCORE)
    if held_out is not None:
        fitted = fit_decision_rule(members, held_out, coverage, risk, calibrator, false_alarm)
        rule = fitted if score is None else replace(fitted, detector=usable, score=score)
    examples = () if held_out is None else _examples(held_out, classes)
    return ServedModel(posterior, members, rule, classes, runtime, title, examples, calibrator, scored)


def _runtime(
    posterior: Posterior, runtime: str, detector: Detector | None, score: str | None
) -> tuple[MemberProbabilities, ScoredMembers | None]:
    """What computes the members, and the score with them where one was asked for."""
    if score is None or detector is None:
        return (onnx_members if runtime == "onnx" else torch_members)(posterior), None
    scored = (onnx_scored_members if runtime == "onnx" else torch_scored_members)(posterior, detector, score)
    return lambda inputs: scored(inputs)[0], scored


def _examples(rows: Rows, classes: tuple[str, ...]) -> tuple[tuple[Tensor, str], ...]:
    chosen = range(0, len(rows), max(1, len(rows) // EXAMPLES))
    return tuple((rows.inputs[row], classes[int(rows.labels[row])]) for row in chosen)[:EXAMPLES]


def _compared_with(posterior: Posterior, score: str, detector: Detector | None, held_out: Rows | None) -> Detector:
    """The detector whose rows a score is compared with: the one given, or one fitted to the held-out rows."""
    if detector is not None and detector.held_out:
        return detector
    if held_out is None:
        raise InvalidArgument("score", score, "None without rows to compare with", "Give held_out, or a detector.")
    return fit_detector(posterior, held_out.inputs, None if detector is None else detector.reference)


def _class_names(posterior: Posterior, outputs: int) -> tuple[str, ...]:
    """The classes' names, one for each of the networks' outputs."""
    names = posterior.task.class_names
    row = posterior.task.standardize(torch.zeros(1, *posterior.task.input_shape))
    found = posterior.member_probabilities(row).shape[-1]
    if not len(names) == outputs == found:
        raise BadRun(f"the run has {len(names)} class names, {outputs} classes and {found} outputs: they must agree.")
    return names
