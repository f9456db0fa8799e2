"""What the classifiers share: fitting, predicting, scoring, and the state they are saved with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mixupmp import metrics
from mixupmp.core.errors import BadData, InvalidArgument, check, check_known
from mixupmp.core.foreign import Json
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.rows import Rows
from mixupmp.core.spec import decode, encode
from mixupmp.core.split import split
from mixupmp.core.streams import DatasetRows, IterableRows
from mixupmp.decide.calibrators import Temperature, read_calibrator
from mixupmp.decide.detect import Detector
from mixupmp.decide.features import fit_reference
from mixupmp.estimators.base import counted, weights_of
from mixupmp.estimators.decisions import CalibratedClassifier
from mixupmp.estimators.inputs import Inputs, decode_labels, encode_labels, read_fit

UNCERTAINTIES = {
    "entropy": metrics.predictive_entropy,
    "mutual_information": metrics.mutual_information,
    "variation": metrics.variation_ratio,
    "gini": metrics.gini,
}
ClassWeight = dict[Any, float] | Literal["balanced"] | None
AnyRows = Rows | DatasetRows | IterableRows


@dataclass(eq=False, repr=False, kw_only=True)
class BaseClassifier(CalibratedClassifier):
    """Fitting, predicting, scoring and saving, which every classifier here has."""

    calibrate: bool = True
    class_weight: ClassWeight = None

    @property
    def temperature_(self) -> float:
        """The temperature of the averaged probabilities; 1 where they are not scaled."""
        return self.calibrator_.temperature if isinstance(self.calibrator_, Temperature) else 1.0

    def fit(
        self,
        X: Inputs,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        validation: object = None,
        layout: str | None = None,
        in_memory: bool | None = None,
    ) -> Self:
        """Fit the posterior.

        Parameters
        ----------
        y
            The labels: anything that can be sorted. None where X brings them.
        sample_weight
            How much each row counts.
        X
            A table or data frame; images, series, videos or tokens as an array; a list of PIL images; a dict or tuple
            of arrays for a network that takes several inputs; or a torch Dataset or DataLoader, which bring their own
            labels.
        validation
            A pair (X, y), or a Dataset: its NLL and ECE after each epoch go to the logger. A share, such as .2: that
            much of the rows, which are then not trained on.
        layout
            The axes of X where its shape does not tell: "NCHW", "NHWC", "NHW" (gray images), "NCT" or "NTC" (series),
            "NCTHW", "NTCHW" or "NTHWC" (videos), "tokens" (whole numbers that are kept as they are), "table". The
            network gets the channels first.
        in_memory
            Whether a Dataset is read once into memory. By default it is streamed by a DataLoader in every epoch, so
            that random transforms are drawn anew, unless it is a TensorDataset.

        Returns
        -------
        self
        """
        given = read_fit(self, X, y, layout=layout, in_memory=in_memory)
        labels = given.labels
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        factors = None if self.class_weight is None else compute_sample_weight(self.class_weight, labels)
        weights = weights_of(sample_weight, len(labels), factors)
        rows = counted(given.inputs, torch.from_numpy(numbers.astype(np.int64)), weights)
        if isinstance(rows, IterableRows):
            rows.encode = self._numbers
        if len(self.classes_) < 2 or (rows.labels is not None and bool((rows.labels == rows.labels[0]).all())):
            raise BadData("y has rows of 1 class only (sample_weight=0 rows left out): a classifier needs two classes.")
        self.layout_ = given.layout
        rows, held = self._divided(rows, validation)
        names = tuple(str(label) for label in self.classes_)
        choice = self._fit_posterior(rows, given, Categorical(len(names)), names, held)
        self.calibrator_, self.held_out_, self.groups_ = choice.calibrator, None, None
        self.detector_ = replace(choice.detector or Detector({}), reference=fit_reference(self.posterior_, rows))
        return self

    def _divided(self, rows: AnyRows, validation: object) -> tuple[AnyRows, Rows | None]:
        """The rows to train on, and those that `validation` names."""
        if not isinstance(validation, float):
            return rows, None if validation is None else self._labeled(*_pair(validation))
        if isinstance(rows, IterableRows):
            raise InvalidArgument("validation", validation, "rows of their own, as those of X have no numbers")
        rows, held = split(rows, validation)
        return rows, held.read()

    def predict_proba(self, X: Inputs) -> NDArray[np.float64]:
        """(rows, classes): the posterior predictive, calibrated: see `calibrator_`.

        Parameters
        ----------
        X
            As `fit` takes it.

        Returns
        -------
        ndarray of shape (rows, classes)
            In the order of `classes_`.
        """
        probabilities: NDArray[np.float64] = self._pooled(self._member_probabilities(X)).double().numpy()
        return probabilities / probabilities.sum(1, keepdims=True)

    def predict_log_proba(self, X: Inputs) -> NDArray[np.float64]:
        """The logarithm of `predict_proba`; of a probability that is zero, that of the smallest number above it.

        Parameters
        ----------
        X
            As `fit` takes it.
        """
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict(self, X: Inputs) -> NDArray[Any]:
        """The most probable class of each row.

        Parameters
        ----------
        X
            As `fit` takes it.

        Returns
        -------
        ndarray of shape (rows,)
            Labels of `classes_`.
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def score(self, X: Inputs, y: object, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy. A label of a class that the fit did not see is refused, as in `evaluate` and `calibrate_on`.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        float
            Share of the rows that are right.
        """
        check_is_fitted(self)
        self._numbers(y)
        return super().score(X, y, sample_weight)

    def predict_members(self, X: Inputs) -> NDArray[np.float64]:
        """(members, rows, classes): the predictions of each posterior sample.

        Parameters
        ----------
        X
            As `fit` takes it.

        Returns
        -------
        ndarray of shape (members, rows, classes)
        """
        return self._member_probabilities(X).double().numpy()

    def uncertainty(
        self, X: Inputs, kind: Literal["entropy", "mutual_information", "variation", "gini"] = "entropy"
    ) -> NDArray[np.float64]:
        """The uncertainty of each row's prediction.

        "entropy" of the predictive and "gini" (1 - sum p^2) are the total uncertainty; "mutual_information" and
        "variation" (the share of members outvoted) measure the disagreement of members, which more data would settle.

        Parameters
        ----------
        X
            As `fit` takes it.
        kind
            One of the four.

        Returns
        -------
        ndarray of shape (rows,)
            In nats for the entropies.
        """
        check_known("uncertainty", kind, UNCERTAINTIES)
        members = self._member_probabilities(X).double()
        # The first two are functions of the predictive that predict_proba gives; the others of the members.
        given = self._pooled(members) if kind in ("entropy", "gini") else members
        return UNCERTAINTIES[kind](given).double().numpy()

    def evaluate(self, X: Inputs, y: object = None) -> dict[str, float | None]:
        """Every measure on these rows by name: acc, nll, brier, ece, oe, ue, entropy, mutual_information, ...

        Parameters
        ----------
        X, y
            As for `fit`.

        Returns
        -------
        dict
            A number for each metric; shares, not percent.
        """
        rows = self._labeled(X, y)
        members = self._calibrated(rows.inputs)
        found = metrics.evaluate(self._pooled(members), rows.labels)
        found["mutual_information"] = float(metrics.mutual_information(members).mean())
        return found

    def _state(self) -> tuple[dict[str, Json], dict[str, Tensor]]:
        tensors = {} if self.held_out_ is None else dict(zip(("probabilities", "labels"), self.held_out_, strict=True))
        kept = {"calibrator": encode(self.calibrator_), "groups": encode(self.groups_)}
        return {"classes": encode_labels(self.classes_), **kept}, tensors

    def _restore(self, state: dict[str, Json], tensors: dict[str, Tensor]) -> None:
        outputs = self.posterior_.task.require_classes("for a classifier")
        self.classes_ = decode_labels(state["classes"])
        check(self.classes_.shape == (outputs,), "classes", self.classes_.tolist(), f"{outputs} labels, one an output")
        self.calibrator_ = read_calibrator(state["calibrator"])
        self.held_out_ = (tensors["probabilities"], tensors["labels"]) if tensors else None
        groups = state.get("groups")
        self.groups_ = None if groups is None else decode(groups, tuple[str, ...], "groups")
        fits = self.groups_ is None or (self.held_out_ is not None and len(self.groups_) == len(self.held_out_[1]))
        check(fits, "groups", self.groups_, "the group of each held-out row")


def _pair(validation: object) -> tuple[Any, Any]:
    if isinstance(validation, tuple):
        check(len(validation) == 2, "validation", validation, "a pair (X, y), or a Dataset")
        return validation[0], validation[1]
    return validation, None
