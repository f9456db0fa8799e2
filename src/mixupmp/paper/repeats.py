"""Experiments past the paper: each method is fitted and scored anew in each repeat, and the numbers of each are kept.

So a command that was interrupted goes on where it was, and the table is complete for the repeats that are done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from mixupmp.core.files import write_json
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.calibrators import Temperature
from mixupmp.metrics import evaluate
from mixupmp.metrics.comparison import summary_of
from mixupmp.paper.members import Wanted
from mixupmp.paper.study import Study

Record = dict[str, Any]


@dataclass(frozen=True)
class Repeats:
    """What is compared, and how it is shown.

    Parameters
    ----------
    lines
        The methods by the name of their line.
    score
        Of a method and a seed: fits it, and returns its numbers by column.
    """

    title: str
    caption: str
    lines: Mapping[str, Method]
    columns: Sequence[str]
    count: int
    score: Callable[[Method, int], Record]

    def run(self, study: Study) -> None:
        """Do what is missing, repeat by repeat, and write README.md and run.json after each."""
        # Numbers of another precision are not those that were asked for.
        options = ["-" + study.precision] * (study.precision != "float32") + ["-compiled"] * study.compiled
        folder = study.folder / f"repeats{''.join(options)}"
        folder.mkdir(parents=True, exist_ok=True)
        for seed in range(self.count):
            for line, method in self.lines.items():
                path = folder / f"{''.join(c if c.isalnum() else '-' for c in line.lower())}-{seed}.json"
                if not path.exists() and not study.partial:
                    record = {"line": line, "seed": seed, **self.score(method, seed)}
                    write_json(path, record)
                    first = ", ".join(f"{column} {record[column]:.4f}" for column in self.columns[:4])
                    study.say(f"repeat {seed}, {line}: {first}")
            records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
            study.write("README.md", self.table(records))
            study.record([self.caption, "not in the paper"], sorted({r["seed"] for r in records}))

    def table(self, records: Sequence[Record]) -> str:
        """Means over repeats, with standard errors where there are several."""
        lines = [f"# {self.title}", "", self.caption, "", f"| method | repeats | {' | '.join(self.columns)} |"]
        lines.append("|---|" + "---:|" * (len(self.columns) + 1))
        for line in self.lines:
            own = [record for record in records if record["line"] == line]
            cells = (_cell([record[column] for record in own]) for column in self.columns)
            lines += [f"| {line} | {len(own)} | {' | '.join(cells)} |"] if own else []
        return "\n".join(lines) + "\n"


def fitted(study: Study, plan: Plan) -> Posterior:
    """The posterior of this plan under the study's device and precision, of cached networks and those trained now."""
    recipe = replace(plan.recipe, precision=study.precision, compile=study.compiled)  # type: ignore[arg-type]
    wanted = Wanted(replace(plan, recipe=recipe, device=study.devices[0]))
    study.quietly().train([wanted])
    posterior = study.cache.posterior(wanted)
    assert posterior is not None, f"every network of {plan.method.name} diverged"
    return posterior


def calibrated_scores(posterior: Posterior, test: Rows, held: Rows) -> tuple[Record, Temperature]:
    """Accuracy, NLL and ECE of test rows, before and after a temperature from held-out rows; and that temperature."""
    raw, known = (posterior.probabilities(rows.inputs).cpu().double() for rows in (test, held))
    temperature = fit_temperature(known, held.labels, warn=False)
    plain, better = (evaluate(p, test.labels) for p in (raw, temperature(raw)))
    accuracies = [s.training_accuracy for s in posterior.summaries if s.training_accuracy is not None]
    return {
        "training_accuracy": fmean(accuracies),
        "temperature": temperature.temperature,
        **{name: plain[name] for name in ("acc", "nll", "ece")},
        **{f"{name}_calibrated": better[name] for name in ("nll", "ece")},
    }, temperature


def _cell(values: list[float]) -> str:
    found = summary_of(values)
    return f"{found.mean:.4f}" + ("" if found.standard_error is None else f" ± {found.standard_error:.4f}")
