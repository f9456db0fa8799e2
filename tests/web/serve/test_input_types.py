"""Networks trained on floats shaped as images, or on bytes shaped as a table, are exported and served as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import httpx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from mixupmp import DeepEnsembleClassifier, Posterior, Recipe, ensemble_of, load, posterior_of, save
from mixupmp.export.onnx import export_onnx
from mixupmp.web.serve import Limits, served_model
from mixupmp.web.serve.app import create_app

from .live import served

GENERATOR = torch.Generator().manual_seed(0)
FLOATS = torch.randint(0, 4, (30, 2, 4, 4), generator=GENERATOR).float()  # which JSON may write as whole numbers
BYTES = torch.randint(0, 256, (30, 32), generator=GENERATOR, dtype=torch.uint8)
LABELS = torch.arange(30) % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 3))


def posterior(kind: str, X: Tensor) -> Posterior:
    if kind == "ensemble_of":
        return ensemble_of([network()], X[:2])
    if kind == "posterior_of":
        return posterior_of(network(), X, LABELS, members=2)
    recipe = Recipe(epochs=2, batch_size=10)
    model = DeepEnsembleClassifier(2, network=network, recipe=recipe, calibrate=False, random_state=0)
    return model.fit(X.numpy(), LABELS.numpy(), layout="NCHW").posterior_


CASES = [("ensemble_of", FLOATS), ("posterior_of", FLOATS), ("fit", FLOATS), ("ensemble_of", BYTES)]


@pytest.mark.parametrize(("kind", "X"), CASES)
@pytest.mark.parametrize("runtime", ["torch", "onnx"])
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_rows_are_taken_as_the_network_was_trained_on_them(
    kind: str, X: Tensor, runtime: Literal["torch", "onnx"], tmp_path: Path
) -> None:
    made = posterior(kind, X)
    expected = made.probabilities(X[:5])
    save(made, tmp_path / "run")
    loaded = load(tmp_path / "run", network=network)
    with served(create_app(served_model(loaded, runtime=runtime), Limits(rows=8))) as address:
        answer: Any = httpx.post(address + "predict", json={"inputs": X[:5].int().tolist()}, timeout=60)
    assert answer.status_code == 200, answer.text
    found = torch.tensor([row["probabilities"] for row in answer.json()["predictions"]])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore")
def test_graphs_take_the_type_of_the_fit(tmp_path: Path) -> None:
    for X, kind in ((FLOATS, "tensor(float)"), (BYTES, "tensor(uint8)"), (FLOATS.byte(), "tensor(uint8)")):
        export_onnx(posterior("ensemble_of", X), tmp_path / "model.onnx")
        (taken,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").get_inputs()
        assert taken.type == kind
