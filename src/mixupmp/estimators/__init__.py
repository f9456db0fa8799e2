"""Posteriors over networks as scikit-learn estimators."""

from mixupmp.estimators.classifier import PosteriorClassifier
from mixupmp.estimators.mixup_mp import DeepEnsembleClassifier, MixupMPClassifier
from mixupmp.estimators.regressor import MixupMPRegressor

__all__ = ["DeepEnsembleClassifier", "MixupMPClassifier", "MixupMPRegressor", "PosteriorClassifier"]
