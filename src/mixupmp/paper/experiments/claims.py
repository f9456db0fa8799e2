"""The ledger: what the results of the other experiments say about each sentence of the paper; writes CLAIMS.md."""

from __future__ import annotations

from mixupmp.paper.evidence import RunEvidence
from mixupmp.paper.ledger import make_ledger
from mixupmp.paper.ledger_page import render
from mixupmp.paper.study import Study

TITLE = "the ledger: concordance with the paper's tables, and each of its sentences checked"
OPTIONS = ("protocol",)  # of the results that it reads
COST = "seconds of a CPU"


def run(study: Study) -> None:
    ledger = make_ledger(RunEvidence(study.results, study.scale, study.protocol.name))
    text = render(ledger, study.scale)
    study.write("claims.json", ledger.to_dict())
    # The ledger of a smoke run, or of another protocol than the text's, stays among its results.
    place = study.results if study.scale != "smoke" and study.protocol.name == "text" else study.folder
    (place / "CLAIMS.md").write_text(text)
    study.say(text)
    study.record(["reads the others' results; see their run.json"], [0])
