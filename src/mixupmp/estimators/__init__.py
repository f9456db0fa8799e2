"""Posteriors over networks as scikit-learn estimators."""

from mixupmp.estimators.classifier import DeepEnsembleClassifier, MixupMPClassifier, PosteriorClassifier
from mixupmp.estimators.regressor import MixupMPRegressor

__all__ = ["DeepEnsembleClassifier", "MixupMPClassifier", "MixupMPRegressor", "PosteriorClassifier"]
