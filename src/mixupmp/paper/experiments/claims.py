"""Every claim of the paper's text, checked on what the other experiments measured; writes results/CLAIMS.md."""

from __future__ import annotations

import time

from mixupmp.paper import Study
from mixupmp.paper.claims import Results, judge, ledger
from mixupmp.paper.paper_claims import all_claims

TITLE = "the ledger of claims: what the others' results say about each claim of the paper"


def run(study: Study) -> None:
    started = time.time()
    results = Results(study.results, study.scale)
    judged = [judge(claim, results) for claim in all_claims()]
    text = ledger(judged, study.scale)
    study.write(
        "claims.json",
        [
            {"claim": one.claim.name, "verdict": one.verdict, "effect": one.effect and vars(one.effect)}
            for one in judged
        ],
    )
    # The ledger of a smoke run would say nothing about the paper: it stays among the smoke results.
    place = study.folder if study.scale == "smoke" else study.results
    (place / "CLAIMS.md").write_text(text)
    study.say(text)
    study.record(["reads the others' results; see their run.json"], [0], started)
