"""An estimator that was fitted to a data frame, saved and served: rows by name, and what the fit has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from mixupmp import Recipe, load
from mixupmp.estimators import MixupMPClassifier
from mixupmp.web.serve.app import create_app
from mixupmp.web.serve.model import served_model

from .live import served

QUICK = Recipe(epochs=4, batch_size=32, optimizer="adamw", learning_rate=1e-2, weight_decay=1e-3, schedule="constant")
FRAME = pd.DataFrame({"color": ["red", "blue", "green"] * 10, "size": np.arange(30.0), "wide": np.arange(30) % 4})


@pytest.fixture(scope="module")
def model() -> MixupMPClassifier:
    plain = MixupMPClassifier(0.1, 0.4, 2, share_weights=True, recipe=QUICK, calibrate=False, random_state=0)
    return plain.fit(FRAME, np.arange(30) % 2)


@pytest.fixture(scope="module", params=["torch", "onnx"])
def client(request: Any, model: MixupMPClassifier, tmp_path_factory: Any) -> Iterator[httpx.Client]:
    if request.param == "onnx":
        pytest.importorskip("onnxruntime")
    folder: Path = tmp_path_factory.mktemp("saved") / "model"
    model.save(folder)
    app = create_app(served_model(load(folder), runtime=request.param))
    with served(app) as address, httpx.Client(base_url=address, timeout=60) as running:
        yield running


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_rows_by_name_in_any_order_and_what_the_fit_has_not_seen(client: httpx.Client, model: Any) -> None:
    rows = FRAME[["wide", "color", "size"]][:3].to_dict("records")
    said = client.post("/predict", json={"inputs": rows}).json()
    found = [one["probabilities"] for one in said["predictions"]]
    assert np.allclose(found, model.predict_proba(FRAME[:3]), atol=1e-5)
    assert said["warnings"] == []
    new = client.post("/predict", json={"inputs": [{"color": "pink", "size": None, "wide": 1}]}).json()["warnings"]
    assert len(new) == 2
    assert "new category 'pink'" in new[0]
    assert "column 'size' has missing values" in new[1]
    short = client.post("/predict", json={"inputs": [{"color": "red", "size": 1.0}]})
    assert short.status_code == 422
    assert "the column 'wide' is not there" in short.json()["detail"]
    infinite = client.post("/predict", json={"inputs": [{"color": "red", "size": 1e39, "wide": 1}]})
    assert infinite.status_code == 422
    assert "column 'size' has infinity" in infinite.json()["detail"]
    assert infinite.json()["detail"].endswith("or make the value a missing one")
