"""Claims about distribution shift."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mixupmp.paper.claims import BETTER, Claim, Effect, Measure, Results, paired, times, worst
from mixupmp.paper.paper_claims.comparison import CAMC, DE, MIX, MP01, MP1

ENSEMBLES = (DE, MP01, MP1, MIX)  # in the order of r
LEVELS = tuple(range(6))


def shifts(dataset: str) -> list[Claim]:
    """The claims of section 5.4 on the corrupted copy of one dataset."""
    run = f"shift/{dataset}"

    def at(results: Results, label: str, measure: str, level: int) -> list[float] | None:
        found = results.repeats("shift", dataset, label)
        return [one["intensities"][str(level)][measure] for one in found] if found else None

    def rises(measure: str, labels: Sequence[str] = ENSEMBLES, sign: float = 1.0) -> Measure:
        """From one intensity to the next, for every ensemble."""

        def measured(results: Results) -> Effect | None:
            cases = [
                paired(times(sign, at(results, label, measure, level + 1)),
                       times(sign, at(results, label, measure, level)),
                       f"{label}, intensity {level} to {level + 1}")
                for label in labels for level in LEVELS[:-1]
            ]  # fmt: skip
            return worst(cases)

        return measured

    def loses_less(label: str, measure: str) -> Measure:
        """What DE loses from no shift to the strongest, minus what this ensemble loses."""

        def loss(results: Results, which: str) -> list[float] | None:
            clean, shifted = at(results, which, measure, 0), at(results, which, measure, 5)
            if clean is None or shifted is None:
                return None
            return [BETTER[measure] * (a - b) for a, b in zip(clean, shifted, strict=True)]

        return lambda results: paired(loss(results, DE), loss(results, label))

    def best_at_every_level(measure: str) -> Measure:
        def measured(results: Results) -> Effect | None:
            sign = BETTER[measure]
            cases = [
                paired(times(sign, at(results, MP1, measure, level)), times(sign, at(results, other, measure, level)),
                       f"against {other} at intensity {level}")
                for other in (DE, MP01, MIX) for level in LEVELS
            ]  # fmt: skip
            return worst(cases)

        return measured

    def entropy_in_r(results: Results) -> Effect | None:
        cases = [
            paired(at(results, high, "entropy", level), at(results, low, "entropy", level),
                   f"{high} over {low} at intensity {level}")
            for low, high in pairwise(ENSEMBLES) for level in LEVELS
        ]  # fmt: skip
        return worst(cases)

    def leans(label: str, more: str, less: str) -> Measure:
        def measured(results: Results) -> Effect | None:
            cases = [
                paired(at(results, label, more, level), at(results, label, less, level), f"intensity {level}")
                for level in LEVELS[1:]
            ]
            return worst(cases)

        return measured

    def overall(results: Results) -> Effect | None:
        ours, theirs = results.repeats("shift", dataset, MP1), results.repeats("shift", dataset, CAMC)
        if not ours or not theirs:
            return None
        return paired([one["ece"] for one in theirs], [one["ece"] for one in ours])

    def claim(name: str, says: str, statistic: str, measure: Measure) -> Claim:
        return Claim(f"{name}-{dataset}", f"section 5.4: {says}", statistic, run, measure)

    return [
        claim("shift-acc-falls", "ACC deteriorates as the shift grows", "fall of ACC, each step, each ensemble",
              rises("acc", sign=-1)),
        claim("shift-nll-rises", "NLL deteriorates as the shift grows", "rise of NLL, each step, each ensemble",
              rises("nll")),
        claim("shift-acc-less-for-mixupmp", "ACC deteriorates less for MixupMP", "DE's loss of ACC minus that of r=1",
              loses_less(MP1, "acc")),
        claim("shift-nll-less-for-mixupmp", "NLL deteriorates less for MixupMP", "DE's rise of NLL minus that of r=1",
              loses_less(MP1, "nll")),
        claim("shift-nll-less-for-mixup", "NLL deteriorates less for the Mixup ensemble",
              "DE's rise of NLL minus that of r=inf", loses_less(MIX, "nll")),
        claim("shift-entropy-rises", "entropy increases with the shift for all models",
              "rise of entropy, each step, each ensemble", rises("entropy")),
        claim("shift-entropy-in-r", "the higher r, the higher the entropy at the same intensity",
              "rise of entropy from each r to the next", entropy_in_r),
        claim("shift-de-over-confident", "DE tends to be over-confident", "OE minus UE of DE, each intensity",
              leans(DE, "oe", "ue")),
        claim("shift-mixup-under-confident", "the Mixup ensemble tends to be under-confident",
              "UE minus OE of the Mixup ensemble, each intensity", leans(MIX, "ue", "oe")),
        *(claim(f"shift-r1-best-{measure}", f"r = 1 has the best {measure.upper()} at all intensities",
                f"gain in {measure.upper()} over DE, r=.1 and r=inf, each intensity", best_at_every_level(measure))
          for measure in ("acc", "nll", "ece")),
        claim("shift-camixup-ece", "CAMixup-MC's ECE under shift is worse than MixupMP's",
              "ECE of CAMixup-MC minus MixupMP (r=1)", overall),
    ]  # fmt: skip
