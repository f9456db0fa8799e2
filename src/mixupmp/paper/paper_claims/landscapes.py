"""Claims about the 2-D landscapes."""

from __future__ import annotations

from itertools import pairwise

from mixupmp.paper.claims import Claim, Effect, Measure, Results, worst
from mixupmp.paper.lines import ALPHAS


def landscapes() -> list[Claim]:
    def region(results: Results, figure: str, panel: str, where: str) -> tuple[float, float] | None:
        for one in results.read(f"illustration-{figure}", "", "regions.json") or ():
            if one["panel"].startswith(panel) and "standard_error" in one[where]:
                return one[where]["mean"], one[where]["standard_error"]
        return None

    def above(figure: str, high: str, low: str, where: str, where_low: str | None = None) -> Measure:
        def measure(results: Results) -> Effect | None:
            a, b = region(results, figure, high, where), region(results, figure, low, where_low or where)
            if a is None or b is None:
                return None
            return Effect(a[0] - b[0], (a[1] ** 2 + b[1] ** 2) ** 0.5, 10, f"{high} over {low}")

        return measure

    def rising(figure: str, panels: list[str], where: str) -> Measure:
        steps = [above(figure, high, low, where) for low, high in pairwise(panels)]
        return lambda results: worst([step(results) for step in steps])

    mean = "difference of the mean rescaled 1 - sum p^2 (jackknife over 10 members)"
    ratios = ["r = 0 ", "r = 0.1", "r = 1", "r = 10"]
    alphas = [f"α = {alpha:g}" for alpha in ALPHAS]
    between, rows, beyond = "between the clusters", "at the rows", "beyond the clusters"
    return [
        Claim("landscape-r", "figure 1: as r grows, more uncertainty between the clusters", f"{mean}, {between}",
              "illustration-r", rising("r", ratios, between)),
        Claim("landscape-rinf-at-rows", "figure 1: the Mixup ensemble is uncertain even where rows are",
              f"{mean}, {rows}, r = infinity over r = 0", "illustration-r", above("r", "r = ∞", "r = 0 ", rows)),
        Claim("landscape-de-boundary", "figure 1: DE is sure except around the decision boundary",
              f"{mean}, r = 0: between over at the rows", "illustration-r",
              above("r", "r = 0 ", "r = 0 ", between, rows)),
        Claim("landscape-alpha", "appendix B: as alpha grows, wider bands of uncertainty", f"{mean}, everywhere",
              "illustration-alpha", rising("alpha", alphas, "everywhere")),
        *(Claim(f"landscape-perturbed-{c}", "appendix B: DP-MP with perturbed H is more uncertain than BB",
                f"{mean}, everywhere, Perturbed (c = {c}) over BB", "illustration-mp",
                above("mp", f"Perturbed, c = {c}", "Bayesian", "everywhere")) for c in ("1", "n")),
        *(Claim(f"landscape-uniform-{c}", "appendix B: with uniform H, high uncertainty where rows are absent",
                f"{mean}, beyond the clusters, Uniform (c = {c}) over BB", "illustration-mp",
                above("mp", f"Uniform, c = {c}", "Bayesian", beyond)) for c in ("1", "n")),
    ]  # fmt: skip
