"""Ensembles that were trained elsewhere and take tokens, a dict or a tuple: saved, reported, exported and served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from mixupmp import Dataset, Posterior, Rows, ensemble_of, load, save
from mixupmp.export.onnx import export_onnx
from mixupmp.web.report import evaluate, evaluated_run, write_report
from mixupmp.web.serve import Limits, served_model
from mixupmp.web.serve.app import create_app

from .live import served

ROWS, CLASSES = 30, ("low", "middle", "high")


class Sentences(nn.Module):
    """Tokens, and a mask by name where there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(12, 6), nn.Linear(6, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.last((self.embedding(input_ids) * mask[..., None]).sum(1))  # type: ignore[no-any-return]


class Measured(nn.Module):
    """Pixels and a line of numbers by position."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.table = nn.Linear(16, 3), nn.Linear(2, 3)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        return self.image(image.flatten(1)) + self.table(table)  # type: ignore[no-any-return]


def inputs_of(kind: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 12, (ROWS, 5), generator=generator)
    if kind == "tokens":
        return ids
    if kind == "dict":
        return {"input_ids": ids, "attention_mask": (ids != 3).long()}
    pixels = torch.randint(0, 256, (ROWS, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return pixels, torch.randn(ROWS, 2, generator=generator)


def some(X: Any, rows: int) -> Any:
    if isinstance(X, dict):
        return {name: value[:rows] for name, value in X.items()}
    return tuple(value[:rows] for value in X) if isinstance(X, tuple) else X[:rows]


def called(network: nn.Module, X: Any) -> Tensor:
    """The network's own probabilities, for inputs as it takes them."""
    if isinstance(X, dict):
        return network(**X).softmax(1).detach()  # type: ignore[no-any-return]
    given = (X[0] / 255, X[1]) if isinstance(X, tuple) else (X,)
    return network(*given).softmax(1).detach()  # type: ignore[no-any-return]


KINDS = pytest.mark.parametrize(("kind", "network"), [("tokens", Sentences), ("dict", Sentences), ("tuple", Measured)])


def trained(kind: str, network: type[nn.Module]) -> tuple[Posterior, Any, Tensor]:
    """Two networks as a posterior, rows for it, and what it must predict for them."""
    torch.manual_seed(0)
    networks, X = [network(), network()], inputs_of(kind)
    expected = torch.stack([called(one, X) for one in networks]).mean(0)
    return ensemble_of(networks, some(X, 2), classes=CLASSES), X, expected


@KINDS
def test_it_predicts_is_saved_and_loaded(kind: str, network: type[nn.Module], tmp_path: Path) -> None:
    posterior, X, expected = trained(kind, network)
    torch.testing.assert_close(posterior.probabilities(X), expected)
    save(posterior, tmp_path / "run")
    torch.testing.assert_close(load(tmp_path / "run", network=network).probabilities(X), expected)


@KINDS
def test_it_is_reported(kind: str, network: type[nn.Module], tmp_path: Path) -> None:
    posterior, X, expected = trained(kind, network)
    rows = Rows(posterior.task.standardize.pack(X), torch.arange(ROWS) % 3)
    dataset = Dataset("elsewhere", rows, rows, CLASSES, posterior.task.standardize)
    run = evaluated_run(posterior, evaluate(posterior, dataset))
    torch.testing.assert_close(run.evaluation.probabilities.float(), expected)
    page = write_report([run], tmp_path / "report.html").read_text()
    accuracy = float((expected.argmax(1) == rows.labels).float().mean())
    assert all(name in page for name in CLASSES)
    assert run.metrics.result.to_dict()["acc"] == pytest.approx(accuracy)


@KINDS
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_it_is_exported(kind: str, network: type[nn.Module], tmp_path: Path) -> None:
    posterior, X, expected = trained(kind, network)
    path = tmp_path / "model.onnx"
    export_onnx(posterior, path)
    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_inputs()]
    given = X if isinstance(X, dict) else dict(zip(names, X if isinstance(X, tuple) else (X,), strict=True))
    assert set(names) == set(given)
    (found, *_) = session.run(["probabilities"], {name: value.numpy() for name, value in given.items()})
    np.testing.assert_allclose(found, expected, atol=1e-5)


@KINDS
def test_it_is_served(kind: str, network: type[nn.Module]) -> None:
    posterior, X, expected = trained(kind, network)
    few = some(X, 5)
    if isinstance(few, dict):
        body: object = {name: value.tolist() for name, value in few.items()}
    else:
        body = [value.tolist() for value in few] if isinstance(few, tuple) else few.tolist()
    model = served_model(posterior, runtime="torch")
    with served(create_app(model, Limits(rows=8))) as address:
        answer = httpx.post(address + "predict", json={"inputs": body}, timeout=60)
        assert answer.status_code == 200, answer.text
        found = torch.tensor([row["probabilities"] for row in answer.json()["predictions"]])
        torch.testing.assert_close(found, expected[:5], atol=1e-5, rtol=0)
