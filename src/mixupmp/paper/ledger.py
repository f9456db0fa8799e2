"""CLAIMS.md: concordance with the paper's tables, its sentences one by one, and apart from them identities, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import torch
from scipy.stats import t as student

from mixupmp.core.methods import Method, deep_ensemble, mixup, mixup_ensemble, mixup_mp
from mixupmp.core.recipe import Recipe
from mixupmp.core.weights import Dirichlet
from mixupmp.data import load
from mixupmp.paper.claims import FAILS, HOLDS, NOT_RUN, OPEN, Claim, Verdict, all_claims, judge
from mixupmp.paper.evidence import LEVEL, PAPER_NAMES, PAPER_TABLES, PaperEvidence, RunEvidence, part_of
from mixupmp.paper.reference import CONCORDANCE_MEASURES, Concordance, concordance
from mixupmp.paper.table import markdown_table
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit

EXPLANATION = """\
One row for each sentence of the paper that claims something, in its order; what has to be compared for it is in
`src/mixupmp/paper/claims.toml`. A case is one comparison on one dataset. It holds, fails or stays undecided by a
one-sided t test at 5% over repeats, paired by repeat; a single run decides nothing. Repeats share their test rows, so
the variance of the paired bootstrap over test rows is added (under shift, in means over intensities). "all" needs every
case, "almost all" nine in ten, "most" half, "can" one; for "tends" the mean over the cases is tested. A sentence fails
where too many of its cases fail for that, and is not decided in between. It is judged by the cases that were run, on
the datasets that its row names. The last column judges the numbers that the paper itself prints by the same rule,
taking its 3 ensembles and 6 single models as independent; where it prints single runs, by their sign alone."""


@dataclass(frozen=True)
class Judged:
    """A sentence with what our runs and the paper's own tables say of it."""

    claim: Claim
    here: Verdict
    paper: Verdict


@dataclass(frozen=True)
class Check:
    """An identity or a cost: what is said, what was found, and whether it is so."""

    name: str
    says: str
    found: str
    verdict: str


@dataclass(frozen=True)
class Ledger:
    """Everything that CLAIMS.md shows; `runs` has the record of each by its folder."""

    runs: dict[str, dict[str, Any]]
    concordances: dict[str, Concordance]
    sentences: list[Judged]
    extensions: list[Judged]
    identities: list[Check]
    costs: list[Check]

    def to_dict(self) -> dict[str, object]:
        """As plain JSON."""
        return {
            "concordance": {
                name: {"pairs": one.total, "same": one.same, "share": one.share, "rank": one.rank}
                for name, one in self.concordances.items()
            },
            "sentences": {one.claim.name: [one.here.verdict, one.paper.verdict] for one in self.sentences},
            "extensions": {one.claim.name: one.here.verdict for one in self.extensions},
            "identities": {one.name: one.verdict for one in self.identities},
            "costs": {one.name: one.verdict for one in self.costs},
        }


def make_ledger(runs: RunEvidence) -> Ledger:
    """Judge everything by what the experiments of one scale have written."""
    paper, claims = PaperEvidence(), all_claims()
    sentences = [Judged(claim, judge(claim, runs), judge(claim, paper)) for claim in claims]
    extended = [Judged(one, judge(one, runs, one.extensions), Verdict(NOT_RUN)) for one in claims if one.extensions]
    return Ledger(runs.records(), _concordances(runs), sentences, extended, identities(), costs(runs))


def _concordances(runs: RunEvidence) -> dict[str, Concordance]:
    found = {}
    for experiment in ("comparison", "ablation", "shift"):
        for dataset in ("cifar10", "cifar100", "fmnist", "fmnist-cnn"):
            name = PAPER_NAMES[dataset] + ("-C" if experiment == "shift" else "")
            means = runs.means(experiment, dataset)
            one = concordance(means, PAPER_TABLES[experiment], name)
            if one.pairs:
                found[f"{experiment}/{dataset}"] = one
    return found


def identities() -> list[Check]:
    """What follows from the definitions, computed."""
    says = "section 4, relationship to other methods"
    both = mixup_ensemble(2.0, 2)
    pairs: list[tuple[str, str, Method, Method]] = [
        ("r0-is-de", f"r = 0 recovers DE ({says})", mixup_mp(0, 2.0, 2), deep_ensemble(2)),
        ("rinf-is-mixup-ensemble", f"r = ∞ and B > 1: Mixup ensemble ({says})", mixup_mp(inf, 2.0, 2), both),
        ("rinf-b1-is-mixup", f"r = ∞ and B = 1: Mixup ({says})", mixup_mp(inf, 2.0, 1), mixup(2.0)),
    ]
    found = []
    for name, text, one, other in pairs:
        gap = _weight_gap(one, other)
        found.append(Check(name, text, f"largest difference of a weight: {gap:g}", HOLDS if gap == 0 else FAILS))
    return [*found, *_dirichlet()]


def _weight_gap(one: Method, other: Method) -> float:
    rows = load("digits")
    rows = rows.with_train(rows.train.take(torch.arange(200)))
    recipe = Recipe(epochs=1, batch_size=64)
    first, second = (fit(plan_for(rows, method, "cnn", recipe), engine="inline") for method in (one, other))
    pairs = zip(first.networks[0].parameters(), second.networks[0].parameters(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def _dirichlet(rows: int = 50, ratio: float = 0.5, draws: int = 2000) -> list[Check]:
    """E[w_i] = 1/(n + c) of a seen row and c/(n + c) of the tail, over many draws."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.stack([Dirichlet().draw(rows, rows, ratio, generator).double() for _ in range(draws)])
    tails, firsts, c = weights[:, rows:].sum(1), weights[:, 0], ratio * rows
    found = []
    for name, says, values, expected in (
        ("expected-weight", "section 2.1: E[w_i] = 1/(n + c) of an observed row", firsts, 1 / (rows + c)),
        ("expected-tail", "section 2.1: E[sum of the tail] = c/(n + c)", tails, c / (rows + c)),
    ):
        error = float(values.std()) / sqrt(draws)
        holds = abs(float(values.mean()) - expected) < 4 * error
        text = f"{float(values.mean()):.5f} ({error:.5f}) of {draws} draws, expected {expected:.5f}"
        found.append(Check(name, says, text, HOLDS if holds else FAILS))
    return found


def costs(runs: RunEvidence) -> list[Check]:
    """Appendix F, from the measured steps."""
    measured = runs.read("complexity", "", "costs.json")
    checks: list[tuple[str, str, str, float, float, Callable[[dict[str, float]], tuple[float, float]]]] = [
        ("cost-mixupmp-time", "MixupMP costs (n_mb + t_mb) / n_mb = 2 times as much time", "MixupMP", 2, 0.5, _time),
        ("cost-mixupmp-memory", "and in memory", "MixupMP", 2, 0.1, lambda cost: (cost["memory_ratio"], 0.0)),
        ("cost-bb", "BB: the additional cost of adding in weights is negligible", "BB", 1, 0.1, _time),
    ]
    found = []
    for name, says, method, expected, tolerance, value in checks:
        if not measured:
            found.append(Check(name, f"appendix F: {says}", "-", NOT_RUN))
            continue
        ratio, reach = value(measured[method])
        size = abs(ratio - expected)
        verdict = HOLDS if size + reach <= tolerance else FAILS if size - reach > tolerance else OPEN
        found.append(Check(name, f"appendix F: {says}", f"{ratio:.2f} ± {reach:.2f} times DE's step", verdict))
    return found


def _time(cost: dict[str, float]) -> tuple[float, float]:
    quantile = float(student.ppf(1 - LEVEL, cost.get("rounds", 12) - 1))
    return cost["time_ratio"], quantile * cost["time_error"]


def render(ledger: Ledger, scale: str) -> str:
    """CLAIMS.md."""
    parts = [
        "# The paper's claims, checked",
        f"Generated by `mixupmp reproduce claims --scale {scale}` from the results beside this file; do not edit.",
        "## Concordance with the paper's tables",
        "Of all pairs of methods that differ by more than two standard errors in the paper (in CIFAR10-C's and "
        "CIFAR100-C's tables, which have none: of all pairs), the share whose difference has the same sign here, over "
        "ACC, NLL and ECE; and the rank correlation of the methods by each. The CNN on Fashion-MNIST is compared with "
        "the paper's ResNet18, as it prints no table for the CNN.",
        _concordance_table(ledger.concordances),
        "What reverses, by measure: how many of the pairs, and the methods that are in most of them (higher or lower "
        "here than in the paper's order).",
        _reversed_table(ledger.concordances),
        "## Runs",
        "What the results are of, as the `run.json` of each says. Those of version 0.1 have its smaller settings, and "
        "are replaced as runs with those of docs/reproduction.md are finished. Lines whose training accuracy is below "
        "98% are not in the paper's regime; they are counted in the last column, and their verdicts say little.",
        _run_table(ledger.runs),
        "## Sentences",
        f"{_counts([one.here.verdict for one in ledger.sentences])} Under the same rule the paper's own tables: "
        + _counts([one.paper.verdict for one in ledger.sentences]).replace(NOT_RUN, "not in them"),
        EXPLANATION,
        _sentence_table(ledger.sentences, scale),
        "## Extensions",
        "The same sentences on data that they are not about: corrupted Fashion-MNIST is ours, not section 5.4's. "
        + _counts([one.here.verdict for one in ledger.extensions]),
        _sentence_table(ledger.extensions, scale, paper=False),
        "## Identities",
        _counts([one.verdict for one in ledger.identities]),
        _check_table(ledger.identities),
        "## Costs",
        _counts([one.verdict for one in ledger.costs]),
        _check_table(ledger.costs),
    ]
    return "\n\n".join(parts) + "\n"


def _counts(verdicts: Sequence[str]) -> str:
    return (
        ", ".join(f"{verdicts.count(name)} {name}" for name in (HOLDS, FAILS, OPEN, NOT_RUN)) + f", of {len(verdicts)}."
    )


def _concordance_table(found: dict[str, Concordance]) -> str:
    ranks = [f"rank correlation, {measure.upper()}" for measure in CONCORDANCE_MEASURES]
    rows = [
        [name, f"{one.same} of {one.total}", f"**{100 * one.share:.0f}%**"]
        + [f"{one.rank[measure]:+.2f}" if measure in one.rank else "-" for measure in CONCORDANCE_MEASURES]
        for name, one in found.items()
    ]
    return markdown_table(["results", "pairs", "same sign", *ranks], rows)


def _reversed_table(found: dict[str, Concordance]) -> str:
    rows = []
    for name, one in found.items():
        for measure, turned in one.reversed.items():
            # Of (a, b) the paper has a above b; here a is too low, or b too high.
            moves = Counter(move for a, b in turned for move in ((a, "lower"), (b, "higher")))
            most = ", ".join(f"{label} {way} ({count})" for (label, way), count in moves.most_common(3))
            rows.append([name, measure.upper(), f"{len(turned)} of {one.pairs[measure]}", most])
    return markdown_table(["results", "measure", "reversed", "most often"], rows)


def _run_table(runs: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, record in runs.items():
        missing = record.get("missing") or []
        cells = [f"[{name}]({name}/run.json)", record.get("setting", "-"), record.get("protocol", "text")]
        cells += [record.get("versions", {}).get("mixupmp", "-"), str(record.get("date", "-"))[:10]]
        rows.append([*cells, *(f"{len(many)} lines" if many else "-" for many in (missing, record["not comparable"]))])
    headings = ["results", "setting", "protocol", "version", "date", "not finished", "not comparable"]
    return markdown_table(headings, rows)


def _sentence_table(sentences: Sequence[Judged], scale: str, paper: bool = True) -> str:
    rows = []
    for one in sentences:
        row = [one.claim.section, f"“{one.claim.quote}”", one.claim.quantifier, f"**{one.here.verdict}**"]
        row += [_by_dataset(one, scale), _deciding(one.here)]
        rows.append(row + ([_on_paper(one.paper)] if paper else []))
    headings = ["section", "sentence", "quantifier", "here", "cases that hold, by dataset", "deciding case"]
    return markdown_table(headings + (["the paper's own table"] if paper else []), rows)


def _by_dataset(judged: Judged, scale: str) -> str:
    """'[fmnist](...) 7/8 (1 against)', for each dataset that was run."""
    cells = []
    for name, one in judged.here.datasets.items():
        folder = "/".join(filter(None, (judged.claim.experiment, scale, part_of(name))))
        against = f" ({one.failing} against)" if one.failing else ""
        cells.append(f"[{name}]({folder}/run.json) {one.holding}/{one.cases}{against}")
    return ", ".join(cells) or "-"


def _deciding(verdict: Verdict) -> str:
    effect = verdict.deciding
    if effect is None:
        return "-"
    error = "one run" if effect.error is None else f"± {effect.reach:.2g}"
    return f"{effect.what}: {effect.mean:+.4g} ({error})"


def _on_paper(verdict: Verdict) -> str:
    if verdict.verdict == NOT_RUN:
        return "not in its tables"
    cases = sum(one.cases for one in verdict.datasets.values())
    return f"{verdict.verdict}, {verdict.holding}/{cases}" + (", by sign" if verdict.by_sign else "")


def _check_table(checks: Sequence[Check]) -> str:
    return markdown_table(["says", "found", "verdict"], [[one.says, one.found, f"**{one.verdict}**"] for one in checks])
