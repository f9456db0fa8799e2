"""The list of samplers: one that is here can be written down, saved and loaded.

To add one, write its class, and the class of the posterior that it returns, in a file of their own, and one line here.
A posterior of a class of its own is how `save` knows what to write.
"""

from __future__ import annotations

from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.heads import Heads, HeadsPosterior
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.lora import LoRA, LoRAPosterior
from mixupmp.core.posterior import Posterior
from mixupmp.core.samplers import DropoutMasks, Ensemble, Laplace, Sampler
from mixupmp.core.shared import SharedEnsemble, SharedPosterior

SAMPLERS: dict[type[Posterior], type[Sampler]] = {
    EnsemblePosterior: Ensemble,
    DropoutPosterior: DropoutMasks,
    LaplacePosterior: Laplace,
    SharedPosterior: SharedEnsemble,
    HeadsPosterior: Heads,
    LoRAPosterior: LoRA,
}
"""The sampler of each class of posteriors."""
