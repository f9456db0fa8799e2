"""What a classifier does with its posterior: calibrated probabilities, prediction sets, abstention, detection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mixupmp.core.errors import MixupMPError, UnknownName, check
from mixupmp.core.rows import Rows
from mixupmp.decide.abstain import fit_abstention
from mixupmp.decide.calibrate import fit_calibrator, fit_member_calibrators
from mixupmp.decide.calibrators import Calibrator, MemberCalibrators
from mixupmp.decide.conformal import fit_conformal
from mixupmp.decide.detect import AUTO, FALSE_ALARM, Detected, Detector, fit_detector
from mixupmp.decide.mondrian import fit_mondrian
from mixupmp.estimators.base import PosteriorEstimator
from mixupmp.estimators.inputs import Inputs, read_batch, unpack
from mixupmp.export.flags import Flags


class NotCalibrated(MixupMPError, ValueError):
    """Raised by `predict_set`, `predict_or_abstain` and `detect` where there are no held-out rows."""


class CalibratedClassifier(ClassifierMixin, PosteriorEstimator):  # type: ignore[misc]
    """A classifier's calibrator, and the decisions that are made on calibrated probabilities."""

    classes_: NDArray[Any]
    calibrator_: Calibrator | MemberCalibrators | None
    held_out_: tuple[Tensor, Tensor] | None
    groups_: tuple[str, ...] | None  # of those rows
    detector_: Detector

    def calibrate_on(
        self,
        X_val: Inputs,
        y_val: object = None,
        kind: Literal["temperature", "vector", "isotonic"] | None = "temperature",
        each_member: bool = False,
        kept: float = 0.5,
        groups: Sequence[object] | None = None,
    ) -> Self:
        """Calibrate on rows that the fit has not seen; every prediction uses it. Calling it again replaces it.

        These rows count alike: there are no sample weights here, and `class_weight` is not used.

        Parameters
        ----------
        X_val, y_val
            As for `fit`.
        kind
            None leaves the probabilities as they are.
        each_member
            Calibrate the members one by one and then average, where otherwise the average is calibrated
            (Rahaman and Thiery 2021).
        kept
            Share of the rows that stays out of it: the guarantees of `predict_set`, `predict_or_abstain` and `detect`
            need rows that nothing was fitted to.
        groups
            The group of each row, for sets whose coverage holds in each of them.

        Returns
        -------
        self
        """
        check(0 <= kept < 1 or (kind is None and kept == 1), "kept", kept, "a share of the rows in [0, 1)")
        rows = self._labeled(X_val, y_val)
        given = None if groups is None else len(groups)
        check(given in (None, len(rows)), "groups", given, f"the group of each of the {len(rows)} rows")
        self._forget_calibration()
        fitted_to, held, places = _divided(rows, 1.0 if kind is None else kept)
        if kind is not None:
            members = self._raw_member_probabilities(fitted_to.inputs)
            fit = fit_member_calibrators if each_member else fit_calibrator
            self.calibrator_ = fit(kind, members, fitted_to.labels)
        if len(held):
            self.held_out_ = (self._pooled(self._calibrated(held.inputs)), held.labels)
            self.groups_ = None if groups is None else tuple(str(groups[row]) for row in places)
            self.detector_ = fit_detector(self.posterior_, held.inputs, self.detector_.reference)
        return self

    def predict_set(
        self,
        X: Inputs,
        coverage: float = 0.9,
        kind: Literal["lac", "aps", "raps"] = "lac",
        allow_empty: bool = True,
        *,
        by_class: bool = False,
        groups: Sequence[object] | None = None,
    ) -> NDArray[np.bool_]:
        """(rows, classes): a set of classes for each row that holds the true one with probability `coverage`.

        Split conformal prediction on the rows that `calibrate_on` kept, which count alike.
        `classes_[predict_set(X)[0]]` are the labels in the first row's set.

        Parameters
        ----------
        X
            As `fit` takes it.
        coverage, kind
            The probability, and the score: "lac" gives the smallest sets, "aps" and "raps" larger ones to hard rows.
        allow_empty
            A row's set is empty where each of its classes is stranger than `coverage` of the held-out rows' own: no
            class is believable, as for rows unlike the held-out ones. At most a share 1 - coverage of rows like them
            is so, and is counted as missed. False puts the most probable class into every set.
        by_class
            Whether the coverage holds in every class, and not only over all rows together.
        groups
            The group of each row: the coverage holds in every group that `calibrate_on(groups=...)` was given.

        Returns
        -------
        ndarray of bool of shape (rows, classes)
        """
        probabilities, labels = self._held_out("predict_set")
        check(not by_class or groups is None, "by_class", by_class, "False where groups are given")
        new = self._pooled(self._member_probabilities(X))
        if not by_class and groups is None:
            inside = fit_conformal(kind, probabilities, labels).predict_set(new, coverage, allow_empty)
        else:
            if groups is not None and self.groups_ is None:
                raise NotCalibrated("sets by group need the groups of held-out rows: calibrate_on(..., groups=...).")
            known = None if groups is None else self.groups_
            sets = fit_mondrian(kind, probabilities, labels, known, [str(label) for label in self.classes_])
            inside = sets.predict_set(new, coverage, allow_empty, groups)
        return inside.numpy()

    def predict_or_abstain(
        self, X: Inputs, risk: float = 0.01, confidence: float = 0.95
    ) -> np.ma.MaskedArray[Any, Any]:
        """Labels as a masked array, masked where the posterior is not sure enough to predict.

        With probability `confidence` over the rows that `calibrate_on` kept, at most a share `risk` of the labels it
        gives to new rows is wrong.

        Parameters
        ----------
        X
            As `fit` takes it.
        risk, confidence
            The share of wrong answers, and how sure it is that it is not exceeded.

        Returns
        -------
        masked array of shape (rows,)
            `answers.mask` is True where there is none.
        """
        probabilities, labels = self._held_out("predict_or_abstain")
        rule = fit_abstention(probabilities, labels, risk=risk, confidence=confidence)
        pooled = self._pooled(self._member_probabilities(X))
        answered = rule.accepts(pooled).numpy()
        return np.ma.masked_array(self.classes_[pooled.argmax(1).numpy()], mask=~answered)

    def detect(self, X: Inputs, false_alarm: float = FALSE_ALARM, score: str = AUTO) -> Detected:
        """Flag rows unlike those of the fit: scores, p-values and flags, each (rows,).

        After `calibrate_on`, a row like the held-out ones is flagged with probability `false_alarm` at most. Before it,
        the held-out rows are those that `fit` chose the temperature with, scored by members that were fitted without
        them; the members were then refitted to all rows. The rate is approximate then, and can be half of
        `false_alarm`, or by mutual information twice as much. See `mixupmp.decide.detect`.

        Parameters
        ----------
        X
            As `fit` takes it.
        false_alarm
            The share of rows like the held-out ones that may be flagged: a bound after `calibrate_on`, else a target.
        score : {"auto", "entropy", "mutual_information", "max_probability", "energy", "nearest", "mahalanobis"}
            The last two, distances in feature space, need `calibrate_on`. "auto" is "nearest" after it, and "entropy"
            before.

        Returns
        -------
        Detected
            `flagged`, `p_values` and `scores`, each (rows,).
        """
        inputs = self._inputs(X)
        if not self.detector_.held_out:
            raise NotCalibrated(
                "detect needs held-out rows: fit with calibrate=True to at least 20 rows, or call "
                "calibrate_on(X_val, y_val) with rows that the fit has not seen."
            )
        inputs = inputs if isinstance(inputs, Tensor) else torch.cat(list(inputs))
        return self.detector_.detect(self.posterior_, inputs, score, false_alarm)

    def export_onnx(self, path: str | Path, *, false_alarm: float | None = None, score: str = AUTO) -> dict[str, str]:
        """Write the fitted classifier as one ONNX graph, with its scaling and calibration; returns its metadata.

        A graph of a table takes its columns as `predict` does, categories and missing values included: see
        `mixupmp.export.onnx.export_onnx`.
        With `false_alarm` the graph also has the outputs score, p_value and flagged, as `detect` gives them with the
        same arguments; for distances in feature space it holds the features of training rows.

        Parameters
        ----------
        path, false_alarm, score
            The file; the rate and the score of flags, see `detect`.

        Returns
        -------
        dict
            Metadata of the file.
        """
        check_is_fitted(self)
        return self._export_onnx(path, None if false_alarm is None else Flags(self.detector_, score, false_alarm))

    def _forget_calibration(self) -> None:
        self.calibrator_ = self.held_out_ = self.groups_ = None

    def _held_out(self, method: str) -> tuple[Tensor, Tensor]:
        if self.held_out_ is None:
            raise NotCalibrated(f"{method} needs held-out rows: call calibrate_on(X_val, y_val) with some first.")
        return self.held_out_

    def _raw_member_probabilities(self, inputs: Tensor | Iterator[Tensor]) -> Tensor:
        blocks: list[Tensor] = [block.cpu().softmax(-1) for block in self._blocks(inputs)]
        return torch.cat(blocks, 1)

    def _member_probabilities(self, X: Inputs) -> Tensor:
        return self._calibrated(self._inputs(X))

    def _calibrated(self, inputs: Tensor | Iterator[Tensor]) -> Tensor:
        members = self._raw_member_probabilities(inputs)
        return self.calibrator_(members) if isinstance(self.calibrator_, MemberCalibrators) else members

    def _pooled(self, members: Tensor) -> Tensor:
        pooled = members.mean(0)
        if self.calibrator_ is None or isinstance(self.calibrator_, MemberCalibrators):
            return pooled
        return self.calibrator_(pooled)

    def _numbers(self, y: Any) -> Tensor:
        """Labels as class numbers."""
        y = column_or_1d(np.asarray(y.cpu() if isinstance(y, Tensor) else y))
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        strange = self.classes_[places] != y
        if strange.any():
            raise UnknownName("class", str(y[strange][0]), [str(label) for label in self.classes_])
        return torch.from_numpy(places.astype(np.int64))

    def _labeled(self, X: Inputs, y: object) -> Rows:
        X, y = unpack(X, y)
        check(y is not None, "y", None, "the label of every row, where X brings none")
        rows = Rows(read_batch(self, X, self.layout_), self._numbers(y))
        return rows.checked(len(self.classes_), "given")


def _divided(rows: Rows, kept: float) -> tuple[Rows, Rows, list[int]]:
    """Rows for the calibrator, rows for guarantees, and where those were: a random division, always the same."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    cut = len(rows) - round(kept * len(rows))
    check(cut > 0 or kept == 1, "X_val", len(rows), "rows enough for a calibrator")
    return rows.take(order[:cut]), rows.take(order[cut:]), order[cut:].tolist()
