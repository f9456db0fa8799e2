"""Does choosing r on validation rows ever do harm? r="auto" against the deep ensemble, on test rows.

    python experiments/selection_study.py --seeds 5 --out results/selection

Each repeat chooses r on a fifth of the training rows, refits on all of them, and is compared with the deep ensemble
of the same seed on the same test rows, row by row. Where r = 0 is chosen the two are the same, bit for bit. Repeats
that are there already are kept, so the study can be interrupted.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from mixupmp import Dataset, Plan, Recipe, Rows, Standardize, __version__, mixup_mp, plan_for
from mixupmp.core.posterior import Posterior
from mixupmp.data import load, split
from mixupmp.decide.search import Candidate, Search
from mixupmp.decide.select import select
from mixupmp.metrics import evaluate
from mixupmp.networks import MLP
from mixupmp.train.plans import recipe_for
from mixupmp.train.run import fit

MEMBERS = 4


def digits(seed: int) -> Plan:
    dataset = load("digits", seed=seed)
    return plan_of(dataset, "cnn", Recipe(epochs=60, learning_rate=0.05), seed)


def fashion(seed: int) -> Plan:
    """A thousand rows, trained to interpolation: the paper's regime at a size that five repeats can afford."""
    whole = load("fashion-mnist")
    _, rows = split(whole.train, 1000 / len(whole.train), seed)
    return plan_of(whole.with_train(rows), "cnn", Recipe(epochs=50, learning_rate=0.05), seed)


def table(reader: Callable[..., Any], epochs: int | None = None, wrong: float = 0.0) -> Callable[[int], Plan]:
    """A table with the estimators' default recipe, or with another number of epochs.

    `wrong` is the share of training labels that are drawn anew; the test rows keep theirs.
    """

    def plan(seed: int) -> Plan:
        data = reader()
        parts = train_test_split(data.data, data.target, test_size=0.25, stratify=data.target, random_state=seed)
        features, held, labels, answers = (torch.from_numpy(part) for part in parts)
        if wrong:
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.randint(int(labels.max()) + 1, labels.shape, generator=generator)
            labels = torch.where(torch.rand(len(labels), generator=generator) < wrong, drawn, labels)
        train, test = Rows(features.float(), labels), Rows(held.float(), answers)
        names = tuple(str(name) for name in data.target_names)
        dataset = Dataset("table", train, test, names, Standardize.of(train.inputs))
        width, outputs = train.inputs.shape[1], len(names)
        recipe = recipe_for(len(train), "table", {} if epochs is None else {"epochs": epochs})
        return plan_of(dataset, lambda: MLP(width, outputs, (128, 128)), recipe, seed)

    return plan


def plan_of(dataset: Dataset, network: Any, recipe: Recipe, seed: int) -> Plan:
    """A plan that carries its test rows where a plan has room for rows that no member is fitted to."""
    return plan_for(dataset, mixup_mp(1.0, 1.0, MEMBERS), network, recipe, seed=seed, validation=dataset.test)


STUDIES = {
    "digits / CNN": digits,
    "Fashion-MNIST, 1,000 rows / CNN": fashion,
    "breast cancer / MLP": table(load_breast_cancer),
    "wine / MLP": table(load_wine),
    # Shorter training, which was the default for a while: see results/selection/README.md.
    "cancer-short / MLP, 20 epochs": table(load_breast_cancer, epochs=20),
    "wine-short / MLP, 40 epochs": table(load_wine, epochs=40),
    # Fixed before any of them had been run, and run once; alpha is chosen as well as r.
    "iris / MLP, alpha too": table(load_iris),
    "digits-table / MLP, alpha too": table(load_digits),
    "noisy-cancer / MLP, 15 % of training labels drawn anew, alpha too": table(load_breast_cancer, wrong=0.15),
}


def repeat(plan: Plan, search: Search) -> dict[str, Any]:
    """One choice, its refit, and the deep ensemble, on the test rows."""
    test = plan.validation
    assert test is not None
    plan = Plan(plan.method, plan.network, plan.train, plan.task, plan.recipe, plan.seed)
    engine = "inline" if len(plan.task.input_shape) == 3 else "auto"
    selection = select(plan, search, engine=engine)
    ensemble = fit(Candidate(0.0).applied(plan), engine=engine)
    chosen = ensemble if selection.chosen.ratio == 0 else fit(selection.chosen.applied(plan), engine=engine)
    losses = {name: row_losses(posterior, test) for name, posterior in (("de", ensemble), ("auto", chosen))}
    difference = losses["auto"] - losses["de"]
    accuracy = [s.training_accuracy for s in ensemble.summaries if s.training_accuracy is not None]
    return {
        "selection": selection.to_dict(),
        "training_accuracy": sum(accuracy) / max(1, len(accuracy)),
        "de": evaluate(ensemble.member_probabilities(test.inputs), test.labels),
        "auto": evaluate(chosen.member_probabilities(test.inputs), test.labels),
        "difference": float(difference.mean()),
        "standard_error": float(difference.std() / len(difference) ** 0.5),
    }


def row_losses(posterior: Posterior, test: Rows) -> torch.Tensor:
    probabilities = posterior.probabilities(test.inputs).double()
    return -probabilities.gather(1, test.labels[:, None]).squeeze(1).clamp(min=1e-38).log()


def report(repeats: dict[str, dict[str, Any]], command: str) -> str:
    lines = [
        "# r chosen on validation rows against the deep ensemble",
        "",
        "Test NLL of both, by dataset and seed. *difference* is auto minus deep ensemble, paired over the test rows, "
        "with its standard error; negative is better. *worse* marks a difference of more than two standard errors. "
        "`r=0` is the deep ensemble itself.",
        "",
        "| data | seed | training accuracy of DE | chosen | DE: NLL | ECE % | auto: NLL | ECE % | difference | |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|---|",
    ]
    for key, found in sorted(repeats.items()):
        name, seed = key.rsplit("#", 1)
        selection, de, auto = found["selection"], found["de"], found["auto"]
        chosen = f"r={float(selection['ratio']):g}" + (f", alpha={selection['alpha']:g}" if selection["alpha"] else "")
        gap, error = found["difference"], found["standard_error"]
        mark = "worse" if gap > 2 * error and gap > 0 else "better" if gap < -2 * error else ""
        lines.append(
            f"| {name} | {seed} | {100 * found['training_accuracy']:.1f} % | {chosen} | {de['nll']:.4f} | "
            f"{100 * de['ece']:.2f} | {auto['nll']:.4f} | {100 * auto['ece']:.2f} | {gap:+.4f} ± {error:.4f} | {mark} |"
        )
    lines += ["", "| data | seeds | mean difference in NLL | over seeds ± | worse | better | r=0 chosen |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for name in STUDIES:
        rows = [found for key, found in repeats.items() if key.rsplit("#", 1)[0] == name]
        if rows:
            gaps = torch.tensor([row["difference"] for row in rows])
            noise = torch.tensor([row["standard_error"] for row in rows])
            spread = float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else float("nan")
            zero = sum(row["selection"]["ratio"] == 0 for row in rows)
            worse, better = int(((gaps > 2 * noise) & (gaps > 0)).sum()), int((gaps < -2 * noise).sum())
            lines.append(
                f"| {name} | {len(rows)} | {float(gaps.mean()):+.4f} | {spread:.4f} | {worse} | {better} | {zero} |"
            )
    versions = f"mixupmp {__version__}, torch {torch.__version__}, scikit-learn {sklearn.__version__}"
    return "\n".join([*lines, "", f"Command: `{command}`. {versions}, Python {platform.python_version()}; "
                      f"{platform.machine()}, {torch.get_num_threads()} thread.", ""])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="studies whose name holds this")
    parser.add_argument("--out", type=Path, default=Path("results/selection"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    command = "python experiments/selection_study.py --seeds 5 --out results/selection"
    for seed in range(options.seeds):
        for name, plan in STUDIES.items():
            path = options.out / "repeats" / f"{name.split(' ')[0].lower().strip(',')}-{seed}.json"
            if options.only not in name or path.exists():
                continue
            started = time.perf_counter()
            path.parent.mkdir(exist_ok=True)
            search = Search() if "alpha too" in name else Search(alphas=(1.0,))
            path.write_text(json.dumps({f"{name}#{seed}": repeat(plan(seed), search)}, indent=1))
            print(f"{name}, seed {seed}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    kept: dict[str, dict[str, Any]] = {}
    for path in sorted((options.out / "repeats").glob("*.json")):
        kept |= json.loads(path.read_text())
    (options.out / "study.md").write_text(report(kept, command))


if __name__ == "__main__":
    main()
