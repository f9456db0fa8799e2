"""What answers: a posterior in torch or as an ONNX graph, and what its answers promise."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mixupmp.core.errors import MissingExtra, check
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.decide.abstain import Abstention, fit_abstention
from mixupmp.decide.conformal import Conformal, fit_conformal
from mixupmp.export.onnx import export_onnx
from mixupmp.metrics import GuaranteeWarning, mutual_information, predictive_entropy

Members = Callable[[Tensor], Tensor]  # raw inputs to (members, rows, classes) probabilities


@dataclass(frozen=True)
class Promise:
    """How prediction sets and abstention are made, and what that guarantees."""

    coverage: float = 0.9
    risk: float = 0.05
    conformal: Conformal | None = None
    abstention: Abstention | None = None
    rows: int = 0  # held-out rows that it rests on

    def __post_init__(self) -> None:
        check(0 < self.coverage < 1, "coverage", self.coverage, "between 0 and 1, both excluded")
        check(0 < self.risk < 1, "risk", self.risk, "between 0 and 1, both excluded")

    def sets(self, probabilities: Tensor) -> Tensor:
        """bool (rows, classes): conformal, or without held-out rows the likeliest classes that sum to the coverage."""
        if self.conformal is not None:
            if not self.conformal.attainable(self.coverage):  # said once, in the metadata, and not at each request
                return torch.ones_like(probabilities, dtype=torch.bool)
            return self.conformal.predict_set(probabilities, self.coverage, allow_empty=False)
        ordered, order = probabilities.sort(1, descending=True)
        inside = ordered.cumsum(1) - ordered < self.coverage
        return torch.zeros_like(inside).scatter_(1, order, inside)

    def accepts(self, probabilities: Tensor) -> Tensor:
        """bool (rows,): whether to answer. Without held-out rows, where the model itself expects fewer errors."""
        if self.abstention is not None:
            return self.abstention.accepts(probabilities)
        return probabilities.amax(1) >= 1 - self.risk

    def describe(self) -> dict[str, Any]:
        """What the answers promise, in words and numbers."""
        if self.conformal is None or self.abstention is None:
            words = "none: no held-out rows were given, so sets and abstention rest on the model's own probabilities"
            return {"coverage": self.coverage, "risk": self.risk, "guarantee": words}
        covered = f"prediction sets hold the true class in at least {self.coverage:.0%} of rows like the held-out ones"
        if not self.conformal.attainable(self.coverage):
            covered = "there were too few held-out rows for this coverage: sets hold all classes"
        rule = self.abstention
        answered = f"it abstains everywhere, because {rule.reason}"
        if rule.threshold is not None:
            answered = (
                f"it answers where its confidence is at least {rule.threshold:.3f}, and then errs on at most "
                f"{self.risk:.0%} of them, with {rule.confidence:.0%} certainty"
            )
        return {
            "coverage": self.coverage, "risk": self.risk, "rows": self.rows, "threshold": rule.threshold,
            "guarantee": f"{covered}; {answered}".rstrip("."),
        }  # fmt: skip


def promise_from(members: Members, rows: Rows, coverage: float, risk: float) -> Promise:
    """The promise that held-out rows allow; training must not have seen them."""
    blocks = [members(block).mean(0) for block in rows.inputs.split(512)]
    probabilities = torch.cat(blocks).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)
        conformal = fit_conformal("lac", probabilities, rows.labels)
        abstention = fit_abstention(probabilities, rows.labels, risk)
    return Promise(coverage, risk, conformal, abstention, len(rows))


@dataclass(frozen=True)
class Model:
    """Answers rows, in blocks."""

    posterior: Posterior
    members: Members
    promise: Promise
    runtime: str = "torch"
    title: str = "A posterior"
    examples: Sequence[tuple[Tensor, str]] = field(default=())  # raw inputs with their labels, for the page

    @property
    def classes(self) -> tuple[str, ...]:
        return self.posterior.task.class_names

    @property
    def pixels_only(self) -> bool:
        """Whether only whole pixels are taken: an ONNX graph of images has one type of input."""
        return self.runtime == "onnx" and len(self.posterior.task.input_shape) == 3

    def answers(self, inputs: Tensor) -> list[str | None]:
        """A JSON object for each row, or None where the numbers were too large for the network."""
        with torch.inference_mode():
            members = self.members(inputs)
            good = torch.isfinite(members).all(-1).all(0)
            safe = torch.where(good[:, None], members, torch.tensor(1 / members.shape[-1]))
            columns = self._columns(safe)
        lines = zip(good.tolist(), *columns, strict=True)
        return [self._row(*line) if usable else None for usable, *line in lines]

    def _columns(self, members: Tensor) -> list[list[Any]]:
        mean = members.mean(0)
        confidence, predicted = mean.max(1)
        parts = (
            mean, members.transpose(0, 1), confidence, predicted, predictive_entropy(mean), mutual_information(members),
            self.promise.sets(mean), self.promise.accepts(mean),
        )  # fmt: skip
        return [part.tolist() for part in parts]

    def _row(
        self, mean: Any, members: Any, confidence: Any, predicted: Any, entropy: Any, information: Any, *rest: Any
    ) -> str:
        inside, accepted = rest
        return json.dumps(
            {
                "predicted": self.classes[predicted],
                "number": predicted,
                "confidence": confidence,
                "probabilities": mean,
                "members": members,
                "entropy": entropy,
                "mutual_information": information,
                "set": [name for name, is_in in zip(self.classes, inside, strict=True) if is_in],
                "accepted": accepted,
            },
            allow_nan=False,
        )


def in_torch(posterior: Posterior) -> Members:
    """The posterior as it is."""
    return lambda inputs: posterior.member_probabilities(inputs, check_finite=False).cpu()


def in_onnx(posterior: Posterior, threads: int = 1) -> Members:
    """The posterior as an ONNX graph in onnxruntime."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "The ONNX runtime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.onnx"
        export_onnx(posterior, path)
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])

    def members(inputs: Tensor) -> Tensor:
        (found,) = session.run(["member_probabilities"], {"inputs": inputs.numpy()})
        return torch.from_numpy(found)

    return members


def model_of(
    posterior: Posterior,
    held_out: Rows | None = None,
    *,
    runtime: Literal["torch", "onnx"] = "torch",
    coverage: float = 0.9,
    risk: float = 0.05,
    title: str = "A posterior",
) -> Model:
    """A posterior made ready to serve; `held_out` rows give its sets and its abstention their guarantee."""
    posterior.task.require_classes("to be served")
    check(runtime in ("torch", "onnx"), "runtime", runtime, "'torch' or 'onnx'")
    members = in_onnx(posterior) if runtime == "onnx" else in_torch(posterior)
    if held_out is None:
        return Model(posterior, members, Promise(coverage, risk), runtime, title)
    promise = promise_from(members, held_out, coverage, risk)
    names = posterior.task.class_names
    chosen = range(0, len(held_out), max(1, len(held_out) // 12))
    examples = [(held_out.inputs[row], names[int(held_out.labels[row])]) for row in chosen][:12]
    return Model(posterior, members, promise, runtime, title, examples)
