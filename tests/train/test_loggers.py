"""What a logger is told, in which order, and what TensorBoard then holds."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mixupmp import Dataset, Recipe, mixup_mp, plan_for
from mixupmp.core.member_summary import MemberSummary
from mixupmp.estimators import MixupMPClassifier
from mixupmp.networks import MLP, Network
from mixupmp.train.loggers import TensorBoardLogger, disagreement, log_posterior, logging_to
from mixupmp.train.progress import Callback
from mixupmp.train.run import Engine, fit

RECIPE = Recipe(epochs=3, batch_size=20, learning_rate=0.05)


class Listener:
    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.logged: dict[str, dict[int, float]] = {}
        self.results: dict[str, float] | None = None

    def start(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def log(self, values: dict[str, float], step: int) -> None:
        assert self.results is None
        for name, value in values.items():
            self.logged.setdefault(name, {})[step] = value

    def finish(self, results: dict[str, float]) -> None:
        self.results = results


def test_losses_validation_and_disagreement_are_told(table: Dataset) -> None:
    dataset, listener = table, Listener()
    plan = plan_for(dataset, mixup_mp(members=2), lambda: MLP(4, 3, (8,)), RECIPE, validation=dataset.test)
    posterior = fit(plan, engine="inline", progress=logging_to(listener, plan))
    log_posterior(listener, posterior, dataset.test)
    json.dumps(listener.settings)
    assert listener.settings["spec"]["seed"] == 0
    for member in (0, 1):
        assert list(listener.logged[f"member {member}/epoch loss"]) == [3, 6, 9]
        assert list(listener.logged[f"member {member}/validation nll"]) == [3, 6, 9]
        assert list(listener.logged[f"member {member}/validation ece"]) == [3, 6, 9]
    assert list(listener.logged["posterior/ece"]) == [1, 2]
    assert listener.logged["posterior/disagreement"][1] == 0
    assert listener.logged["posterior/disagreement"][2] > 0
    assert listener.results is not None
    assert listener.results["posterior/nll"] == listener.logged["posterior/nll"][2]


class Hasty(Listener):
    """Notes how many members were done when each record came."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def log(self, values: dict[str, float], step: int) -> None:
        super().log(values, step)
        self.order += [f"{name} {step}" for name in values if "validation nll" in name or "disagreement in" in name]


class Ends(Callback):
    def __init__(self, order: list[str]) -> None:
        self.order = order

    def on_member_end(self, summary: MemberSummary) -> None:
        self.order.append(f"member {summary.member} done")


@pytest.mark.parametrize("engine", ["inline", "vectorized", "processes"])
def test_epochs_are_told_while_members_train(table: Dataset, engine: Engine) -> None:
    listener = Hasty()
    recipe = replace(RECIPE, epochs=4)
    plan = plan_for(table, mixup_mp(members=2), Network("mixupmp.networks.MLP", {"features": 4, "outputs": 3}), recipe,
                    validation=table.test)  # fmt: skip
    posterior = fit(plan, engine=engine, progress=logging_to(listener, plan, Ends(listener.order)))
    for member in (0, 1):
        told = [listener.order.index(f"member {member}/validation nll {step}") for step in (3, 6, 9, 12)]
        assert told == sorted(told)
        assert told[-1] < listener.order.index(f"member {member} done")
    assert sorted(listener.logged["posterior/disagreement in training"]) == [3, 6, 9, 12]
    assert all("votes" not in record for summary in posterior.summaries for record in summary.history)


def test_disagreement_is_the_share_of_pairs_that_differ() -> None:
    assert disagreement([[0, 1, 2, 3], [0, 1, 2, 0]]) == 0.25
    assert disagreement([[0, 0], [0, 1], [1, 1]]) == pytest.approx((0.5 + 1 + 0.5) / 3)


def test_tensorboard_reads_what_was_written(table: Dataset, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path)
    model = MixupMPClassifier(ratio=1, members=2, recipe=RECIPE, random_state=0, logger=logger)
    model.fit(table.train.inputs, table.train.labels, validation=(table.test.inputs, table.test.labels))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {"member_0/epoch_loss", "member_1/validation_nll", "posterior/ece", "posterior/disagreement"} <= set(tags)
    assert [event.step for event in events.Scalars("posterior/nll")] == [1, 2]
    pickle.dumps(model)
