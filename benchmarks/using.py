"""Rows about everything but training: augmentation, prediction, metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import Row, interleaved, on_threads
from benchmarks.training import images
from benchmarks.usual import PlainCNN, per_image_augmented, with_blends
from mixupmp import Categorical, Standardize, Task
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.kernels import cifar_kernel
from mixupmp.core.methods import mixup_mp
from mixupmp.core.predictive import TrainingData, simulate
from mixupmp.metrics import Scores
from mixupmp.networks import named


def augmentation(quick: bool) -> Iterator[Row]:
    """Crop, flip, scale and mix 50,000 CIFAR-sized images."""
    rows = 5_000 if quick else 50_000
    data = images(rows, (3, 32, 32))
    predictive = mixup_mp(1.0, 1.0, kernel=cifar_kernel()).predictive
    generator = torch.Generator().manual_seed(0)
    future = simulate(predictive, TrainingData(data.train, Categorical(10), data.standardize), None, generator)
    chunks = torch.randperm(rows).split(128)
    targets = functional.one_hot(data.train.labels, 10).float()
    few = 1_000  # of the slow rival; its time is per image

    def ours() -> None:
        for _ in future.batches(chunks, generator):
            pass

    def per_image() -> None:
        made = torch.stack(list(per_image_augmented(data.train.inputs[:few], (0.2860,) * 3, (0.3530,) * 3)))
        for batch, classes in zip(made.split(128), targets[:few].split(128), strict=True):
            with_blends(batch, classes)

    kornia = _kornia(data.train.inputs, targets, chunks)
    fast, slow, rival = interleaved(3, *(on_threads(1, work) for work in (ours, per_image, kornia)))
    what = f"augmentation + mixing of {rows:,} CIFAR-sized images"
    yield Row(what, "per-image PIL transforms", fast, slow * rows / few, "20x", at_least=20)
    yield Row(what, "kornia", fast, rival, "3x", at_least=3)


def _kornia(inputs: Tensor, targets: Tensor, chunks: tuple[Tensor, ...]) -> Callable[[], None]:
    from kornia import augmentation as ka

    transforms = ka.AugmentationSequential(
        ka.RandomCrop((32, 32), padding=4), ka.RandomHorizontalFlip(p=0.5), ka.Normalize(0.2860, 0.3530),
        data_keys=["input"],
    )  # fmt: skip

    def work() -> None:
        for chunk in chunks:
            with_blends(transforms(inputs[chunk].float().div_(255)), targets[chunk])

    return work


def prediction(quick: bool) -> Iterator[Row]:
    """B=4 CNNs on many images, and on one."""
    data = images(2_000 if quick else 10_000, (1, 28, 28))
    task = Task(Categorical(10), data.standardize, (1, 28, 28))
    plain = [PlainCNN().eval() for _ in range(4)]
    networks = [named("cnn", (1, 28, 28), 10)() for _ in plain]
    for network, other in zip(networks, plain, strict=True):
        network.load_state_dict(other.state_dict())
    posterior = EnsemblePosterior(networks, task, 4)
    usual = Standardize(data.standardize.mean, data.standardize.deviation)

    def loop(inputs: Tensor) -> Tensor:
        with torch.no_grad():
            scaled = usual(inputs)
            return torch.stack([
                torch.cat([network(block) for block in scaled.split(512)]).softmax(-1) for network in plain
            ])  # fmt: skip

    one = data.train.inputs[:1]
    assert torch.allclose(posterior.member_probabilities(one), loop(one), atol=1e-6)
    for what, inputs, times, goal in (("10,000 images", data.train.inputs, 1, 1.3), ("one image", one, 300, 2.0)):
        ours, theirs = interleaved(
            5,
            on_threads(2, lambda x=inputs, n=times: [posterior.member_probabilities(x) for _ in range(n)]),  # type: ignore[misc]
            on_threads(2, lambda x=inputs, n=times: [loop(x) for _ in range(n)]),  # type: ignore[misc]
        )
        name = f"predict, B=4 CNN, {what if what == 'one image' else f'{len(inputs):,} images'}"
        yield Row(name, "looping over the members", ours / times, theirs / times, f"{goal}x", at_least=goal)


def metrics(quick: bool) -> Iterator[Row]:
    """ECE, NLL, entropy and accuracy over streamed probabilities."""
    from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

    rows, block = 100_000 if quick else 1_000_000, 10_000
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(rows, 10, generator=generator).mul_(3).softmax(-1)
    labels = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)

    def ours() -> float:
        scores = Scores(10)
        for part, truth in zip(probabilities.split(block), labels.split(block), strict=True):
            scores.update(part, truth)
        return float(scores.result().ece)

    def theirs() -> float:
        calibration = MulticlassCalibrationError(10, n_bins=15, norm="l1", validate_args=False)
        accuracy = MulticlassAccuracy(10, average="micro", validate_args=False)
        nll = entropy = 0.0
        for part, truth in zip(probabilities.split(block), labels.split(block), strict=True):
            calibration.update(part, truth)
            accuracy.update(part, truth)
            logs = part.clamp_min(1e-38).log()
            nll += float(functional.nll_loss(logs, truth, reduction="sum"))
            entropy += float(torch.special.entr(part).sum())
        accuracy.compute()
        return float(calibration.compute())

    assert abs(ours() - theirs()) < 1e-5
    fast, slow = interleaved(3, on_threads(1, ours), on_threads(1, theirs))
    yield Row(f"ECE/NLL/entropy over {rows:,} x 10, streamed", "torchmetrics", fast, slow, "2x", at_least=2)
