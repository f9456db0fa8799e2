"""The demonstration: one network (NN), a deep ensemble (DE) and MixupMP on the embedded digits, over several seeds.

All three are this package's estimators with their default settings: what is left open (for MixupMP r and alpha) and a
temperature are chosen on rows that each holds out from its own training rows. It stands in the regime in which there is
something to gain: few rows, and networks that interpolate them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from importlib.util import find_spec
from operator import add

from mixupmp import data
from mixupmp.core.errors import check
from mixupmp.core.rows import Rows
from mixupmp.core.threads import cores
from mixupmp.data.corruptions import corrupt
from mixupmp.decide.calibrators import pool
from mixupmp.estimators.base_classifier import BaseClassifier
from mixupmp.estimators.mixup_mp import DeepEnsembleClassifier, MixupMPClassifier
from mixupmp.metrics import Result, Scores
from mixupmp.metrics.catalog import CALIBRATED
from mixupmp.metrics.comparison import Summary, difference, summarize
from mixupmp.train.pool import Call, run
from mixupmp.train.progress import Callback
from mixupmp.train.settings import fewer_rows

Classifiers = Mapping[str, Callable[..., BaseClassifier]]
CLASSIFIERS: Classifiers = {
    "NN": partial(DeepEnsembleClassifier, members=1),
    "DE": DeepEnsembleClassifier,
    "MixupMP": MixupMPClassifier,
}
CLEAN = "clean"
# All corruptions of CIFAR-C but `saturate`, which leaves gray images as they are.
FAMILIES: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("gaussian_blur", "glass_blur", "defocus_blur", "motion_blur", "zoom_blur"),
    "weather": ("fog", "frost", "snow", "spatter"),
    "digital": ("contrast", "brightness", "jpeg_compression", "pixelate", "elastic_transform"),
}
if find_spec("PIL") is None:  # an extra, which compresses JPEGs
    FAMILIES["digital"] = tuple(name for name in FAMILIES["digital"] if name != "jpeg_compression")


@dataclass(frozen=True)
class Demo:
    """What is compared, and on what."""

    rows: int = 200
    seeds: tuple[int, ...] = (0, 1, 2)
    severity: int = 4

    def __post_init__(self) -> None:
        check(len(self.seeds) >= 1, "seeds", self.seeds, "at least one seed")

    @property
    def fits(self) -> int:
        """How many classifiers are fitted."""
        return len(CLASSIFIERS) * len(self.seeds)


@dataclass(frozen=True)
class SeedOutcome:
    """One seed: the classifiers, and their scores on test rows, by classifier and set of rows."""

    seed: int
    classifiers: Mapping[str, BaseClassifier]
    raw: Mapping[tuple[str, str], Scores]
    calibrated: Mapping[tuple[str, str], Scores]


@dataclass(frozen=True)
class Outcome:
    """Everything that was measured."""

    demo: Demo
    trials: tuple[SeedOutcome, ...]

    def summaries(self, name: str, rows: str) -> dict[str, Summary]:
        """Means and standard errors over seeds; those after calibration end in `CALIBRATED`."""
        return summarize([_both(trial, (name, rows)) for trial in self.trials])

    def pooled(self, name: str, sets: Sequence[str]) -> Result:
        """Calibrated, all seeds and several sets of rows as one."""
        return reduce(add, (trial.calibrated[name, rows] for trial in self.trials for rows in sets)).result()

    def difference(self, metric: str, rows: str, ours: str = "MixupMP", rival: str = "DE") -> Summary:
        """A classifier's metric minus its rival's, paired by seed."""
        return difference(self.summaries(ours, rows)[metric], self.summaries(rival, rows)[metric])


def _both(trial: SeedOutcome, key: tuple[str, str]) -> dict[str, float]:
    raw, calibrated = trial.raw[key].result().values, trial.calibrated[key].result().values
    return {**raw, **{f"{name}{CALIBRATED}": value for name, value in calibrated.items()}}


def run_demo(
    demo: Demo, progress: Callable[[str], None] = lambda done: None, classifiers: Classifiers = CLASSIFIERS
) -> Outcome:
    """Fit everything, side by side in worker processes, and measure it. All seeds share the test rows.

    `progress` is called with what was fitted, as each fit ends.
    """
    sets = corrupted_sets(data.load("digits").test, demo.severity)
    wanted = [(name, seed) for name in reversed(list(classifiers)) for seed in demo.seeds]  # longest first
    calls = [Call(_fitted, (classifiers[name], demo.rows, seed), f"{name}, seed {seed}") for name, seed in wanted]
    workers = min(cores(), len(calls))
    found = run(calls, workers=workers, on_result=lambda index, _: progress(calls[index].label))
    fitted = dict(zip(wanted, map(pickle.loads, found), strict=True))
    by_seed = ({name: fitted[name, seed] for name in classifiers} for seed in demo.seeds)
    return Outcome(demo, tuple(_measured(seed, own, sets) for seed, own in zip(demo.seeds, by_seed, strict=True)))


def _fitted(_: Callback, classifier: Callable[..., BaseClassifier], rows: int, seed: int) -> bytes:
    """The fitted classifier, pickled: torch sends tensors by shared memory, which ends with the worker."""
    train = fewer_rows(data.load("digits"), rows, seed).train
    return pickle.dumps(classifier(random_state=seed).fit(train.inputs, train.labels))


def corrupted_sets(test: Rows, severity: int) -> dict[str, Rows]:
    """The clean test rows, and for each family a copy in which its corruptions take turns."""
    sets = {CLEAN: test}
    for family, names in FAMILIES.items():
        images = test.inputs.clone()
        for turn, name in enumerate(names):
            images[turn :: len(names)] = corrupt(test.inputs[turn :: len(names)], name, severity)
        sets[family] = Rows(images, test.labels)
    return sets


def _measured(seed: int, classifiers: dict[str, BaseClassifier], sets: dict[str, Rows]) -> SeedOutcome:
    raw, calibrated = {}, {}
    for name, classifier in classifiers.items():
        for key, rows in sets.items():
            members = classifier.posterior_.member_probabilities(rows.inputs)
            both = members, pool(members, classifier.calibrator_)
            raw[name, key], calibrated[name, key] = (Scores(p.shape[-1]).update(p, rows.labels) for p in both)
    return SeedOutcome(seed, classifiers, raw, calibrated)
