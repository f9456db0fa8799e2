"""The catalog of metrics: what it says is what is computed, and one rule decides what is best."""

from __future__ import annotations

import json

import pytest
import torch

from mixupmp.core.errors import UnknownName
from mixupmp.metrics import METRICS, Metric, Scores, Summary, best, metric_named
from mixupmp.metrics.catalog import confidence_gaps
from mixupmp.metrics.comparison import summary_of

LOSS = Metric("loss", "Loss", "loss", higher_is_better=False)


def predictions(members: int = 3, rows: int = 200, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(members, rows, classes, generator=generator, dtype=torch.float64)
    return logits.softmax(-1), torch.randint(classes, (rows,), generator=generator)


def test_the_fused_sums_are_the_means_of_the_functions_by_row() -> None:
    members, labels = predictions()
    result = Scores(4).update(members, labels).result()
    by_row = [metric for metric in METRICS.values() if metric.per_row is not None]
    assert len(by_row) >= 7
    for metric in by_row:
        values = metric.per_row(members if metric.needs_members else members.mean(0), labels)  # type: ignore[misc]
        assert values.shape == labels.shape
        assert float(values.mean()) == pytest.approx(result.values[metric.name], abs=1e-9)


def test_binned_metrics_are_functions_of_the_gaps_between_confidence_and_accuracy() -> None:
    members, labels = predictions()
    confidence, predicted = members.mean(0).max(1)
    gaps = confidence_gaps(confidence, predicted == labels)
    result = Scores(4).update(members, labels).result()
    for name in ("ece", "oe", "ue"):
        assert float(METRICS[name].binned(gaps)) == pytest.approx(result.values[name], abs=1e-9)  # type: ignore[misc]


def test_a_metric_added_in_one_line_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    margin = Metric("margin", "Margin", "margin", True, per_row=lambda p, y: p.topk(2).values.diff().neg().squeeze(1))
    spread = Metric("spread", "Spread", "spread", per_row=lambda p, y: p.std(0).sum(1), needs_members=True)
    monkeypatch.setitem(METRICS, "margin", margin)
    monkeypatch.setitem(METRICS, "spread", spread)
    members, labels = predictions()
    halves = [Scores(4).update(members[:, part], labels[part]) for part in (slice(0, 80), slice(80, 200))]
    restored = Scores.from_dict((halves[0] + halves[1]).to_dict()).result()
    expected = members.mean(0).topk(2).values
    assert restored.margin == pytest.approx(float((expected[:, 0] - expected[:, 1]).mean()))
    assert restored.spread == pytest.approx(float(members.std(0).sum(1).mean()))
    pooled = Scores(4).update(members.mean(0), labels).result().to_dict()
    assert pooled["spread"] is None, "it needs members"
    assert pooled["margin"] == pytest.approx(restored.margin)


def class_gaps(probabilities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(rows, 5 bins * classes): the gap between a class's probability and 0 or 1, in its bin."""
    hit = torch.nn.functional.one_hot(labels, probabilities.shape[1])
    place = (probabilities * 5).long().clamp(max=4)
    return (torch.nn.functional.one_hot(place, 5) * (probabilities - hit).unsqueeze(2)).flatten(1)


def test_a_metric_that_is_a_function_of_means_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classwise ECE, which is no mean over rows."""
    classwise = Metric("cw", "CW", "classwise ECE", False, per_row=class_gaps, of_mean=lambda gaps: gaps.abs().sum(-1))
    monkeypatch.setitem(METRICS, "cw", classwise)
    members, labels = predictions()
    p, expected = members.mean(0), 0.0
    for k in range(4):
        for m in range(5):
            inside = (p[:, k] >= m / 5) & (p[:, k] < (m + 1) / 5)
            expected += float((p[inside, k] - (labels[inside] == k).double()).sum().abs()) / len(p)
    halves = [Scores(4).update(members[:, part], labels[part]) for part in (slice(0, 80), slice(80, 200))]
    restored = Scores.from_dict(json.loads(json.dumps((halves[0] + halves[1]).to_dict()))).result()
    assert restored.cw == pytest.approx(expected)
    assert Scores(4).update(p, labels).result().cw == pytest.approx(expected)


def test_the_best_by_paired_differences_where_repeats_are_paired() -> None:
    # The repeats differ a lot, the methods by little: paired, b is clearly worse; by their own errors it is not.
    a, b = summary_of([1.0, 2.0, 3.0]), summary_of([1.1, 2.11, 3.09])
    assert best(LOSS, {"a": a, "b": b}) == {"a"}
    own = {name: Summary(one.mean, one.standard_error, one.repeats) for name, one in (("a", a), ("b", b))}
    assert best(LOSS, own) == {"a", "b"}


def test_the_best_by_a_comparison_of_the_callers_own() -> None:
    candidates = {"a": Summary(1.0, 0.5, 1), "b": Summary(1.1, 0.5, 1)}
    assert best(LOSS, candidates, lambda ours, top: Summary(0.1, 0.01, 1)) == {"a"}
    assert best(LOSS, candidates, lambda ours, top: Summary(0.1, 0.06, 1)) == {"a", "b"}


def test_without_standard_errors_there_is_one_best_and_its_equals() -> None:
    candidates = {name: Summary(value, None, 1) for name, value in (("a", 1.0), ("b", 1.0), ("c", 1.001))}
    assert best(LOSS, candidates) == {"a", "b"}


def test_how_a_metric_is_shown() -> None:
    ece = metric_named("ece")
    assert (ece.column, ece.arrow, ece.format(0.0467)) == ("ECE (%)", "↓", "4.67")
    assert ece.format_change(-0.0467) == "−4.67 points"
    assert metric_named("nll").format_change(0.0123) == "+0.012"
    assert metric_named("aurc").column == "AURC (x1000)"
    with pytest.raises(UnknownName, match=r"unknown metric 'accc'\. Did you mean 'acc'"):
        metric_named("accc")
