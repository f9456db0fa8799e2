"""What a trained network's posterior is worth: heads on its body, against laplace-torch, a temperature and a refit.

    python results/post-hoc/study.py --cache /path/to/runs fmnist:0 fmnist:1 fmnist:2 cifar10:0

Everything starts from one network of `networks.py`, trained plainly on 5,000 rows. Temperatures are fitted to 2,000
validation rows, which also choose the cut, weight decay, r and alpha of the second posterior. laplace-torch: last
layer, Kronecker factors, prior precision by marginal likelihood, probit predictive. An ensemble that `networks.py` has
refitted whole is compared too. Results are added to results.json; without arguments its tables are printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from mixupmp import Dataset, MixupMPClassifier, Rows, data, metrics, posterior_of
from mixupmp.core.fast.pooled_convolution import PooledConvolution
from mixupmp.data.corruptions import corrupt
from mixupmp.decide.calibrate import fit_temperature
from networks import Split, split_of, trained

Predict = Callable[[Tensor], Tensor]
RESULTS = Path(__file__).with_name("results.json")
TEST_ROWS = {"fmnist": 10_000, "cifar10": 4000}
OTHER_ROWS = 1000  # of the corrupted and the foreign test sets
CORRUPTED = (("gaussian_noise", 2), ("defocus_blur", 2), ("contrast", 2), ("pixelate", 3))
FOREIGN = {"fmnist": "mnist", "cifar10": "fashion-mnist"}
LAPLACE = version("laplace-torch")
REFITTED = "refitted: MixupMP r = 1, B = 4"


def network_of(name: str, repeat: int, cache: Path) -> nn.Module:
    network = trained(name, repeat, "network", cache).networks[0]
    for module in network.modules():
        if isinstance(module, PooledConvolution):
            module.fast = False  # curvature needs several backward passes through one forward pass
    return network.requires_grad_(True).eval()


def laplace(network: nn.Module, dataset: Dataset) -> Predict:
    from laplace import Laplace

    found = Laplace(network, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    scaled = TensorDataset(dataset.standardize(dataset.train.inputs), dataset.train.labels)
    found.fit(DataLoader(scaled, batch_size=256))
    found.optimize_prior_precision(method="marglik")
    return lambda inputs: torch.cat([found(dataset.standardize(block)).detach() for block in inputs.split(1000)])


def alone(network: nn.Module, dataset: Dataset) -> Predict:
    @torch.no_grad()
    def predict(inputs: Tensor) -> Tensor:
        return torch.cat([network(dataset.standardize(block)).softmax(1) for block in inputs.split(1000)])

    return predict


def heads(network: nn.Module, dataset: Dataset, repeat: int) -> Predict:
    scaling = dataset.standardize
    posterior = posterior_of(network, dataset.train, standardize=scaling, classes=dataset.classes, seed=repeat)
    return posterior.probabilities


def chosen_heads(network: nn.Module, dataset: Dataset, validation: Rows, repeat: int) -> Predict:
    """Heads of a cut, weight decay, r and alpha that the validation rows chose, with their temperature."""
    model = MixupMPClassifier.from_network(network, random_state=repeat)
    scaled = [(dataset.standardize(rows.inputs), rows.labels.numpy()) for rows in (dataset.train, validation)]
    model.fit(*scaled[0], validation=scaled[1])
    print(model.posterior_.cut, model.method_.name, model.ratio_, model.alpha_, model.temperature_, flush=True)
    return lambda inputs: torch.from_numpy(model.predict_proba(dataset.standardize(inputs)))


def foreign(name: str) -> Tensor:
    """Test images of another dataset, in the shape of this one's."""
    inputs = data.load(FOREIGN[name]).test.inputs[:OTHER_ROWS]
    return inputs if name == "fmnist" else functional.pad(inputs, (2, 2, 2, 2)).repeat(1, 3, 1, 1)


def scored(build: Callable[[], Predict], split: Split, sets: dict[str, Rows], outside: Tensor) -> dict[str, Any]:
    """Seconds of the processor to build it, and scores on each set of rows, as it is and after a temperature."""
    started, wall = time.process_time(), time.perf_counter()
    predict = build()
    row: dict[str, Any] = {"cpu_seconds": time.process_time() - started, "seconds": time.perf_counter() - wall}
    scaling = fit_temperature(predict(split.validation.inputs), split.validation.labels)
    row["temperature"] = scaling.temperature
    inside = torch.empty(0)
    for name, rows in sets.items():
        found = predict(rows.inputs).double()
        inside = found if name == "clean" else inside
        for kind, values in (("", found), ("calibrated_", scaling(found))):
            scores = metrics.evaluate(values, rows.labels)
            row |= {f"{name}_{kind}{key}": scores[key] for key in ("acc", "nll", "ece")}
    unsure = [metrics.predictive_entropy(p[None]) for p in (inside, predict(outside).double())]
    row["auroc"] = metrics.detection(*unsure).auroc
    return row


def compared(name: str, repeat: int, cache: Path) -> dict[str, dict[str, Any]]:
    """The scores of each way from one trained network."""
    split, network = split_of(name, repeat), network_of(name, repeat, cache)
    dataset = split.dataset
    test = dataset.test.take(torch.arange(TEST_ROWS[name]))
    some = [test.take(torch.arange(OTHER_ROWS) + OTHER_ROWS * place) for place in range(len(CORRUPTED))]
    changed = [corrupt(rows.inputs, *how) for rows, how in zip(some, CORRUPTED, strict=True)]
    sets = {"clean": test, "corrupted": Rows(torch.cat(changed), torch.cat([rows.labels for rows in some]))}
    builds: dict[str, Callable[[], Predict]] = {
        "the network": lambda: alone(network, dataset),
        "laplace-torch": lambda: laplace(network, dataset),
        "posterior_of(network, X, y)": lambda: heads(network, dataset, repeat),
        "from_network, validation rows": lambda: chosen_heads(network, dataset, split.validation, repeat),
    }
    if (cache / f"{name}-{repeat}-mixupmp" / "manifest.json").exists():
        builds[REFITTED] = lambda: trained(name, repeat, "mixupmp", cache).probabilities
    few = dataset.with_train(dataset.train.take(torch.arange(500)))
    laplace(network, few), heads(network, few, repeat)  # imports and compiles what the first call needs
    rows = {}
    for kind, build in builds.items():
        rows[kind] = scored(build, split, sets, foreign(name))
        print(name, repeat, kind, {key: round(value, 4) for key, value in rows[kind].items()}, flush=True)
    return rows


COLUMNS = (
    ("ACC (%)", "clean_acc", 100),
    ("NLL", "clean_nll", 1),
    ("ECE (%)", "clean_ece", 100),
    ("T", "temperature", 1),
    ("NLL, calibrated", "clean_calibrated_nll", 1),
    ("ECE, calibrated (%)", "clean_calibrated_ece", 100),
    ("corrupted: NLL", "corrupted_nll", 1),
    ("ECE (%)", "corrupted_ece", 100),
    ("NLL, calibrated", "corrupted_calibrated_nll", 1),
    ("ECE, calibrated (%)", "corrupted_calibrated_ece", 100),
    ("foreign: AUROC (%)", "auroc", 100),
    ("CPU s", "cpu_seconds", 1),
)


def table(repeats: list[dict[str, dict[str, Any]]]) -> str:
    """Means over repeats, with standard errors where there are several."""
    lines = ["| | " + " | ".join(heading for heading, _, _ in COLUMNS) + " |", "|---" + "|---:" * len(COLUMNS) + "|"]
    for kind in dict.fromkeys(kind for rows in repeats for kind in rows):
        cells = []
        for _, key, factor in COLUMNS:
            if kind == REFITTED and "seconds" in key:  # it is only loaded here: networks.py prints what it took
                cells.append("")
                continue
            values = [factor * rows[kind][key] for rows in repeats if kind in rows]
            digits = 3 if "nll" in key else 1 if "seconds" in key else 2
            spread = f" ({stdev(values) / len(values) ** 0.5:.{digits}f})" if len(values) > 1 else ""
            cells.append(f"{mean(values):.{digits}f}{spread}")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("jobs", nargs="*", help="dataset:repeat")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"repeats": {}}
    known["machine"] = {
        "platform": platform.platform(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    for job in options.jobs:
        name, repeat = job.split(":")
        known["repeats"][job] = compared(name, int(repeat), options.cache)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    for name in TEST_ROWS:
        repeats = [rows for job, rows in known["repeats"].items() if job.startswith(f"{name}:")]
        if repeats:
            print(f"{name}, {len(repeats)} repeats\n\n{table(repeats)}")


if __name__ == "__main__":
    main()
