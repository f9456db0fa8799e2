"""How well each score tells strange rows from familiar ones, for the deep ensemble and MixupMP with r = 1.

    MIXUPMP_DATA=... python results/detection/measure.py POSTERIORS > results/detection/table.md

The default score was chosen by the first two columns, in which no test row takes part: Fashion-MNIST rows that were not
trained on against MNIST's training rows, and digits of which two classes were left out. The others are test rows.
Posteriors that are in the folder POSTERIORS already are not fitted again.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from mixupmp import Dataset, Method, Posterior, Recipe, Rows, deep_ensemble, fit, load, mixup_mp, plan_for, save, split
from mixupmp.data import load as dataset
from mixupmp.decide.detect import SCORES, fit_detector
from mixupmp.decide.features import FeatureReference, fit_reference
from mixupmp.metrics import detection

ROWS = 2000
METHODS = {"DE": deep_ensemble(4), "MixupMP r=1": mixup_mp(1.0, 2.0, 4)}
IMAGES = Recipe(epochs=40, batch_size=64, learning_rate=0.05, schedule="one-cycle", weight_decay=5e-4)
TABLES = Recipe(epochs=30, batch_size=64, optimizer="adamw", learning_rate=3e-3, schedule="constant")
COLUMNS = ("held-out: MNIST", "held-out: new digits", "MNIST", "notMNIST", "FPR95, notMNIST", "flagged familiar")


def main(folder: Path) -> None:
    fashion, mnist, letters = dataset("fashion-mnist"), dataset("mnist"), dataset("notmnist")
    rest, train = split(fashion.train, ROWS / len(fashion.train), 0)
    inside, held_out = rest.inputs[:ROWS], rest.inputs[ROWS : 2 * ROWS]
    print("AUROC, or what the column says (%).\n")
    print(f"| | score | {' | '.join(COLUMNS)} |\n|---|---|{'---:|' * len(COLUMNS)}")
    for name, method in METHODS.items():
        posterior = fitted(folder / name.replace(" ", "-"), replace(fashion, train=train), method, "cnn", IMAGES)
        reference = fit_reference(posterior, train)
        detector = fit_detector(posterior, held_out, reference)
        tables = new_digits(folder / f"digits-{name.replace(' ', '-')}", method)
        for score in SCORES:
            familiar, tested = (detector.detect(posterior, x, score) for x in (inside, fashion.test.inputs[:ROWS]))
            foreign = [mnist.train.inputs, mnist.test.inputs, letters.test.inputs]
            strange = [detector.detect(posterior, inputs[:ROWS], score).scores for inputs in foreign]
            apart = [
                detection(torch.from_numpy(known), torch.from_numpy(scores))
                for known, scores in zip((familiar.scores, tested.scores, tested.scores), strange, strict=True)
            ]
            numbers = [apart[0].auroc, tables[score], apart[1].auroc, apart[2].auroc, apart[2].fpr95]
            cells = [f"{100 * number:.1f}" for number in (*numbers, float(tested.flagged.mean()))]
            print(f"| {name} | {score} | {' | '.join(cells)} |", flush=True)


def new_digits(folder: Path, method: Method) -> dict[str, float]:
    """AUROC of each score for digits 8 and 9, which a network of the table of digits was not taught."""
    digits = dataset("digits")
    inputs = torch.cat([digits.train.inputs, digits.test.inputs]).flatten(1).float()
    labels = torch.cat([digits.train.labels, digits.test.labels])
    order = torch.randperm(int((labels < 8).sum()), generator=torch.Generator().manual_seed(0))
    known = Rows(inputs[labels < 8][order], labels[labels < 8][order])
    train, others = known.take(torch.arange(700)), known.take(torch.arange(700, len(known)))
    data = Dataset("known digits", train, others, tuple("01234567"))
    posterior = fitted(folder, data, method, "mlp", TABLES)
    reference: FeatureReference | None = fit_reference(posterior, train)
    detector = fit_detector(posterior, others.inputs, reference)
    new = {score: detector.detect(posterior, inputs[labels >= 8], score).scores for score in SCORES}
    return {score: detection(detector.held_out[score], torch.from_numpy(new[score])).auroc for score in SCORES}


def fitted(folder: Path, data: Dataset, method: Method, network: str, recipe: Recipe) -> Posterior:
    if not folder.exists():
        save(fit(plan_for(data, method, network, recipe, seed=0), engine="inline"), folder)
    return load(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
