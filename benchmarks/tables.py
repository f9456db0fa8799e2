"""Rows about tables: the default classifier, and members that share weights, against what one would do otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import Row, interleaved
from benchmarks.usual import with_blends
from mixupmp import Dataset, MixupMPClassifier, Rows, Standardize, mixup_mp, plan_for, shared_mixup_mp
from mixupmp.networks import TabularMLP, quantile_edges
from mixupmp.train.plans import SHARED_HIDDEN, recipe_for
from mixupmp.train.run import fit

Table = tuple[NDArray[np.float32], NDArray[np.int64]]


def table(rows: int) -> tuple[Table, Table]:
    """Training rows, and as many others: 20 columns, ten of which say something of two classes."""
    inputs, labels = make_classification(2 * rows, 20, n_informative=10, flip_y=0.05, random_state=0)
    inputs = inputs.astype(np.float32)
    return (inputs[:rows], labels[:rows]), (inputs[rows:], labels[rows:])


def default_fit(quick: bool) -> Iterator[Row]:
    """The default classifier on 1,000 x 20: the whole of it, choosing included, against one ensemble's training."""
    train, test = table(300 if quick else 1_000)
    model = MixupMPClassifier(random_state=0).fit(*train)
    network, boosting = MLPClassifier(random_state=0, max_iter=1000), HistGradientBoostingClassifier(random_state=0)
    rivals = (
        lambda: MixupMPClassifier(random_state=0).fit(*train),
        lambda: plain_ensemble(*train, model.epochs_, model.ratio_),
        lambda: network.fit(*train),
        lambda: boosting.fit(*train),
    )
    ours, plain, *others = interleaved(1 if quick else 3, *rivals)
    work = f"default classifier on {len(train[0])} x 20, choosing included"
    about = {"r": str(model.ratio_), "epochs": model.epochs_}
    yield Row(work, "plain loop of 4 networks, same length", ours, plain, "at most 3x", at_most=3, details=about)
    nll = log_loss(test[1], model.predict_proba(test[0]))
    named = {"scikit-learn's MLPClassifier": network, "HistGradientBoosting": boosting}
    for (name, rival), seconds in zip(named.items(), others, strict=True):
        scores = {"nll": nll, "their nll": log_loss(test[1], rival.predict_proba(test[0]))}
        yield Row(work, name, ours, seconds, "none: NLL in the JSON", at_least=0, details=scores)


def plain_ensemble(
    inputs: NDArray[np.float32], labels: NDArray[np.int64], epochs: int, ratio: float, members: int = 4
) -> None:
    """Networks of the default's kind, one after another, as the usual loop trains them."""
    values, classes = torch.from_numpy(inputs), torch.from_numpy(labels)
    values = Standardize.of(values)(values)
    edges = quantile_edges(values)
    for member in range(members):
        torch.manual_seed(member)
        network = TabularMLP(edges, 2, SHARED_HIDDEN)
        optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
        loader = DataLoader(TensorDataset(values, classes), batch_size=64, shuffle=True)
        for _ in range(epochs):
            for batch, own in loader:
                targets = functional.one_hot(own, 2).float()
                rows, wanted = with_blends(batch, targets, 0.4) if ratio else (batch, targets)
                chosen = slice(len(batch), None) if ratio == inf else slice(None)
                optimizer.zero_grad()
                functional.cross_entropy(network(rows[chosen]), wanted[chosen]).backward()
                optimizer.step()


def shared_members(quick: bool) -> Iterator[Row]:
    """16 members that share weights against 16 of the same network: a usual loop, and two engines of this package."""
    (inputs, labels), _ = table(1_000)
    rows = Rows(torch.from_numpy(inputs), torch.from_numpy(labels))
    data = Dataset("table", rows, rows, ("0", "1"), Standardize.of(rows.inputs))
    recipe = recipe_for(len(rows), "shared", {"epochs": 2 if quick else 5})
    for ratio in (0.0, 1.0):
        network = {"name": "tabular", "hidden": SHARED_HIDDEN, "dropout": 0.1}
        shared, separate = (
            plan_for(data, method, network, recipe)
            for method in (shared_mixup_mp(ratio, 0.4, 16), mixup_mp(ratio, 0.4, 16))
        )
        fit(shared)
        usual = partial(plain_ensemble, inputs, labels, recipe.epochs, ratio, 16)
        rivals = partial(fit, shared), usual, partial(fit, separate, engine="inline"), partial(fit, separate)
        ours, plain, inline, auto = interleaved(2 if quick else 5, *rivals)
        work = f"16 members that share weights, 1,000 x 20, r={ratio:g}"
        yield Row(work, "plain loop of 16 networks, one after another", ours, plain, "5x", at_least=5)
        yield Row(work, "16 separate members, inline", ours, inline, "5x", at_least=5)
        yield Row(work, "16 separate members, the engine that auto takes", ours, auto, "none", at_least=0)
