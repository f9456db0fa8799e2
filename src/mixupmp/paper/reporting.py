"""From lines to tables: evaluate every repeat, summarize, put the paper's figures beside, write all formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mixupmp.core.rows import Rows
from mixupmp.metrics import Summary, summarize
from mixupmp.paper.lines import Line
from mixupmp.paper.members import Wanted
from mixupmp.paper.paper import Table as PaperTable
from mixupmp.paper.paper import paper_value
from mixupmp.paper.study import Evaluation, Study
from mixupmp.paper.tables import MEASURES, Cell, Table, TableLine, to_csv, to_latex, to_markdown

Evaluated = list[tuple[Line, list[Evaluation]]]


def evaluate_lines(
    study: Study, lines: Sequence[Line], evaluate: Callable[[Wanted], Evaluation]
) -> tuple[Evaluated, list[str]]:
    """Each line with the evaluations of its finished repeats, and the labels of lines that lack some."""
    found: Evaluated = []
    incomplete = []
    for line in lines:
        ready = [wanted for wanted in line.repeats if study.available(wanted)]
        if len(ready) < len(line.repeats):
            incomplete.append(f"{line.label} ({len(ready)} of {len(line.repeats)} repeats)")
        if ready:
            found.append((line, [evaluate(wanted) for wanted in ready]))
    return found, incomplete


def on_rows(study: Study, rows: Rows) -> Callable[[Wanted], Evaluation]:
    """Evaluation on these rows."""
    return lambda wanted: study.evaluate(wanted, rows)


def summaries_of(evaluations: Sequence[Evaluation]) -> dict[str, Summary]:
    """Mean and standard error over the repeats that have a posterior; a repeat whose members all diverged has none."""
    whole = [_numbers(one) for one in evaluations if one.get("acc", one.get("auroc")) is not None]
    return summarize(whole) if whole else {}


def table_of(
    evaluated: Evaluated,
    title: str,
    measures: tuple[str, ...],
    paper: tuple[PaperTable, str] | None = None,
    caption: str = "",
) -> Table:
    """A table with the training accuracy and the diverged members in it; `paper` names its table and dataset."""
    made = []
    for line, evaluations in evaluated:
        summaries = summaries_of(evaluations)
        cells = {}
        for measure in measures:
            theirs = paper_value(paper[0], paper[1], line.label, MEASURES[measure][0]) if paper else None
            cells[measure] = Cell(summaries.get(measure), theirs)
        made.append(TableLine(line.group, line.label, cells, training_notes(evaluations)))
    return Table(title, measures, tuple(made), caption)


def training_notes(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """What every table tells about the fits behind it."""
    reached = [e["training_accuracy"] for e in evaluations if e.get("training_accuracy") is not None]
    diverged, networks = sum(e["diverged"] for e in evaluations), sum(e["networks"] for e in evaluations)
    accuracy = f"{100 * sum(reached) / len(reached):.2f}" if reached else "-"
    return {"train ACC (%)": accuracy, "diverged": f"{diverged} of {networks}", "repeats": str(len(evaluations))}


def write_table(study: Study, name: str, table: Table) -> None:
    """CSV, Markdown and LaTeX, and the table on the screen."""
    study.write(f"{name}.csv", to_csv(table))
    study.write(f"{name}.md", to_markdown(table))
    study.write(f"{name}.tex", to_latex(table))
    study.say(to_markdown(table))


def write_evaluations(study: Study, name: str, evaluated: Evaluated) -> None:
    """Every repeat's numbers, which the ledger of claims reads."""
    content: list[Any] = [
        {"group": line.group, "label": line.label, "repeats": evaluations} for line, evaluations in evaluated
    ]
    study.write(f"{name}.json", content)


def _numbers(evaluation: Evaluation) -> dict[str, float | None]:
    return {name: value for name, value in evaluation.items() if isinstance(value, int | float)}
