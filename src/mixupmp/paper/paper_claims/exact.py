"""Claims that must hold exactly, and what a method costs."""

from __future__ import annotations

from math import inf

import torch

from mixupmp.core.methods import Method, deep_ensemble, mixup, mixup_ensemble, mixup_mp
from mixupmp.core.recipe import Recipe
from mixupmp.data import load
from mixupmp.paper.claims import Claim, Effect, Measure, Results
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit


def equivalences() -> list[Claim]:
    small = Recipe(epochs=1, batch_size=64)

    def gap(one: Method, other: Method) -> Effect:
        rows = load("digits")
        rows = rows.with_train(rows.train.take(torch.arange(200)))
        first, second = (fit(plan_for(rows, method, "cnn", small), engine="inline") for method in (one, other))
        pairs = zip(first.networks[0].parameters(), second.networks[0].parameters(), strict=True)
        return Effect(max(float((a - b).abs().max()) for a, b in pairs), 0.0, 1)

    says = "section 4, relationship to other methods"
    what = "largest difference of any weight of the first member"
    return [
        Claim("r0-is-de", f"r = 0 recovers DE ({says})", what, "claims",
              lambda _: gap(mixup_mp(0, 2.0, 2), deep_ensemble(2)), 0.0),
        Claim("rinf-is-mixup-ensemble", f"r = infinity with B > 1 recovers the Mixup ensemble ({says})", what, "claims",
              lambda _: gap(mixup_mp(inf, 2.0, 2), mixup_ensemble(2.0, 2)), 0.0),
        Claim("rinf-b1-is-mixup", f"r = infinity with B = 1 recovers Mixup ({says})", what, "claims",
              lambda _: gap(mixup_mp(inf, 2.0, 1), mixup(2.0)), 0.0),
    ]  # fmt: skip


def costs() -> list[Claim]:
    def ratio(method: str, minus: float) -> Measure:
        def measured(results: Results) -> Effect | None:
            found = results.read("complexity", "", "costs.json")
            return Effect(found[method]["time_ratio"] - minus, found[method]["time_error"], 12) if found else None

        return measured

    def memory(results: Results) -> Effect | None:
        found = results.read("complexity", "", "costs.json")
        return Effect(found["MixupMP"]["memory_ratio"] - 2, 0.0, 1) if found else None

    return [
        Claim("cost-mixupmp-time", "appendix F: MixupMP costs a constant factor, (n_mb + t_mb) / n_mb = 2",
              "time of a step / DE's, minus 2", "complexity", ratio("MixupMP", 2), 0.5),
        Claim("cost-mixupmp-memory", "appendix F: and as much in memory", "memory of a step / DE's, minus 2",
              "complexity", memory, 0.1),
        Claim("cost-bb", "appendix F: BB's additional cost is negligible", "time of a step / DE's, minus 1",
              "complexity", ratio("BB", 1), 0.1),
    ]  # fmt: skip
