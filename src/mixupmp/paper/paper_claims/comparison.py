"""Claims of the comparison of methods, in distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mixupmp.paper.claims import BETTER, Claim, Effect, Measure, Results, paired, times, worst

DE, MP01, MP1, MIX = "DE", "MixupMP r=0.1 alpha=2", "MixupMP r=1 alpha=2", "Mixup Ensemble alpha=2"
MC, MC01, MC1 = "MC Dropout", "MixupMP-MC r=0.1 alpha=2", "MixupMP-MC r=1 alpha=2"
MIXMC, CAMC = "Mixup-MC alpha=2", "CAMixup-MC alpha=2"
SECTION = "section 5.3"


def comparisons(dataset: str) -> list[Claim]:
    """The claims of section 5.3 on one dataset."""
    run = f"comparison/{dataset}"

    def values(results: Results, label: str, measure: str) -> list[float] | None:
        found = results.repeats("comparison", dataset, label)
        return [one[measure] for one in found] if found else None

    def beats(label: str, others: Sequence[str], measures: Sequence[str]) -> Measure:
        def measured(results: Results) -> Effect | None:
            effects = []
            for measure in measures:
                for other in others:
                    a, b = values(results, label, measure), values(results, other, measure)
                    what = f"{measure.upper()} against {other}"
                    effects.append(paired(times(BETTER[measure], a), times(BETTER[measure], b), what))
            return worst(effects)

        return measured

    def above_nn(measure: str) -> Measure:
        names = (DE, MP01, MP1, MC, MC01, MC1, "Laplace")
        cases = [beats(name, ("NN",), (measure,)) for name in names]

        def measured(results: Results) -> Effect | None:
            found = [case(results) for case in cases]
            return worst([e and replace(e, what=name) for e, name in zip(found, names, strict=True)])

        return measured

    def near_best_ece(results: Results) -> Effect | None:
        mine = values(results, MP01, "ece")
        others = {label: values(results, label, "ece") for label in (DE, MP1, MIX, MC, MC01, MC1, MIXMC, CAMC)}
        known = {label: found for label, found in others.items() if found}
        if not mine or not known:
            return None
        best = min(known, key=lambda label: sum(known[label]) / len(known[label]))
        found = paired(mine, known[best], f"best of the others: {best}")
        # Better than the best of the others is no failure to be close to it.
        return found and Effect(max(found.mean, 0.0), found.standard_error, found.repeats, found.what)

    def claim(name: str, says: str, statistic: str, measure: Measure, tolerance: float | None = None) -> Claim:
        return Claim(f"{name}-{dataset}", f"{SECTION}: {says}", statistic, run, measure, tolerance)

    pairs = [
        claim(f"mixupmp-{measure}-over-{name}", f"MixupMP with r = 1 outperforms {other} in {measure.upper()}",
              f"gain of MixupMP (r=1, alpha=2) over {other}", beats(MP1, (other,), (measure,)))
        for measure in ("acc", "nll")
        for name, other in (("de", DE), ("mixup-ensemble", MIX), ("mc-dropout", MC), ("laplace", "Laplace"))
    ]  # fmt: skip
    ours = "gain of MixupMP-MC (r=1, alpha=2)"
    return [
        *pairs,
        *(claim(f"nn-worst-{measure}", f"a single NN underperforms probabilistic models ({measure.upper()})",
                "least gain over NN of DE, MixupMP, MC dropout, MixupMP-MC and Laplace", above_nn(measure))
          for measure in ("acc", "nll")),
        claim("small-r-best-ece", "MixupMP with r = 0.1 is the best or close to the best in ECE of all methods",
              "ECE above the best of the other methods", near_best_ece, 0.005),
        claim("mc-below-explicit", "MixupMP-MC performs slightly worse than MixupMP", "NLL of MixupMP-MC minus MixupMP",
              beats(MP1, (MC1,), ("nll",))),
        claim("mixupmp-mc-over-mc-dropout", "MixupMP-MC outperforms MC dropout on all metrics",
              f"{ours}, ACC, NLL, ECE", beats(MC1, (MC,), ("acc", "nll", "ece"))),
        claim("mixupmp-mc-over-laplace", "MixupMP-MC outperforms Laplace on all metrics",
              f"{ours}, ACC, NLL, ECE", beats(MC1, ("Laplace",), ("acc", "nll", "ece"))),
        claim("mixupmp-mc-over-mixup-mc", "MixupMP-MC outperforms Mixup-MC on all metrics",
              f"{ours}, ACC, NLL, ECE", beats(MC1, (MIXMC,), ("acc", "nll", "ece"))),
        claim("camixup-ece", "CAMixup-MC achieves good calibration: better ECE than Mixup-MC",
              "ECE of Mixup-MC minus CAMixup-MC", beats(CAMC, (MIXMC,), ("ece",))),
        claim("camixup-acc-nll", "CAMixup-MC underperforms MixupMP-MC in ACC and NLL",
              f"{ours} over CAMixup-MC, ACC, NLL", beats(MC1, (CAMC,), ("acc", "nll"))),
    ]  # fmt: skip
