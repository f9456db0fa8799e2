"""Made-up runs whose figures are known beforehand."""

from __future__ import annotations

import torch
from torch import Tensor

from mixupmp import Recipe, deep_ensemble, mixup_mp, plan_for
from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.methods import Method
from mixupmp.core.rows import Dataset, Rows
from mixupmp.store.record import read_record
from mixupmp.web.report import EvaluatedRun, Evaluation
from mixupmp.web.report.evaluated import method_title
from mixupmp.web.report.evaluation import most_telling


def picture_dataset(rows: int = 60, classes: tuple[str, ...] = ("cat", "dog", "<i>&")) -> Dataset:
    draws = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 256, (rows, 1, 8, 8), generator=draws, dtype=torch.uint8)
    labels = torch.arange(rows) % len(classes)
    return Dataset("made-up", Rows(inputs, labels), Rows(inputs, labels), classes)


def answers(rows: int, classes: int, members: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random member probabilities that lean towards the label, and the labels."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (rows,), generator=draws)
    logits = torch.randn(members, rows, classes, generator=draws)
    logits += 2.5 * torch.nn.functional.one_hot(labels, classes)
    return logits.softmax(-1), labels


def made_up_run(
    method: Method | None = None, rows: int = 300, members: int = 4, seed: int = 0, title: str | None = None
) -> EvaluatedRun:
    """A run that was never trained, with random answers."""
    dataset = picture_dataset()
    plan = plan_for(dataset, method or deep_ensemble(members), "mlp", Recipe(epochs=3))
    probabilities, labels = answers(rows, 3, members, seed)
    shown = most_telling(probabilities.mean(0), labels)
    inputs = torch.randint(0, 256, (len(shown), 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    evaluation = Evaluation("made-up", dataset.classes, probabilities, labels, shown, inputs, "the same rows")
    history = [{"member": 0, "epoch": e, "loss": 1 / e, "learning_rate": 0.1, "seconds": 0.1} for e in (1, 2, 3)]
    summaries = tuple(MemberSummary(m, 3, 3, 0.1, 1.0, None, history) for m in range(members))
    record = read_record(plan.document())
    return EvaluatedRun(title or method_title(plan.method), record, evaluation, summaries)


def two_runs(rows: int = 300) -> list[EvaluatedRun]:
    return [made_up_run(rows=rows), made_up_run(mixup_mp(1.0, 2.0), rows=rows, seed=0, title=None)]
