"""How well an uncertainty tells rows from outside the training distribution from those inside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.metrics.checks import as_floats


@dataclass(frozen=True)
class Detection:
    """Metrics of detection; with equal uncertainties everywhere AUROC is .5 and FPR95 is 1."""

    auroc: float  # P(an outside row is less sure than an inside one), ties counted half
    aupr_out: float  # average precision with the outside rows as the positives
    aupr_in: float  # average precision with the inside rows as the positives
    fpr95: float  # the share of outside rows accepted as inside when 95% of the inside rows are


def detection(inside: Tensor, outside: Tensor) -> Detection:
    """AUROC, AUPR and FPR95 from the uncertainties of inside and outside rows (Hendrycks & Gimpel, 2017).

    FPR95 takes the inside rows as the positives: the threshold is the lowest uncertainty that accepts at least 95% of
    them, and rows of equal uncertainty are accepted together (Liang et al., 2018).

    Parameters
    ----------
    inside, outside
        (rows,); larger means less sure: entropy, mutual information, 1 - confidence.

    Returns
    -------
    Detection
        `auroc`, `aupr_in`, `aupr_out` and `fpr95`.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve  # takes a second to import

    within, beyond = _scores(inside, "inside"), _scores(outside, "outside")
    uncertainty = np.concatenate([within, beyond])
    uncertainty = np.unique(uncertainty, return_inverse=True)[1]  # ranks: scikit-learn takes no infinity
    is_inside = np.repeat((True, False), (len(within), len(beyond)))
    accepted_outside, accepted_inside, _ = roc_curve(is_inside, -uncertainty, drop_intermediate=False)
    enough = np.rint(accepted_inside * len(within)) * 100 >= 95 * len(within)  # in whole rows, free of rounding
    return Detection(
        auroc=float(roc_auc_score(~is_inside, uncertainty)),
        aupr_out=float(average_precision_score(~is_inside, uncertainty)),
        aupr_in=float(average_precision_score(is_inside, -uncertainty)),
        fpr95=float(accepted_outside[enough].min()),
    )


def _scores(values: Tensor, name: str) -> NDArray[np.float64]:
    scores = as_floats(values, name).double().cpu()
    check(scores.ndim == 1, name, tuple(scores.shape), "of shape (rows,), one uncertainty for each row")
    if len(scores) == 0 or bool(scores.isnan().any()):
        raise BadData(f"{name} must hold at least one uncertainty and no NaN.")
    return scores.numpy()
