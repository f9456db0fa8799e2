"""H: base measures, the part of the future that does not repeat the data, by modality, and the list of them by name."""

from mixupmp.core.base_measures.at_layer import AtLayer
from mixupmp.core.base_measures.images import CutMix
from mixupmp.core.base_measures.mixture import Mixture
from mixupmp.core.base_measures.paper import (
    AdaptiveBaseMeasure,
    BaseMeasure,
    ClassAdjustedMixup,
    InPlaceBaseMeasure,
    Mixup,
    Perturbed,
    Uniform,
    blend,
    choose,
    mix,
    pair_weights,
    samples_in_place,
    symmetric_beta,
)
from mixupmp.core.base_measures.tables import FeatureSwap, GaussianCopula, Smote
from mixupmp.core.base_measures.text import SentencePair, SentenceSplice
from mixupmp.core.base_measures.warped import CMixup, WarpedMixup

BASE_MEASURES: dict[str, BaseMeasure] = {
    "mixup": Mixup(),
    "class-adjusted-mixup": ClassAdjustedMixup(),
    "perturbed": Perturbed(),
    "uniform": Uniform(),
    "warped-mixup": WarpedMixup(),
    "c-mixup": CMixup(),
    "cutmix": CutMix(),
    "mixup-cutmix": Mixture((Mixup(), CutMix())),
    "mixup-at-layer": AtLayer(),
    "sentence-splice": SentenceSplice(),
    "sentence-pair": SentencePair(),
    "feature-swap": FeatureSwap(),
    "smote": Smote(),
    "gaussian-copula": GaussianCopula(),
}
"""Every base measure as a settings file names it: base = "cutmix"."""

__all__ = [
    "BASE_MEASURES",
    "AdaptiveBaseMeasure",
    "AtLayer",
    "BaseMeasure",
    "CMixup",
    "ClassAdjustedMixup",
    "CutMix",
    "FeatureSwap",
    "GaussianCopula",
    "InPlaceBaseMeasure",
    "Mixture",
    "Mixup",
    "Perturbed",
    "SentencePair",
    "SentenceSplice",
    "Smote",
    "Uniform",
    "WarpedMixup",
    "blend",
    "choose",
    "mix",
    "pair_weights",
    "samples_in_place",
    "symmetric_beta",
]
