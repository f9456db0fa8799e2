"""The contenders, each as a user of its library would write it; `lines` counts the lines of its function."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.rivals.data import Images, Table

Probabilities = Tensor | NDArray[Any]


def lines(contender: Callable[..., Any]) -> int:
    """Lines of code of a contender: its body, without docstring, comments and empty lines."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(contender)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    places = [(part.lineno, part.end_lineno or part.lineno) for part in function.body[1:]]
    helper = lines(_one_network) if "_one_network" in contender.__code__.co_names else 0
    return len({number for first, last in places for number in range(first, last + 1)}) + helper


def mixupmp_ratio_one(data: Images, seed: int) -> Probabilities:
    """mixupmp: MixupMP, r = 1"""
    from mixupmp import MixupMPClassifier, Recipe

    recipe = Recipe(epochs=data.epochs, learning_rate=data.rate, schedule="constant", nesterov=False, weight_decay=0.0)
    model = MixupMPClassifier(
        ratio=1.0, alpha=2.0, members=4, network=data.network, recipe=recipe, calibrate=False, random_state=seed
    )
    return model.fit(data.train, data.labels).predict_proba(data.test)


def torch_uncertainty(data: Images, seed: int) -> Probabilities:
    """torch-uncertainty: MixupMP, r = 1"""
    from torch_uncertainty import TUTrainer
    from torch_uncertainty.losses import MixupMPLoss
    from torch_uncertainty.routines import ClassificationRoutine

    loader = DataLoader(TensorDataset(data.train, data.labels), data.batch, shuffle=True)
    networks = []
    for _ in range(data.members):
        network = data.network()
        routine = ClassificationRoutine(
            model=network,
            num_classes=10,
            loss=MixupMPLoss(mixup_ratio=1.0),
            mixup_params={"mixtype": "mixupmp", "mixup_alpha": 2.0, "mixupmp_ratio": 1.0},
            # Its loss is the sum of both parts, (1 + r) times ours.
            optim_recipe=torch.optim.SGD(network.parameters(), lr=data.rate / 2, momentum=0.9),
        )
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = TUTrainer(max_epochs=data.epochs, accelerator="cpu", enable_model_summary=False, **quiet)
        trainer.fit(routine, train_dataloaders=loader)
        networks.append(network.eval())
    with torch.no_grad():
        return torch.stack([network(data.test).softmax(1) for network in networks]).mean(0)


def hand_written(data: Images, seed: int) -> Probabilities:
    """the usual loop by hand: MixupMP, r = 1"""
    networks = []
    for _ in range(data.members):
        network = data.network()
        optimizer = torch.optim.SGD(network.parameters(), lr=data.rate, momentum=0.9)
        for _ in range(data.epochs):
            for rows, labels in DataLoader(TensorDataset(data.train, data.labels), data.batch, shuffle=True):
                targets = functional.one_hot(labels, 10).float()
                share = Beta(2.0, 2.0).sample((len(rows),))
                other = torch.randperm(len(rows))
                blended = share.view(-1, 1, 1, 1) * rows + (1 - share).view(-1, 1, 1, 1) * rows[other]
                soft = share.view(-1, 1) * targets + (1 - share).view(-1, 1) * targets[other]
                loss = functional.cross_entropy(network(torch.cat([rows, blended])), torch.cat([targets, soft]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        networks.append(network.eval())
    with torch.no_grad():
        return torch.stack([network(data.test).softmax(1) for network in networks]).mean(0)


def mixupmp_ratio_zero(data: Images, seed: int) -> Probabilities:
    """mixupmp: deep ensemble"""
    from mixupmp import DeepEnsembleClassifier, Recipe

    recipe = Recipe(epochs=data.epochs, learning_rate=data.rate, schedule="constant", nesterov=False, weight_decay=0.0)
    model = DeepEnsembleClassifier(members=4, network=data.network, recipe=recipe, calibrate=False, random_state=seed)
    return model.fit(data.train, data.labels).predict_proba(data.test)


def _one_network(data: Images) -> nn.Module:
    """One network, trained as usual: what laplace-torch and `from_network` start from."""
    network = data.network()
    optimizer = torch.optim.SGD(network.parameters(), lr=data.rate, momentum=0.9)
    for _ in range(data.epochs):
        for rows, labels in DataLoader(TensorDataset(data.train, data.labels), data.batch, shuffle=True):
            loss = functional.cross_entropy(network(rows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()


def one_network(data: Images, seed: int) -> Probabilities:
    """one network by hand"""
    network = _one_network(data)
    with torch.no_grad():
        return network(data.test).softmax(1)


def laplace_torch(data: Images, seed: int) -> Probabilities:
    """laplace-torch: last layer, of that network"""
    from laplace import Laplace

    network = _one_network(data)
    loader = DataLoader(TensorDataset(data.train, data.labels), data.batch, shuffle=True)
    posterior = Laplace(network, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    posterior.fit(loader)
    posterior.optimize_prior_precision(method="marglik")
    return posterior(data.test).detach()


def mixupmp_from_network(data: Images, seed: int) -> Probabilities:
    """mixupmp: heads on that network"""
    from mixupmp import MixupMPClassifier

    network = _one_network(data)
    return (
        MixupMPClassifier.from_network(network, random_state=seed).fit(data.train, data.labels).predict_proba(data.test)
    )


def laplace_torch_validated(data: Images, seed: int) -> Probabilities:
    """laplace-torch: last layer, prior chosen on a quarter of the rows, of a network trained on the others"""
    from laplace import Laplace

    fitted, held = data.without_quarter()
    network = _one_network(fitted)
    loader = DataLoader(TensorDataset(fitted.train, fitted.labels), data.batch, shuffle=True)
    validation = DataLoader(TensorDataset(held.train, held.labels), data.batch)
    posterior = Laplace(network, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    posterior.fit(loader)
    posterior.optimize_prior_precision(
        method="gridsearch", pred_type="glm", link_approx="probit", val_loader=validation, progress_bar=False
    )
    return posterior(data.test, pred_type="glm", link_approx="probit").detach()


def mixupmp_from_network_validated(data: Images, seed: int) -> Probabilities:
    """mixupmp: heads on that network, settings and temperature from the same quarter"""
    from mixupmp import MixupMPClassifier

    fitted, held = data.without_quarter()
    model = MixupMPClassifier.from_network(_one_network(fitted), random_state=seed)
    model.fit(fitted.train, fitted.labels, validation=(held.train, held.labels))
    return model.predict_proba(data.test)


def mixupmp_default(data: Images, seed: int) -> Probabilities:
    """mixupmp: default settings, r chosen, calibrated"""
    from mixupmp import MixupMPClassifier

    return MixupMPClassifier(random_state=seed).fit(data.train, data.labels).predict_proba(data.test)


def table_mixupmp(data: Table, seed: int) -> Probabilities:
    """mixupmp: default settings"""
    from mixupmp import MixupMPClassifier

    return MixupMPClassifier(random_state=seed).fit(data.train, data.labels).predict_proba(data.test)


def table_tabm(data: Table, seed: int) -> Probabilities:
    """pytabkit: TabM, tuned defaults"""
    from pytabkit import TabM_D_Classifier

    model = TabM_D_Classifier(random_state=seed, device="cpu", n_threads=1)
    return model.fit(data.train, data.labels).predict_proba(data.test)


def table_bde(data: Table, seed: int) -> Probabilities:
    """sklearn-contrib-bde: default settings, standardized columns"""
    from bde import BdeClassifier
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(data.train)
    model = BdeClassifier(seed=seed).fit(scaler.transform(data.train), data.labels)
    return np.asarray(model.predict_proba(scaler.transform(data.test)))


def table_bde_documented(data: Table, seed: int) -> Probabilities:
    """sklearn-contrib-bde: network and sampler as in its README, standardized columns"""
    from bde import BdeClassifier
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(data.train)
    sampler = {"warmup_steps": 5000, "n_samples": 2000, "n_thinning": 2}
    network = {"n_members": 4, "hidden_layers": [16, 16], "epochs": 1000, "patience": 10, "lr": 1e-3}
    model = BdeClassifier(seed=seed, **network, **sampler).fit(scaler.transform(data.train), data.labels)
    return np.asarray(model.predict_proba(scaler.transform(data.test)))


def table_boosting(data: Table, seed: int) -> Probabilities:
    """scikit-learn: gradient boosting"""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed).fit(data.train, data.labels).predict_proba(data.test)


IMAGE_CONTENDERS = {
    function.__name__: function
    for function in (
        mixupmp_ratio_one, torch_uncertainty, hand_written, mixupmp_ratio_zero, one_network, laplace_torch,
        mixupmp_from_network, laplace_torch_validated, mixupmp_from_network_validated, mixupmp_default,
    )
}  # fmt: skip
TABLE_CONTENDERS = {
    function.__name__: function
    for function in (table_mixupmp, table_tabm, table_bde, table_bde_documented, table_boosting)
}
