"""Claims about r and alpha."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from mixupmp.paper.claims import BETTER, Claim, Effect, Measure, Results, paired, times, worst
from mixupmp.paper.lines import ALPHAS

RATIOS = (0.0, 0.1, 0.4, 1.0, 10.0, inf)


def ablations() -> list[Claim]:
    run_name = "ablation/fmnist-cnn"

    def values(results: Results, measure: str, ratio: float, alpha: float) -> list[float] | None:
        found = results.repeats("ablation", "fmnist-cnn", f"r={ratio:g}", f"alpha={alpha:g}")
        return [one[measure] for one in found] if found else None

    def better(
        measure: str,
        over: float,
        ratios: Sequence[float] = (1.0,),
        alphas: Sequence[float] = ALPHAS,
        sign: float | None = None,
    ) -> Measure:
        s = BETTER[measure] if sign is None else sign

        def measured(results: Results) -> Effect | None:
            effects = []
            for alpha in alphas:
                for ratio in ratios:
                    a, b = values(results, measure, ratio, alpha), values(results, measure, over, alpha)
                    effects.append(paired(times(s, a), times(s, b), f"alpha {alpha:g}, r {ratio:g} over {over:g}"))
            return worst(effects)

        return measured

    def by_alpha(measure: str, ratios: Sequence[float], sign: float) -> Measure:
        def measured(results: Results) -> Effect | None:
            effects = []
            for ratio in ratios:
                a, b = values(results, measure, ratio, 2.0), values(results, measure, ratio, 0.1)
                effects.append(paired(times(sign, a), times(sign, b), f"r {ratio:g}"))
            return worst(effects)

        return measured

    def steps(measure: str, sign: float) -> Measure:
        pairs = list(pairwise(RATIOS))
        cases = [better(measure, low, (high,), (alpha,), sign) for alpha in ALPHAS for low, high in pairs]
        return lambda results: worst([case(results) for case in cases])

    moderate = (0.1, 0.4, 1.0)
    section = "section 5.2"
    every = "for every alpha"
    return [
        Claim("moderate-r-acc-over-de", f"{section}: moderate r improves ACC upon r = 0",
              f"ACC at r=1 minus r=0, {every}", run_name, better("acc", 0.0)),
        Claim("moderate-r-acc-over-mixup", f"{section}: moderate r improves ACC upon r = infinity",
              f"ACC at r=1 minus r=inf, {every}", run_name, better("acc", inf)),
        Claim("moderate-r-nll-over-de", f"{section}: moderate r improves NLL upon r = 0",
              f"NLL at r=0 minus r=1, {every}", run_name, better("nll", 0.0)),
        Claim("moderate-r-nll-over-mixup", f"{section}: moderate r improves NLL upon r = infinity",
              f"NLL at r=inf minus r=1, {every}", run_name, better("nll", inf)),
        Claim("small-r-ece", f"{section}: r = 0.1 has slightly better ECE than DE", f"ECE at r=0 minus r=.1, {every}",
              run_name, better("ece", 0.0, (0.1,))),
        Claim("large-r-inflates-ece", f"{section}: larger r can greatly inflate ECE, above all r = infinity",
              f"ECE at r=inf minus r=.1, {every}", run_name, better("ece", 0.1, (inf,), sign=1)),
        Claim("oe-falls-in-r", f"{section}: increasing r reduces over-confidence",
              f"fall of OE, each step of r, {every}", run_name, steps("oe", -1)),
        Claim("ue-rises-in-r", f"{section}: increasing r boosts under-confidence",
              f"rise of UE, each step of r, {every}", run_name, steps("ue", 1)),
        Claim("alpha-acc", f"{section}: for moderate r, raising alpha improves ACC", "ACC at alpha=2 minus .1, each r",
              run_name, by_alpha("acc", moderate, 1)),
        Claim("alpha-nll", f"{section}: for moderate r, raising alpha improves NLL", "NLL at alpha=.1 minus 2, each r",
              run_name, by_alpha("nll", moderate, -1)),
        Claim("alpha-ece-marginal", f"{section}: for moderate r, alpha raises ECE only marginally",
              "ECE at alpha=2 minus .1, r=1", run_name, by_alpha("ece", (1.0,), 1), 0.01),
        Claim("alpha-hurts-mixup-nll", f"{section}: large alpha hurts the Mixup ensemble's NLL",
              "NLL at alpha=2 minus .1, r=inf", run_name, by_alpha("nll", (inf,), 1)),
        Claim("alpha-hurts-mixup-ece", f"{section}: large alpha hurts the Mixup ensemble's ECE",
              "ECE at alpha=2 minus .1, r=inf", run_name, by_alpha("ece", (inf,), 1)),
        Claim("alpha-helps-mixup-acc", f"{section}: large alpha raises the Mixup ensemble's ACC",
              "ACC at alpha=2 minus .1, r=inf", run_name, by_alpha("acc", (inf,), 1)),
    ]  # fmt: skip
