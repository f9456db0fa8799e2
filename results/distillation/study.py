"""One network in place of B: what it keeps of the posterior, and what it costs.

python results/distillation/study.py > results/distillation/study.md
"""

from __future__ import annotations

import platform

import torch

from mixupmp import Recipe, __version__, data, mixup_mp, plan_for
from mixupmp.export.distill import compare, distill
from mixupmp.train.run import fit

MEMBERS = 8


def main() -> None:
    torch.set_num_threads(1)
    dataset = data.load("digits")
    print("# Distillation: digits, the CNN, MixupMP with r = 1, alpha = 1\n")
    print(
        f"{MEMBERS} members against one network taught by them, on the test rows. KL is from the posterior's mean to "
        "the student's; the rank correlation is of mutual information, row by row; cost is the time of an answer, "
        "with the posterior's at 1.\n"
    )
    print("| seed | accuracy: posterior | student | one member | NLL: posterior | student | one member | KL "
          "| same class | rank correlation | cost |\n|---:|" + "---:|" * 10)  # fmt: skip
    for seed in range(3):
        recipe = Recipe(epochs=40, learning_rate=0.05)
        posterior = fit(plan_for(dataset, mixup_mp(1.0, 1.0, MEMBERS), "cnn", recipe, seed=seed), engine="inline")
        student = distill(posterior, dataset.train.inputs, recipe=recipe, blends=4, seed=seed)
        found = compare(posterior, student, dataset.test.inputs, dataset.test.labels)
        one = posterior.member_probabilities(dataset.test.inputs)
        truth = dataset.test.labels
        accuracy = float((one.argmax(-1) == truth).float().mean())
        nll = float(-one.gather(2, truth.expand(len(one), -1)[..., None]).clamp(min=1e-38).log().mean())
        ours, theirs = found["posterior"], found["distilled"]
        alike = found["mutual_information_rank_correlation"]
        print(
            f"| {seed} | {100 * ours['acc']:.2f} % | {100 * theirs['acc']:.2f} % | {100 * accuracy:.2f} % | "
            f"{ours['nll']:.4f} | {theirs['nll']:.4f} | {nll:.4f} | {found['kl']:.4f} | "
            f"{100 * found['agreement']:.2f} % | {alike:.3f} | {found['cost']:.3f} |",
            flush=True,
        )
    print(f"\nCommand: `python experiments/distillation.py`. mixupmp {__version__}, torch {torch.__version__}, "
          f"Python {platform.python_version()}, {platform.machine()}, one thread.")  # fmt: skip


if __name__ == "__main__":
    main()
