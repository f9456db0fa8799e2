"""Export a posterior as one ONNX graph: raw inputs in; member probabilities, their mean and two uncertainties out.

The graph contains the scaling of the inputs, so it accepts what the posterior accepts: uint8 images, the numbers of a
table or its columns with categories and missing values, tokens, or several inputs by name. The number of rows is
dynamic. Its metadata lists what is constant in it.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mixupmp.core.columns import Columns
from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.errors import InvalidArgument, MissingExtra, MixupMPError, check
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.likelihoods import Gaussian
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Standardize
from mixupmp.core.version import __version__
from mixupmp.decide.calibrators import Calibrator, Temperature, VarianceFactor, VectorScaling
from mixupmp.export.columns import check_columns, column_examples, column_metadata, with_columns
from mixupmp.export.flags import Flags
from mixupmp.export.inputs import GraphInput, Packed, Scaled, graph_inputs
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
    calibrator: Calibrator | VarianceFactor | None = None,
    target: tuple[float, float] = (0.0, 1.0),
    flags: Flags | None = None,
    columns: Columns | Literal["auto"] | None = "auto",
) -> dict[str, str]:
    """Write the posterior as an ONNX file, compare it with PyTorch in onnxruntime, and return its metadata.

    Outputs of a classifier: member_probabilities (members, rows, classes), their mean, probabilities (rows, classes),
    its entropy (rows,), and mutual_information (rows,). Of a regressor: member_means, member_deviations (members,
    rows), predicted_mean and predicted_deviation (rows,), in float64.

    Parameters
    ----------
    pixels : bool or None
        Inputs are uint8. None: as in the fit. Not used for tokens and several inputs, which have their types.
    calibrator : Temperature, VectorScaling, VarianceFactor (of a regressor) or None
        Applied to the mean of the members.
    target : tuple of float
        Mean and standard deviation of a regressor's target, to which its outputs are scaled back.
    flags : Flags or None
        Of a classifier: adds the outputs score, p_value and flagged (rows,).
    columns : Columns, "auto" or None
        How a table's columns became rows of numbers. The graph then takes the columns: one input (rows, columns) of
        float32, NaN where a value is missing; or, where some have categories, one input (rows,) for each column that
        had values, by its name, float32 or text, "" where a category is missing. "auto": as the posterior's task says;
        None: rows that are encoded already.
    posterior, path
        What is written, and where.

    Returns
    -------
    dict
        The file's metadata.
    """
    onnx = _required()
    task = posterior.task
    if columns == "auto":
        columns = task.encoder if isinstance(task.encoder, Columns) else None
    inputs = graph_inputs(task, pixels)
    examples = tuple(entry.example(3) for entry in inputs)
    graph = _graph(posterior, inputs, calibrator, target, flags).eval()
    names: tuple[str, ...] = CLASSIFIER_OUTPUTS if task.likelihood.classes else REGRESSOR_OUTPUTS
    names += () if flags is None else flags.outputs
    if columns is not None:
        check_columns(columns, names)
    model = _exported(graph, examples, [entry.name for entry in inputs], names).model_proto
    metadata = _metadata(posterior, inputs, calibrator, flags)
    if columns is not None:
        model = with_columns(model, columns, names)
        metadata |= column_metadata(columns)
    onnx.helper.set_model_props(model, metadata)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    _check(Path(path), graph, names, inputs, columns)
    return metadata


def _required() -> ModuleType:
    """Missing packages are reported before the export."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", "onnx", "Exporting to ONNX") from error
    return onnx


def _exported(graph: nn.Module, examples: tuple[Tensor, ...], inputs: list[str], outputs: tuple[str, ...]) -> Any:
    with warnings.catch_warnings(), _plain_export():
        warnings.simplefilter("ignore")  # deprecations inside the exporter
        try:
            return torch.onnx.export(
                graph,
                examples,
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
                input_names=inputs,
                output_names=list(outputs),
                dynamic_shapes={"inputs": tuple({0: torch.export.Dim("rows", min=1)} for _ in inputs)},
            )
        except torch.onnx.OnnxExporterError as error:
            cause = str(error.__cause__ or error).strip().partition("\n")[0]
            must = "one that torch.export can trace: without decisions that depend on the values of its inputs"
            raise InvalidArgument("network", f"{type(graph).__name__} of it", must, f"{cause}.") from error


@contextmanager
def _plain_export() -> Iterator[None]:
    """Without torch's fused attention layers, for which ONNX has no operators, and without the exporter's lines about
    operators of torchvision, which nobody needs to have installed.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    torch.backends.mha.set_fastpath_enabled(False)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        logger.setLevel(level)


class _Classifier(nn.Module):
    def __init__(
        self, scaled: nn.Module, members: nn.Module, calibrator: Calibrator | VarianceFactor | None, flags: Flags | None
    ) -> None:
        super().__init__()
        self.scaled, self.members, self.flags = scaled, members, flags
        self.scales, self.shifts = _calibration(calibrator)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        scaled = self.scaled(*inputs)
        outputs = self.members(scaled)
        each = outputs.softmax(-1)
        pooled = each.mean(0)
        disagreement = (_entropy(pooled) - _entropy(each).mean(0)).clamp(min=0)
        if self.scales is not None:
            pooled = (pooled.clamp(min=TINY).log() * self.scales + self.shifts).softmax(-1)
        flagged = self.flags(outputs, scaled) if self.flags is not None else ()
        return each, pooled, _entropy(pooled), disagreement, *flagged


class _Regressor(nn.Module):
    def __init__(
        self, scaled: nn.Module, members: nn.Module, target: tuple[float, float], variance: VarianceFactor
    ) -> None:
        super().__init__()
        self.scaled, self.members, self.variance = scaled, members, variance
        # Tensors of double precision, as targets may be far from zero: numbers would become float32 constants.
        self.center, self.scale = (nn.Buffer(torch.tensor(value, dtype=torch.float64)) for value in target)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        means, deviations = self.variance(*Gaussian().moments(self.members(self.scaled(*inputs))))
        means, deviations = means.double() * self.scale + self.center, deviations.double() * self.scale
        mean = means.mean(0)
        variance = deviations.square().mean(0) + (means - mean).square().mean(0)
        return means, deviations, mean, variance.sqrt()


def _graph(
    posterior: Posterior,
    inputs: Sequence[GraphInput],
    calibrator: Calibrator | VarianceFactor | None,
    target: tuple[float, float],
    flags: Flags | None,
) -> nn.Module:
    posterior = copy.deepcopy(posterior).to("cpu")
    task, examples = posterior.task, [entry.example(3) for entry in inputs]
    scaled: nn.Module
    if isinstance(task.standardize, Standardize):
        packed, scaled = examples[0], Scaled(task.standardize, task.input_shape, inputs[0].dtype == torch.uint8)
    else:
        named = {f.name: example for f, example in zip(task.standardize.fields, examples, strict=True)}
        packed, scaled = task.standardize.pack(examples if "" in named else named), Packed(task.standardize)
    if flags is not None:
        # Masks are put into a dropout posterior's own network; features are of the network without them.
        flags.prepare(copy.deepcopy(posterior) if isinstance(posterior, DropoutPosterior) else posterior)
    members = member_module(posterior, packed)
    if posterior.task.likelihood.classes:
        return _Classifier(scaled, members, calibrator, flags)
    check(flags is None, "flags", flags, "None for a regressor")
    variance = VarianceFactor(1.0) if calibrator is None else calibrator
    if not isinstance(variance, VarianceFactor):
        raise InvalidArgument("calibrator", type(variance).__name__, "a VarianceFactor, for a regressor")
    return _Regressor(scaled, members, target, variance)


def _calibration(calibrator: Calibrator | VarianceFactor | None) -> tuple[Any, Any]:
    if calibrator is None:
        return None, None
    if isinstance(calibrator, Temperature):
        return 1 / calibrator.temperature, 0.0
    if isinstance(calibrator, VectorScaling):
        return nn.Buffer(torch.tensor(calibrator.scales)), nn.Buffer(torch.tensor(calibrator.shifts))
    raise InvalidArgument("calibrator", type(calibrator).__name__, "a temperature or vector scaling of the mean")


def _entropy(probabilities: Tensor) -> Tensor:
    return -(probabilities * probabilities.clamp(min=TINY).log()).sum(-1)


def _metadata(
    posterior: Posterior,
    inputs: Sequence[GraphInput],
    calibrator: Calibrator | VarianceFactor | None,
    flags: Flags | None,
) -> dict[str, str]:
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
    if flags is not None:
        constant += flags.constants()
    described = [str(entry) if len(inputs) == 1 else f"{entry.name}: {entry}" for entry in inputs]
    found = {
        "mixupmp.version": __version__,
        "mixupmp.classes": json.dumps(list(posterior.task.classes)),
        "mixupmp.inputs": "; ".join(described),
        "mixupmp.frozen": "; ".join(constant) + ". The number of rows is dynamic.",
        "mixupmp.notes": "; ".join(posterior.notes),
    }
    return found if flags is None else found | flags.metadata()


def _check(
    path: Path, graph: nn.Module, names: tuple[str, ...], inputs: Sequence[GraphInput], columns: Columns | None
) -> None:
    """Compare the outputs of onnxruntime with PyTorch's, for one row and for several."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for rows in (1, 7):
        if columns is None:
            examples = [entry.example(rows) for entry in inputs]
            given = {entry.name: example.numpy() for entry, example in zip(inputs, examples, strict=True)}
        else:
            given, encoded = column_examples(columns, rows)
            examples = [encoded]
        with torch.no_grad(), _plain_export():
            expected = graph(*examples)
        try:
            found = session.run(None, given)
        except Exception as error:  # onnxruntime's own classes
            must = "one for which the number of rows is free: take x.shape[0] where it has len(x)"
            raise InvalidArgument("network", f"an error for {rows} rows", must, f"{error}") from error
        for name, ours, theirs in zip(names, expected, found, strict=True):
            if name in Flags.outputs[1:]:
                continue  # steps of the score, where the last bit may decide
            scale = max(1.0, float(ours.abs().max()))
            gap = float(np.abs(ours.numpy() - theirs).max()) / scale
            if not gap <= TOLERANCE:
                raise ExportDisagrees(f"{path}: {name} differs by {gap:.2g} between onnxruntime and PyTorch.")
