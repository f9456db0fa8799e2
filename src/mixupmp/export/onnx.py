"""Export a posterior as one ONNX graph: raw inputs in; member probabilities, their mean and two uncertainties out.

The graph contains the scaling of the inputs, so it accepts what the posterior accepts: uint8 images or the numbers of a
table. The number of rows is dynamic. Its metadata lists what is constant in it.
"""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.errors import InvalidArgument, MissingExtra, MixupMPError
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.likelihoods import Gaussian
from mixupmp.core.posterior import Posterior
from mixupmp.core.version import __version__
from mixupmp.decide.calibrators import Calibrator, Temperature, VectorScaling
from mixupmp.export.members import member_module
from mixupmp.metrics.checks import TINY

CLASSIFIER_OUTPUTS = ("member_probabilities", "probabilities", "entropy", "mutual_information")
REGRESSOR_OUTPUTS = ("member_means", "member_deviations", "predicted_mean", "predicted_deviation")
TOLERANCE = 1e-5
OPSET = 18


class ExportDisagrees(MixupMPError, ArithmeticError):
    """onnxruntime and PyTorch compute different outputs for the exported graph."""


def export_onnx(
    posterior: Posterior,
    path: str | Path,
    *,
    pixels: bool | None = None,
    calibrator: Calibrator | None = None,
    target: tuple[float, float] = (0.0, 1.0),
) -> dict[str, str]:
    """Write the posterior as an ONNX file, compare it with PyTorch in onnxruntime, and return its metadata.

    Outputs of a classifier: member_probabilities (members, rows, classes), their mean, probabilities (rows, classes),
    its entropy (rows,), and mutual_information (rows,). Of a regressor: member_means, member_deviations (members,
    rows), predicted_mean and predicted_deviation (rows,).

    Parameters
    ----------
    pixels : bool or None
        Inputs are uint8. None: for images they are.
    calibrator : Temperature, VectorScaling or None
        Applied to the mean of the members.
    target : tuple of float
        Mean and standard deviation of a regressor's target, to which its outputs are scaled back.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401 - missing packages are reported before the export
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", "onnx", "Exporting to ONNX") from error
    task = posterior.task
    if pixels is None:
        pixels = len(task.input_shape) == 3
    example = _example(task.input_shape, pixels)
    graph = _graph(posterior, example, calibrator, target).eval()
    names = CLASSIFIER_OUTPUTS if task.likelihood.classes else REGRESSOR_OUTPUTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the exporter
        program: Any = torch.onnx.export(
            graph,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            verbose=False,
            input_names=["inputs"],
            output_names=list(names),
            dynamic_shapes={"inputs": {0: torch.export.Dim("rows", min=1)}},
        )
    model = program.model_proto
    metadata = _metadata(posterior, pixels, calibrator)
    onnx.helper.set_model_props(model, metadata)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    _check(path, graph, names, task.input_shape, pixels)
    return metadata


class _Scaled(nn.Module):
    """`Standardize` as a module."""

    slope: Tensor
    shift: Tensor

    def __init__(self, posterior: Posterior, pixels: bool) -> None:
        super().__init__()
        standardize, shape = posterior.task.standardize, posterior.task.input_shape
        scale = 1 / 255 if pixels else 1.0
        view = (1, -1) + (1,) * (len(shape) - 1)
        slope = [scale / d for d in standardize.deviation] or [scale]
        shift = [-m / d for m, d in zip(standardize.mean, standardize.deviation, strict=True)] or [0.0]
        self.register_buffer("slope", torch.tensor(slope).view(view))
        self.register_buffer("shift", torch.tensor(shift).view(view))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.float() * self.slope + self.shift


class _Classifier(nn.Module):
    def __init__(self, scaled: nn.Module, members: nn.Module, calibrator: Calibrator | None) -> None:
        super().__init__()
        self.scaled, self.members = scaled, members
        self.scales, self.shifts = _calibration(calibrator)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        each = self.members(self.scaled(inputs)).softmax(-1)
        pooled = each.mean(0)
        disagreement = (_entropy(pooled) - _entropy(each).mean(0)).clamp(min=0)
        if self.scales is not None:
            pooled = (pooled.clamp(min=TINY).log() * self.scales + self.shifts).softmax(-1)
        return each, pooled, _entropy(pooled), disagreement


class _Regressor(nn.Module):
    def __init__(self, scaled: nn.Module, members: nn.Module, target: tuple[float, float]) -> None:
        super().__init__()
        self.scaled, self.members = scaled, members
        self.center, self.scale = target

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        means, deviations = Gaussian().moments(self.members(self.scaled(inputs)))
        means, deviations = means * self.scale + self.center, deviations * self.scale
        mean = means.mean(0)
        variance = deviations.square().mean(0) + (means - mean).square().mean(0)
        return means, deviations, mean, variance.sqrt()


def _graph(
    posterior: Posterior, example: Tensor, calibrator: Calibrator | None, target: tuple[float, float]
) -> nn.Module:
    posterior = copy.deepcopy(posterior).to("cpu")
    members = member_module(posterior, example)
    scaled = _Scaled(posterior, example.dtype == torch.uint8)
    if posterior.task.likelihood.classes:
        return _Classifier(scaled, members, calibrator)
    return _Regressor(scaled, members, target)


def _calibration(calibrator: Calibrator | None) -> tuple[Any, Any]:
    if calibrator is None:
        return None, None
    if isinstance(calibrator, Temperature):
        return 1 / calibrator.temperature, 0.0
    if isinstance(calibrator, VectorScaling):
        return nn.Buffer(torch.tensor(calibrator.scales)), nn.Buffer(torch.tensor(calibrator.shifts))
    raise InvalidArgument("calibrator", type(calibrator).__name__, "a temperature or vector scaling of the mean")


def _entropy(probabilities: Tensor) -> Tensor:
    return -(probabilities * probabilities.clamp(min=TINY).log()).sum(-1)


def _example(shape: tuple[int, ...], pixels: bool, rows: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if pixels:
        return torch.randint(0, 256, (rows, *shape), generator=generator, dtype=torch.uint8)
    return torch.randn(rows, *shape, generator=generator)


def _metadata(posterior: Posterior, pixels: bool, calibrator: Calibrator | None) -> dict[str, str]:
    constant = [
        "the weights of every member",
        "the scaling of the inputs",
        f"the number of members, {posterior.members}",
        "batch normalization, in evaluation mode",
    ]
    if isinstance(posterior, DropoutPosterior):
        constant.append("one dropout mask for each member")
    if isinstance(posterior, LaplacePosterior):
        constant.append("the samples of the last layer")
    if calibrator is not None:
        constant.append(f"the calibration of the mean, {calibrator}")
    shape = ", ".join(map(str, posterior.task.input_shape))
    return {
        "mixupmp.core.version": __version__,
        "mixupmp.classes": json.dumps(list(posterior.task.classes)),
        "mixupmp.inputs": f"{'uint8 pixels' if pixels else 'float32'} (rows, {shape})",
        "mixupmp.frozen": "; ".join(constant) + ". The number of rows is dynamic.",
        "mixupmp.notes": "; ".join(posterior.notes),
    }


def _check(path: Path, graph: nn.Module, names: tuple[str, ...], shape: tuple[int, ...], pixels: bool) -> None:
    """Compare the outputs of onnxruntime with PyTorch's, for one row and for several."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for rows in (1, 7):
        inputs = _example(shape, pixels, rows)
        with torch.no_grad():
            expected = graph(inputs)
        for name, ours, theirs in zip(names, expected, session.run(None, {"inputs": inputs.numpy()}), strict=True):
            scale = max(1.0, float(ours.abs().max()))
            gap = float(np.abs(ours.numpy() - theirs).max()) / scale
            if not gap <= TOLERANCE:
                raise ExportDisagrees(f"{path}: {name} differs by {gap:.2g} between onnxruntime and PyTorch.")
