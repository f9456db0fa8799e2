"""What the posterior is worth: pure functions of probabilities and labels."""

from mixupmp.metrics.checks import GuaranteeWarning
from mixupmp.metrics.detection import Detection, detection
from mixupmp.metrics.margin import normalized_margin
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
from mixupmp.metrics.summary import PERCENT, Summary, display, summarize
from mixupmp.metrics.uncertainty import gini, mutual_information, predictive_entropy, variation_ratio

__all__ = [
    "PERCENT",
    "Detection",
    "GuaranteeWarning",
    "ReliabilityBin",
    "Result",
    "Scores",
    "Summary",
    "adaptive_calibration_error",
    "detection",
    "display",
    "evaluate",
    "gaussian_crps",
    "gini",
    "interval_coverage",
    "mixture_cdf",
    "mixture_crps",
    "mixture_interval",
    "mixture_nll",
    "mixture_quantile",
    "mutual_information",
    "normalized_margin",
    "predictive_entropy",
    "summarize",
    "variation_ratio",
]
