"""Posteriors over networks as scikit-learn estimators."""

from mixupmp.estimator.classifier import DeepEnsembleClassifier, MixupMPClassifier, PosteriorClassifier
from mixupmp.estimator.regressor import MixupMPRegressor

__all__ = ["DeepEnsembleClassifier", "MixupMPClassifier", "MixupMPRegressor", "PosteriorClassifier"]
