"""Tokens and several inputs over HTTP, computed by torch and by onnxruntime."""

from __future__ import annotations

import io

import httpx
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mixupmp import Categorical, Dataset, Fields, Rows, Task
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.web.report.evaluation import evaluate
from mixupmp.web.serve import Limits, served_model
from mixupmp.web.serve.app import create_app

from .live import served

LENGTH, VOCABULARY = 4, 9


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, 6), nn.Linear(6, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.head((self.embedding(input_ids) * mask[..., None]).sum(1))  # type: ignore[no-any-return]


def tokens(rows: int = 5) -> dict[str, Tensor]:
    ids = torch.randint(0, VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": (ids != 3).long()}


def posterior_of(named: bool) -> EnsemblePosterior:
    torch.manual_seed(0)
    fields = Fields.of(tokens() if named else tokens()["input_ids"])
    networks: list[nn.Module] = [Pooled() for _ in range(2)]
    return EnsemblePosterior(networks, Task(Categorical(3), fields, fields.shape, ("a", "b", "c")), 2)


@pytest.mark.parametrize(("named", "runtime"), [(True, "torch"), (True, "onnx"), (False, "torch")])
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_requests_by_name_agree_with_the_posterior(named: bool, runtime: str) -> None:
    posterior = posterior_of(named)
    given = tokens() if named else tokens()["input_ids"]
    as_json = {name: value.tolist() for name, value in tokens().items()} if named else tokens()["input_ids"].tolist()
    model = served_model(posterior, runtime=runtime)  # type: ignore[arg-type]
    with served(create_app(model, Limits(rows=8))) as address, httpx.Client(base_url=address, timeout=60) as client:
        answer = client.post("/predict", json={"inputs": as_json})
        assert answer.status_code == 200, answer.text
        found = torch.tensor([row["probabilities"] for row in answer.json()["predictions"]])
        torch.testing.assert_close(found, posterior.probabilities(given), atol=1e-5, rtol=0)
        fields = client.get("/metadata").json()["input_fields"]
        assert [field["dtype"] for field in fields] == ["int64"] * (2 if named else 1)
        if named:  # a mask may be of booleans
            mask = tokens()["attention_mask"].bool().tolist()
            booleans = client.post("/predict", json={"inputs": {**as_json, "attention_mask": mask}})  # type: ignore[dict-item]
            assert booleans.json() == answer.json()
        for wrong, message in wrong_requests(as_json, named):
            refused = client.post("/predict", json={"inputs": wrong})
            assert (refused.status_code, message in refused.text) == (422, True), refused.text
        if not named:
            content = io.BytesIO()
            np.save(content, tokens()["input_ids"].numpy())
            binary = {"content-type": "application/octet-stream"}
            assert client.post("/predict", content=content.getvalue(), headers=binary).json() == answer.json()


def wrong_requests(good: object, named: bool) -> list[tuple[object, str]]:
    floats, unknown = [[0.5] * LENGTH], [[VOCABULARY + 3] * LENGTH]
    if not named:
        return [
            ({"input_ids": good}, "rows of tokens"),
            (floats, "whole numbers"),
            ([[1, 2]], "of shape (rows, 4)"),
            (unknown, "vocabulary"),
        ]
    assert isinstance(good, dict)
    mask = good["attention_mask"]
    return [
        (good["input_ids"], "attention_mask"),
        ({"input_ids": good["input_ids"]}, "attention_mask"),
        ({**good, "more": mask}, "attention_mask"),
        ({**good, "input_ids": floats * 5}, "whole numbers"),
        ({**good, "attention_mask": mask[1:]}, "as many rows each"),
        ({**good, "input_ids": "text"}, "attention_mask"),
        ({"input_ids": unknown, "attention_mask": [[1] * LENGTH]}, "vocabulary"),
    ]


def test_a_report_is_made_of_tokens_too() -> None:
    posterior, fields = posterior_of(True), Fields.of(tokens(40))
    rows = Rows(fields.pack(tokens(40)), torch.arange(40) % 3)
    evaluation = evaluate(posterior, Dataset("sentences", rows, rows, ("a", "b", "c"), fields))
    assert evaluation.members.shape == (2, 40, 3)
    assert evaluation.inputs.dtype == torch.int64
