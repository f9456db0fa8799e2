"""What a posterior can say beyond scikit-learn's protocol: members, doubt, calibrated answers, sets, and silence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp import metrics
from mixupmp.core.errors import MixupMPError, UnknownName, check
from mixupmp.core.rows import Rows
from mixupmp.decide.abstain import fit_abstention
from mixupmp.decide.calibrate import fit_calibrator, fit_member_calibrators
from mixupmp.decide.calibrators import Calibrator, MemberCalibrators
from mixupmp.decide.conformal import fit_conformal

UNCERTAINTIES = {
    "entropy": metrics.predictive_entropy,
    "mutual_information": metrics.mutual_information,
    "variation": metrics.variation_ratio,
    "gini": metrics.gini,
}


class NotCalibrated(MixupMPError, ValueError):
    """A promise was asked for that needs held-out rows, and none were given."""


class BeyondProtocol(ABC):
    """Methods of every classifier here that scikit-learn has no name for."""

    classes_: NDArray[Any]
    calibrator_: Calibrator | MemberCalibrators | None
    held_out_: tuple[Tensor, Tensor] | None

    def predict_members(self, X: Any) -> NDArray[np.float64]:
        """(members, rows, classes): what each posterior sample believes."""
        members: NDArray[np.float64] = self._member_probabilities(X).double().numpy()
        return members

    def uncertainty(
        self, X: Any, kind: Literal["entropy", "mutual_information", "variation", "gini"] = "entropy"
    ) -> NDArray[np.float64]:
        """How unsure the posterior is about each row; larger is less sure.

        "entropy" of the predictive and "gini" (1 - sum p^2) are all doubt there is; "mutual_information" and
        "variation" (the share of members outvoted) are what members disagree about, which more data would settle.
        """
        if kind not in UNCERTAINTIES:
            raise UnknownName("uncertainty", str(kind), UNCERTAINTIES)
        members = self._member_probabilities(X).double()
        # The first two are functions of the predictive that predict_proba gives; the others of the members.
        given = self._pooled(members) if kind in ("entropy", "gini") else members
        values: NDArray[np.float64] = UNCERTAINTIES[kind](given).double().numpy()
        return values

    def calibrate(
        self,
        X_val: Any,
        y_val: Any = None,
        kind: Literal["temperature", "vector", "isotonic"] | None = "temperature",
        each_member: bool = False,
        kept: float = 0.5,
    ) -> Self:
        """Calibrate on rows that the fit has not seen; every answer changes accordingly. Calling it again replaces it.

        The members are pooled and then calibrated, or with `each_member` one by one and then pooled. A share `kept`
        of the rows stays out of it: `predict_set` and `predict_or_abstain` promise something about new rows, and for
        that they need rows that nothing at all was fitted to. kind=None leaves the probabilities alone.
        """
        check(0 <= kept < 1 or (kind is None and kept == 1), "kept", kept, "a share of the rows in [0, 1)")
        rows = self._labeled(X_val, y_val)
        self._forget_calibration()
        fitted_to, held = _shared(rows, 1.0 if kind is None else kept)
        if kind is not None:
            members = self._raw_member_probabilities(fitted_to.inputs)
            fit = fit_member_calibrators if each_member else fit_calibrator
            self.calibrator_ = fit(kind, members, fitted_to.labels)
        if len(held):
            self.held_out_ = (self._pooled(self._calibrated(held.inputs)), held.labels)
        return self

    def predict_set(
        self, X: Any, coverage: float = 0.9, kind: Literal["lac", "aps", "raps"] = "lac", allow_empty: bool = True
    ) -> NDArray[np.bool_]:
        """(rows, classes): a set of classes for each row that holds the true one with probability `coverage`.

        Split conformal prediction on the rows that `calibrate` kept. `classes_[predict_set(X)[0]]` are the labels in
        the first row's set.
        """
        probabilities, labels = self._held_out("predict_set")
        sets = fit_conformal(kind, probabilities, labels)
        inside: NDArray[np.bool_] = sets.predict_set(
            self._pooled(self._member_probabilities(X)), coverage, allow_empty
        ).numpy()
        return inside

    def predict_or_abstain(self, X: Any, risk: float = 0.01, confidence: float = 0.95) -> Any:
        """Labels as a masked array, masked where the posterior is not sure enough to answer.

        With probability `confidence` over the rows that `calibrate` kept, at most a share `risk` of its answers on
        new rows is wrong.
        """
        probabilities, labels = self._held_out("predict_or_abstain")
        rule = fit_abstention(probabilities, labels, risk=risk, confidence=confidence)
        pooled = self._pooled(self._member_probabilities(X))
        answered = rule.accepts(pooled).numpy()
        return np.ma.masked_array(self.classes_[pooled.argmax(1).numpy()], mask=~answered)

    def evaluate(self, X: Any, y: Any = None) -> dict[str, float | None]:
        """Every measure on these rows by name: acc, nll, brier, ece, oe, ue, entropy, mutual_information, ..."""
        rows = self._labeled(X, y)
        members = self._calibrated(rows.inputs)
        found = metrics.evaluate(self._pooled(members), rows.labels)
        found["mutual_information"] = float(metrics.mutual_information(members).mean())
        return found

    def _forget_calibration(self) -> None:
        self.calibrator_ = None
        self.held_out_ = None

    def _held_out(self, asked: str) -> tuple[Tensor, Tensor]:
        if self.held_out_ is None:
            raise NotCalibrated(f"{asked} needs held-out rows: call calibrate(X_val, y_val) with some first.")
        return self.held_out_

    def _raw_member_probabilities(self, inputs: Tensor) -> Tensor:
        blocks: list[Tensor] = [block.cpu().softmax(-1) for block in self._blocks(inputs)]  # type: ignore[attr-defined]
        return torch.cat(blocks, 1)

    def _member_probabilities(self, X: Any) -> Tensor:
        return self._calibrated(self._inputs(X))  # type: ignore[attr-defined]

    def _calibrated(self, inputs: Tensor) -> Tensor:
        members = self._raw_member_probabilities(inputs)
        return self.calibrator_(members) if isinstance(self.calibrator_, MemberCalibrators) else members

    def _pooled(self, members: Tensor) -> Tensor:
        pooled = members.mean(0)
        if self.calibrator_ is None or isinstance(self.calibrator_, MemberCalibrators):
            return pooled
        return self.calibrator_(pooled)

    @abstractmethod
    def _labeled(self, X: Any, y: Any) -> Rows:
        """The user's rows and labels, as this classifier encodes them."""


def _shared(rows: Rows, kept: float) -> tuple[Rows, Rows]:
    """Rows for the calibrator and rows kept for promises, dealt out at random but always the same way."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    cut = len(rows) - round(kept * len(rows))
    check(cut > 0 or kept == 1, "X_val", len(rows), "rows enough for a calibrator")
    return rows.take(order[:cut]), rows.take(order[cut:])
