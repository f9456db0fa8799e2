"""The experiment on intents: what counts as recall, and how its threshold is chosen."""

from __future__ import annotations

import torch

from mixupmp.paper.experiments.clinc import accepted, best_threshold, made_up, prepared, recall


def test_recall_is_taken_at_the_threshold_of_the_validation_sentences() -> None:
    known = torch.arange(101.0)
    assert recall(known, torch.tensor([94.0, 96.0, 99.0, 1.0]), 0.05) == 0.5
    assert recall(known, torch.tensor([94.0, 96.0, 99.0, 1.0]), 0.1) == 0.75


def test_the_threshold_gets_most_validation_sentences_right() -> None:
    validation = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.55, 0.45]])
    labels = torch.tensor([0, 1, 1])  # the last one is wrong anyway
    strangers = torch.tensor([[0.6, 0.4], [0.5, 0.5]])
    threshold = best_threshold(validation, labels, strangers)
    assert 0.6 < threshold <= 0.7
    assert accepted(validation, labels, threshold) == 2 / 3
    assert accepted(validation, labels, 0.8) == 1 / 3


def test_the_vocabulary_is_that_of_the_training_sentences() -> None:
    dataset, held, strangers = prepared(made_up(intents=3, each=4))
    assert (len(dataset.train), len(dataset.test), len(held), len(strangers)) == (12, 30, 30, 20)
    assert dataset.outside is not None
    assert bool((dataset.outside == 1).any())  # fillers that were never seen in training
