"""Metrics of probabilities and labels: the catalog, streamed evaluation, detection, regression, comparison."""

from mixupmp.metrics.catalog import METRICS, Metric, evaluated_metrics, metric_named, standard_metrics
from mixupmp.metrics.checks import GuaranteeWarning
from mixupmp.metrics.comparison import MetricRow, MetricTable, Summary, best, difference, display, single, summarize
from mixupmp.metrics.regression import (
    gaussian_crps,
    interval_coverage,
    mixture_cdf,
    mixture_crps,
    mixture_interval,
    mixture_nll,
    mixture_quantile,
)
from mixupmp.metrics.reliability import ReliabilityBin, Result, adaptive_calibration_error
from mixupmp.metrics.scores import Scores, evaluate
from mixupmp.metrics.uncertainty import (
    Detection,
    detection,
    gini,
    mutual_information,
    normalized_margin,
    predictive_entropy,
    variation_ratio,
)

__all__ = [
    "METRICS",
    "Detection",
    "GuaranteeWarning",
    "Metric",
    "MetricRow",
    "MetricTable",
    "ReliabilityBin",
    "Result",
    "Scores",
    "Summary",
    "adaptive_calibration_error",
    "best",
    "detection",
    "difference",
    "display",
    "evaluate",
    "evaluated_metrics",
    "gaussian_crps",
    "gini",
    "interval_coverage",
    "metric_named",
    "mixture_cdf",
    "mixture_crps",
    "mixture_interval",
    "mixture_nll",
    "mixture_quantile",
    "mutual_information",
    "normalized_margin",
    "predictive_entropy",
    "single",
    "standard_metrics",
    "summarize",
    "variation_ratio",
]
