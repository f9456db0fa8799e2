"""Claims about the Bayesian bootstrap and the deep ensemble."""

from __future__ import annotations

from mixupmp.paper.claims import Claim, Effect, Measure, Results, paired


def bootstrap(name: str) -> list[Claim]:
    run_name = f"bb-vs-de/{name}"

    def last(results: Results, label: str, measure: str, place: int = -1) -> list[float] | None:
        tracks = results.read("bb-vs-de", name, "members.json")
        return sorted(tracks[label], key=lambda one: one["stage"])[place][measure] if tracks else None

    def members(initial: str, measure: str) -> Measure:
        return lambda results: paired(
            last(results, f"BB from {initial}", measure), last(results, f"DE from {initial}", measure)
        )

    def meeting(results: Results) -> Effect | None:
        gaps = []
        for place in (0, -1):
            de, bb = (last(results, f"{which} from random", "margins", place) for which in ("DE", "BB"))
            if de is None or bb is None:
                return None
            gaps.append([abs(a - b) / max(abs(a), 1e-12) for a, b in zip(de, bb, strict=False)])
        return paired(gaps[0], gaps[1])

    pairs = "mean over pairs of members with the same start"
    return [
        Claim(f"bb-is-de-acc-{name}", "section 5.1: from a DE solution, little difference in ACC",
              f"ACC of BB minus DE, {pairs}", run_name, members("DE", "acc"), 0.005),
        Claim(f"bb-is-de-nll-{name}", "appendix D: from a DE solution, members hardly deviate",
              f"NLL of BB minus DE, {pairs}", run_name, members("DE", "nll"), 0.05),
        Claim(f"bb-near-de-acc-{name}", "section 5.1: from random starts, a small difference",
              f"ACC of BB minus DE, {pairs}", run_name, members("random", "acc"), 0.01),
        Claim(f"margins-meet-{name}", "appendix A: BB and DE reach the same normalized margin",
              f"fall of the relative gap of margins from interpolation to the end, {pairs}", run_name, meeting),
    ]  # fmt: skip
