"""Martingale posteriors for neural networks: how sure is your classifier, really?

    data -> Predictive -> Batch -> weighted loss -> fit -> Posterior -> probabilities -> metrics -> report

A `Predictive` is a distribution of future data. Each network that `fit` trains on one simulated future is a sample of
the posterior (Fong et al. 2023). Every method of the paper is a function in `mixupmp.core.methods`.

Public names are listed in `__init__.pyi` and imported at first use, so that the command line can show its help
without importing torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
