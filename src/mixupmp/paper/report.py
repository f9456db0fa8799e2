"""From lines to results: train, evaluate every repeat, and write the table in all formats with the paper's figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum

from mixupmp.core.foreign import Json
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.calibrators import Temperature
from mixupmp.metrics import Summary, evaluate, summarize
from mixupmp.metrics.catalog import CALIBRATED
from mixupmp.paper.effects import Sample
from mixupmp.paper.lines import Line
from mixupmp.paper.members import Wanted
from mixupmp.paper.reference import IMPLICIT, SINGLE, PaperTable, paper_value
from mixupmp.paper.resampling import UNIT, deviations
from mixupmp.paper.settings import Setting, comparable, mean_training_accuracy, on_shared_repeats
from mixupmp.paper.study import Evaluation, Evaluator, Pair, Study
from mixupmp.paper.table import BOLD, Cell, Table, TableLine, shown_metric, to_csv, to_latex, to_markdown

Evaluated = list[tuple[Line, list[Evaluation]]]
CALIBRATED_MEASURES = ("nll", "ece")
LOST = ("diverged", "collapsed")  # members that a table counts


@dataclass(frozen=True, eq=False)
class OnRows:
    """Every metric on labeled rows; NLL and ECE also after one temperature on the pooled probabilities.

    The temperature is fitted on rows that the members were not trained on (pool, then calibrate: Rahaman & Thiery
    2021). Without it a comparison of NLL is not a fair one (Ashukha et al. 2020).
    """

    rows: Rows
    calibration: Rows | None = None

    @property
    def key(self) -> str:
        held_out = "" if self.calibration is None else f" calibrated {self.calibration.fingerprint()}"
        return f"evaluate and resample test {self.rows.fingerprint()}{held_out}"

    def __call__(self, posterior: Posterior) -> Evaluation:
        members = posterior.member_probabilities(self.rows.inputs).cpu()
        found: Evaluation = dict(evaluate(members, self.rows.labels))
        resampled = deviations(members.mean(0), self.rows.labels)
        calibrate = fitted_temperature(posterior, self.calibration)
        if calibrate is not None:
            pooled = calibrate(members.mean(0))
            after, moved = evaluate(pooled, self.rows.labels), deviations(pooled, self.rows.labels, CALIBRATED_MEASURES)
            for name in CALIBRATED_MEASURES:
                found[f"{name}{CALIBRATED}"], resampled[f"{name}{CALIBRATED}"] = after[name], moved[name]
            found["temperature"] = calibrate.temperature
        return {**found, "resampled": resampled}


def fitted_temperature(posterior: Posterior, held: Rows | None) -> Temperature | None:
    """Of the pooled probabilities of these rows; None where there are none."""
    if held is None:
        return None
    # Always the fitted one: a rule that sometimes leaves T at 1 would blur the comparison of methods.
    return fit_temperature(posterior.member_probabilities(held.inputs).cpu(), held.labels, standard_errors=None)


def on_test_rows(setting: Setting) -> Callable[[int], Evaluator]:
    """The evaluator of each repeat: on the test rows, calibrated on rows that the repeat is not trained on."""
    return lambda seed: OnRows(setting.test, setting.calibration(seed))


Pairs = list[tuple[Line, list[Pair]]]


def run_lines(
    study: Study,
    setting: Setting,
    lines: Sequence[Line],
    evaluator: Callable[[int], Evaluator],
    write: Callable[[Evaluated, list[str]], None] = lambda evaluated, missing: None,
) -> tuple[Evaluated, list[str]]:
    """Train and evaluate: each line with its finished repeats, and the labels of lines that lack some.

    `write` gets what there is whenever some more of it is finished, so that a run that is stopped loses little.
    """
    evaluators = {seed: evaluator(seed) for seed in setting.seeds}
    pairs: Pairs = []
    absent = []
    for line in lines:
        many: list[Pair] = [(one, evaluators[one.plan.seed]) for one in line.wanted(setting)]
        if line.missing_package is not None:  # what was evaluated elsewhere stays
            many = [pair for pair in many if study.evaluated(*pair)]
            absent.append(f"{line.label} (the package {line.missing_package} is not installed)")
        pairs.append((line, many))

    def finished() -> tuple[Evaluated, list[str]]:
        evaluated, missing = _evaluated(study, pairs)
        return evaluated, absent + missing

    def on_progress() -> None:
        write(*finished())

    left = _in_order(study, pairs)
    if not study.partial or len(left) == sum(len(many) for _, many in pairs):  # then it says that there is nothing
        study.train(left, lambda: _evaluate_trained(study, pairs, on_progress))
    _evaluate_trained(study, pairs, on_progress)
    return finished()


def _in_order(study: Study, pairs: Pairs) -> list[Wanted]:
    """What is not evaluated yet: repeat by repeat, so that a run that is stopped has whole tables to show.

    In each repeat the single models come last, as they are members of the ensembles.
    """
    left = [(line, one) for line, many in pairs for one, by in many if not study.evaluated(one, by)]
    return [one for _, one in sorted(left, key=lambda item: (item[1].plan.seed, item[0].group == SINGLE))]


def _evaluate_trained(study: Study, pairs: Pairs, on_progress: Callable[[], None]) -> None:
    """Evaluate all that is trained: explicit ensembles first, and implicit ones, which take the longest, last."""
    left = [(line, pair) for line, many in pairs for pair in many if not study.evaluated(*pair)]
    ready = [(line, pair) for line, pair in left if study.available(pair[0])]
    later = (SINGLE, IMPLICIT)
    ready.sort(key=lambda item: (later.index(item[0].group) if item[0].group in later else -1, item[1][0].plan.seed))
    study.evaluate([pair for _, pair in ready], on_progress)


def _evaluated(study: Study, pairs: Pairs) -> tuple[Evaluated, list[str]]:
    """All evaluations that there are, and the labels of lines that lack some."""
    ready = [[pair for pair in many if study.evaluated(*pair)] for _, many in pairs]
    results = iter(study.evaluate([pair for many in ready for pair in many]))
    evaluated = [(line, [next(results) for _ in many]) for (line, _), many in zip(pairs, ready, strict=True)]
    counts = [(line.label, len(found), len(many)) for (line, found), (_, many) in zip(evaluated, pairs, strict=True)]
    missing = [f"{label} ({count} of {all_} runs)" for label, count, all_ in counts if count < all_]
    return [(line, found) for line, found in evaluated if found], missing


def report_lines(
    study: Study,
    setting: Setting,
    lines: Sequence[Line],
    title: str,
    measures: tuple[str, ...],
    *,
    evaluator: Callable[[int], Evaluator] | None = None,
    paper: tuple[PaperTable, str] | None = None,
    caption: str = "",
    differences: Sequence[str] = (),
) -> Evaluated:
    """Run a table whole: train, evaluate, write it in all formats with the numbers behind it, and record the run."""
    differs = [*setting.all_differences, *differences]
    parts = [f"{setting.describe()}.", caption, "Mean (standard error) over runs.", BOLD]
    parts.append(f"Differs from the paper: {'; '.join(differs)}.")

    def write(study: Study, evaluated: Evaluated, missing: list[str]) -> None:
        if not evaluated:  # what lies there is of another run
            return
        shown = shared_repeats(evaluated)
        unfinished = f"{_over(shown)} Not finished: {'; '.join(missing)}." if missing else ""
        text = " ".join(filter(None, [*parts, unfinished]))
        write_table(study, "table", table_of(shown, title, measures, paper, text))
        write_evaluations(study, evaluated)
        more = {"setting": setting.describe(), "train_rows": setting.train_rows, "missing": missing}
        more["lines"] = [line.label for line in lines]
        study.record(differs, setting.seeds, evaluated=made_with(evaluated), **more)

    on_progress = partial(write, study.quietly())
    evaluated, missing = run_lines(study, setting, lines, evaluator or on_test_rows(setting), on_progress)
    write(study, evaluated, missing)
    return evaluated


def _over(shown: Evaluated) -> str:
    """On which repeats the lines of an unfinished table are compared."""
    if len({frozenset(one.get("seed") for one in found) for _, found in shown}) == 1:
        return "Over the repeats that all lines have."
    return (
        "Lines have repeats of their own, as fewer than two are shared: a repeat has its own training rows, so small "
        "differences between lines of other numbers of runs may be of these."
    )


def made_with(evaluated: Evaluated) -> list[dict[str, Json]]:
    """With which versions, on what kind of machine and when evaluations were made, each kind once, with its number.

    A report can be of evaluations that were made earlier and elsewhere.
    """
    kinds: dict[str, tuple[dict[str, Json], list[str]]] = {}
    for made in ({**one.get("made", {})} for _, many in evaluated for one in many):
        date = made.pop("date", "not recorded")
        kinds.setdefault(json.dumps(made, sort_keys=True), (made, []))[1].append(date)
    return [
        {"evaluations": len(dates), "first": min(dates), "last": max(dates), **made} for made, dates in kinds.values()
    ]


def shared_repeats(evaluated: Evaluated) -> Evaluated:
    """The same lines on the repeats that all have, where these are two or more."""
    found = on_shared_repeats([many for _, many in evaluated])
    return [(line, [dict(one) for one in many]) for (line, _), many in zip(evaluated, found, strict=True)]


def summaries_of(evaluations: Sequence[Evaluation]) -> dict[str, Summary]:
    """Mean and standard error over the repeats that have a posterior; a repeat whose members all diverged has none.

    Several single models of one repeat share their training rows: their mean counts once.
    """
    numbers = [{name: value for name, value in one.items() if isinstance(value, int | float)} for one in evaluations]
    numbers = [{**each, **noise_of(one)} for each, one in zip(numbers, evaluations, strict=True)]
    by_repeat: dict[object, list[dict[str, int | float]]] = {}
    for place, one in enumerate(numbers):
        if "acc" in one or "auroc" in one:
            by_repeat.setdefault(one.get("seed", f"run {place}"), []).append(one)
    means = [
        {name: fsum(one[name] for one in many) / len(many) for name in many[0] if all(name in one for one in many)}
        for many in by_repeat.values()
    ]
    return summarize(means) if means else {}


def noise_of(evaluation: Evaluation) -> dict[str, float]:
    """What chance in the test rows adds to the ECE, of which no gap is below zero: its bias, by the bootstrap.

    It is too low where most of the ECE is chance, so what is left of such an ECE without it is still too high.
    """
    moved = evaluation.get("resampled", {}).get("ece")
    return {"ece_noise": UNIT * fsum(moved) / len(moved)} if moved else {}


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
            theirs = paper_value(*paper, line.label, shown_metric(measure).heading) if paper else None
            runs = [(one.get("seed", place), one) for place, one in enumerate(evaluations)]
            cells[measure] = Cell(summaries.get(measure), theirs, Sample.of_runs(runs, measure))
        made.append(TableLine(line.group, line.label, cells, training_notes(evaluations), comparable(evaluations)))
    shown = tuple(m for m in measures if any(line.cells[m].ours for line in made) or not m.endswith(CALIBRATED))
    return Table(title, shown, tuple(made), caption)


def training_notes(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """What every table tells about the fits behind it; below 98% a line is not in the paper's regime."""
    lost, networks = (sum(e.get(name, 0) for e in evaluations for name in names) for names in (LOST, ("networks",)))
    mean = mean_training_accuracy(evaluations)
    accuracy = "-" if mean is None else _percent(mean)
    return {
        "train ACC (%)": accuracy if comparable(evaluations) else f"{accuracy}, not comparable",
        "diverged or collapsed": f"{lost} of {networks}",
        "runs": str(len(evaluations)),
    }


def _percent(share: float) -> str:
    """With two decimals, or with more where these would make it 100 and a few rows are wrong."""
    shown = f"{100 * share:.2f}"
    return f"{100 * share:.6g}" if shown == "100.00" and share != 1 else shown


def write_table(study: Study, name: str, table: Table) -> None:
    """CSV, Markdown and LaTeX, and the table on the screen."""
    study.write(f"{name}.csv", to_csv(table))
    study.write(f"{name}.md", to_markdown(table))
    study.write(f"{name}.tex", to_latex(table))
    study.say(to_markdown(table))


def write_evaluations(study: Study, evaluated: Evaluated) -> None:
    """Every repeat's numbers, a line of text for each: the ledger of claims and later runs read them."""
    lines = []
    for line, found in evaluated:
        repeats = ",\n  ".join(json.dumps(one) for one in found)
        lines.append(
            f'{{"group": {json.dumps(line.group)}, "label": {json.dumps(line.label)}, "repeats": [\n  {repeats}]}}'
        )
    study.write("evaluations.json", "[" + ",\n ".join(lines) + "]\n")
