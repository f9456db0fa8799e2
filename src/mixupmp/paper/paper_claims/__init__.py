"""Every claim of the paper's text, as a named check on what the experiments measured."""

from __future__ import annotations

from mixupmp.paper.claims import Claim
from mixupmp.paper.paper_claims.ablation import ablations
from mixupmp.paper.paper_claims.bootstrap import bootstrap
from mixupmp.paper.paper_claims.comparison import comparisons
from mixupmp.paper.paper_claims.exact import costs, equivalences
from mixupmp.paper.paper_claims.landscapes import landscapes
from mixupmp.paper.paper_claims.shift import shifts


def all_claims() -> list[Claim]:
    """In the order of the paper."""
    found = [*equivalences(), *landscapes(), *bootstrap("mnist"), *bootstrap("fmnist"), *ablations()]
    for dataset in ("fmnist", "cifar10"):
        found += [*comparisons(dataset), *shifts(dataset)]
    return [*found, *costs()]
