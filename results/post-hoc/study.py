"""What a trained network's posterior is worth: heads on its body, against laplace-torch and a temperature.

    python results/post-hoc/study.py --data /path/to/data --rows 2000 --out results/post-hoc

The CNN is trained plainly to interpolation, then everything else starts from it. Temperatures are fitted to 1,000
validation rows, which also choose the cut, r and alpha of the second posterior. laplace-torch: last layer, Kronecker
factors, prior precision by marginal likelihood, probit predictive.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mixupmp import Dataset, Posterior, Recipe, Rows, data, fit, metrics, plan_for, posterior_of, single_network
from mixupmp.core.fast.pooled_convolution import PooledConvolution
from mixupmp.decide.calibrate import fit_temperature

Predict = Callable[[Tensor], Tensor]
VALIDATION = 1000


def trained(dataset: Dataset) -> nn.Module:
    """The paper's CNN, trained plainly."""
    recipe = Recipe(epochs=50, learning_rate=0.05)
    network = fit(plan_for(dataset, single_network(), "cnn", recipe), engine="inline").networks[0]
    for module in network.modules():
        if isinstance(module, PooledConvolution):
            module.fast = False  # curvature needs several backward passes through one forward pass
    return network.requires_grad_(True)


def laplace(network: nn.Module, dataset: Dataset) -> Predict:
    """laplace-torch's predictive."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from laplace import Laplace

        found = Laplace(network, "classification", subset_of_weights="last_layer", hessian_structure="kron")
        scaled = TensorDataset(dataset.standardize(dataset.train.inputs), dataset.train.labels)
        found.fit(DataLoader(scaled, batch_size=256))
        found.optimize_prior_precision(method="marglik")
    return lambda inputs: torch.cat([found(dataset.standardize(block)).detach() for block in inputs.split(1000)])


def probabilities_of(network: nn.Module, dataset: Dataset) -> Predict:
    network.eval()

    @torch.no_grad()
    def predict(inputs: Tensor) -> Tensor:
        return torch.cat([network(dataset.standardize(block)).softmax(1) for block in inputs.split(1000)])

    return predict


def heads(network: nn.Module, dataset: Dataset, validation: Rows | None) -> Predict:
    posterior: Posterior = posterior_of(
        network, dataset.train, validation=validation, standardize=dataset.standardize, classes=dataset.classes
    )
    print(posterior.origin["spec"]["method"] if posterior.origin else "", flush=True)
    return posterior.probabilities


def scored(name: str, build: Callable[[], Predict], validation: Rows, test: Rows) -> dict[str, float | str]:
    """A row of the table: seconds to build, and scores on the test rows as they are and after a temperature."""
    started = time.perf_counter()
    predict = build()
    seconds = time.perf_counter() - started
    found = predict(test.inputs)
    scaling = fit_temperature(predict(validation.inputs), validation.labels)
    raw, calibrated = (metrics.evaluate(p.double(), test.labels) for p in (found, scaling(found)))
    row: dict[str, float | str] = {"name": name, "seconds": seconds, "temperature": scaling.temperature}
    row |= {key: raw[key] or 0.0 for key in ("acc", "nll", "ece")}
    row |= {f"calibrated_{key}": calibrated[key] or 0.0 for key in ("nll", "ece")}
    print(row, flush=True)
    return row


def table(rows: list[dict[str, float | str]]) -> str:
    lines = [
        "| | ACC (%) | NLL | ECE (%) | T | NLL, calibrated | ECE, calibrated (%) | seconds |",
        "|---" + "|---:" * 7 + "|",
    ]
    for row in rows:
        values = [
            row[key] for key in ("acc", "nll", "ece", "temperature", "calibrated_nll", "calibrated_ece", "seconds")
        ]
        acc, nll, ece, scale, own_nll, own_ece, seconds = map(float, values)
        shown = f"{acc:.2%} | {nll:.3f} | {ece:.2%} | {scale:.2f} | {own_nll:.3f} | {own_ece:.2%} | {seconds:.1f}"
        lines.append(f"| {row['name']} | {shown.replace('%', '')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("results/post-hoc"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = data.load("fashion-mnist", root=options.data)
    order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(0))
    validation = dataset.train.take(order[options.rows : options.rows + VALIDATION])
    dataset = dataset.with_train(dataset.train.take(order[: options.rows].sort().values))
    started = time.perf_counter()
    network = trained(dataset)
    print(f"trained in {time.perf_counter() - started:.1f} s", flush=True)
    builds: dict[str, Callable[[], Predict]] = {
        "the network": lambda: probabilities_of(network, dataset),
        "laplace-torch": lambda: laplace(network, dataset),
        "posterior_of(network, X, y)": lambda: heads(network, dataset, None),
        "posterior_of(..., validation)": lambda: heads(network, dataset, validation),
    }
    rows = [scored(name, build, validation, dataset.test) for name, build in builds.items()]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps({"rows": options.rows, "table": rows}, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
