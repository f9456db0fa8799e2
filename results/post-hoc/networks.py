"""The networks that the study starts from, and the ensembles that it is compared with; resumable.

python results/post-hoc/networks.py --cache /path/to/runs fmnist:0 cifar10:0 fmnist:0:mixupmp
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from mixupmp import Dataset, Posterior, Recipe, Rows, data, fit, load, mixup_mp, plan_for, single_network
from mixupmp.core.methods import Method, deep_ensemble
from mixupmp.networks.catalog import Network

ROWS, VALIDATION, DEVELOPMENT = 5000, 2000, 5000
METHODS: dict[str, Method] = {
    "network": single_network(),
    "ensemble": deep_ensemble(4),
    "mixupmp": mixup_mp(1.0, 2.0, 4),
}


@dataclass(frozen=True)
class Setting:
    """A dataset, the network that is trained on 5,000 rows of it, and how."""

    dataset: str
    network: str | Network
    recipe: Recipe


SETTINGS = {
    "fmnist": Setting("fashion-mnist", "cnn", Recipe(epochs=50, learning_rate=0.05)),
    "cifar10": Setting(
        "cifar10",
        Network("mixupmp.paper.networks.PooledResNet", {"channels": 3, "outputs": 10, "width": 16}),
        Recipe(epochs=30, batch_size=64, learning_rate=0.1),
    ),
}


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of one repeat: those of the training set are divided, the test set is left as it is.

    Parameters
    ----------
    dataset
        With the network's training rows, and the test rows.
    validation
        What a user holds out: for the temperature, and for what is chosen.
    development
        Other rows of the training set, on which the defaults of `posterior_of` were compared.
    """

    dataset: Dataset
    validation: Rows
    development: Rows


def split_of(name: str, repeat: int) -> Split:
    dataset = data.load(SETTINGS[name].dataset)
    order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(repeat))
    places = order[: ROWS + VALIDATION + DEVELOPMENT].split([ROWS, VALIDATION, DEVELOPMENT])
    train, validation, development = (dataset.train.take(part.sort().values) for part in places)
    return Split(dataset.with_train(train), validation, development)


def trained(name: str, repeat: int, method: str, cache: Path) -> Posterior:
    """Fit, or go on with, or load."""
    setting, folder = SETTINGS[name], cache / f"{name}-{repeat}-{method}"
    if (folder / "manifest.json").exists():
        return load(folder, network=setting.network if isinstance(setting.network, Network) else None)
    dataset = split_of(name, repeat).dataset
    plan = plan_for(dataset, METHODS[method], setting.network, setting.recipe, seed=repeat)
    return fit(plan, engine="inline", run=folder, resume=folder.exists())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("jobs", nargs="+", help="dataset:repeat or dataset:repeat:method")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for job in options.jobs:
        name, repeat, *method = job.split(":")
        started = time.process_time()
        posterior = trained(name, int(repeat), (method or ["network"])[0], options.cache)
        accuracy = [summary.training_accuracy for summary in posterior.summaries]
        print(f"{job}: {time.process_time() - started:.0f} CPU seconds, training accuracy {accuracy}", flush=True)


if __name__ == "__main__":
    main()
