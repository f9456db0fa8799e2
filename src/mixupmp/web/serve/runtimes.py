"""What computes the server's answers: torch, or onnxruntime on an exported graph."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixupmp.core.errors import InvalidArgument, check, extra
from mixupmp.core.posterior import Posterior
from mixupmp.decide.detect import BLOCK_ROWS, FEATURE_SCORES, Detector, score_outputs
from mixupmp.export.flags import Flags
from mixupmp.export.inputs import graph_feed
from mixupmp.export.onnx import export_onnx

MemberProbabilities = Callable[[Tensor], Tensor]  # raw inputs to (members, rows, classes)
ScoredMembers = Callable[[Tensor], tuple[Tensor, Tensor]]  # the same, and the score of each row that flags go by


def torch_members(posterior: Posterior) -> MemberProbabilities:
    """A posterior's member probabilities, computed by torch; `predict` finds those that are not finite."""
    return lambda inputs: posterior.member_probabilities(inputs, check_finite=False).cpu()


def torch_scored_members(posterior: Posterior, detector: Detector, score: str) -> ScoredMembers:
    """Member probabilities and this score, as `Detector.detect` has it, computed by torch."""
    reference, members = detector.reference, torch_members(posterior)
    if score in FEATURE_SCORES:
        check(reference is not None, "detector", detector, f"one with a reference, for the score {score}")
        assert reference is not None
        return lambda inputs: (members(inputs), reference.distances(posterior, inputs, score))

    def scored(inputs: Tensor) -> tuple[Tensor, Tensor]:
        # In the blocks of `row_scores`, for the same bits.
        pad = len(posterior.task.input_shape) == 1
        blocks = posterior.stream_outputs(inputs, BLOCK_ROWS, pad=pad, check_finite=False)
        outputs = [block.cpu() for block in blocks]
        scores = [score_outputs(score, block.double()) for block in outputs]
        return torch.cat(outputs, 1).softmax(-1), torch.cat(scores)

    return scored


def onnx_members(posterior: Posterior, threads: int = 1) -> MemberProbabilities:
    """A posterior's member probabilities, computed by onnxruntime."""
    run = _onnx_session(posterior, None, threads)
    return lambda inputs: run(["member_probabilities"], inputs)[0]


def onnx_scored_members(posterior: Posterior, detector: Detector, score: str, threads: int = 1) -> ScoredMembers:
    """Member probabilities and this score, computed by onnxruntime in one graph."""
    run = _onnx_session(posterior, Flags(detector, score), threads)

    def scored(inputs: Tensor) -> tuple[Tensor, Tensor]:
        members, scores = run(["member_probabilities", "score"], inputs)
        return members, scores

    return scored


def _onnx_session(
    posterior: Posterior, flags: Flags | None, threads: int
) -> Callable[[Sequence[str], Tensor], list[Tensor]]:
    """Outputs by name of raw inputs."""
    with extra("onnxruntime", "onnx", "The ONNX runtime"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.onnx"
        export_onnx(posterior, path, columns=None, flags=flags)  # requests are encoded before
        session: Any = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])

    def run(names: Sequence[str], inputs: Tensor) -> list[Tensor]:
        try:
            found = session.run(list(names), graph_feed(posterior.task, inputs))
        except Exception as error:  # onnxruntime's own classes
            if posterior.task.standardize.blendable:
                raise
            must = "tokens of the network's vocabulary"
            raise InvalidArgument("inputs", f"tokens from {inputs.min():g} to {inputs.max():g}", must) from error
        return [torch.from_numpy(one) for one in found]

    return run
