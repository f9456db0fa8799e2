"""Channels-last memory is used where it is safe and faster, and never changes what is computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mixupmp import Categorical, Plan, Recipe, Rows, Task, deep_ensemble
from mixupmp.core.rows import Standardize
from mixupmp.networks.cnn import CNN
from mixupmp.networks.resnet import ResNet18, WideResNet
from mixupmp.train.factory import memory_format
from mixupmp.train.run import fit

HERE = Path(__file__).parent
# Odd channel counts, with and without groups, around the blocks of 8 and 16 channels that vector units work in.
SHAPES = [(1, 4, 1), (3, 8, 1), (4, 8, 1), (6, 6, 6), (7, 9, 1), (8, 16, 2), (16, 24, 1), (17, 16, 1)]
CASES = [
    {"channels": channels, "outputs": outputs, "groups": groups, "kernel": kernel, "stride": stride, "size": 56}
    for (channels, outputs, groups), kernel, stride in product(SHAPES, (1, 3, 5), (1, 2))
]


def isolated(script: str, arguments: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, script, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process for each case is forked")
def test_gradients_are_those_of_plain_memory_for_every_kind_of_convolution() -> None:
    """Before the rule, strided 1x1 convolutions of few channels wrote past a buffer of oneDNN and died here."""
    done = isolated(str(HERE / "convolutions.py"), [], "\n".join(json.dumps(case) for case in CASES))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(CASES)
    failed = [(case, code) for case, (_, code) in zip(CASES, answers, strict=True) if code != 0]
    assert not failed, "3: other gradients; negative: killed by that signal"
    assert sum(used for used, _ in answers) > len(CASES) / 2  # most are safe, and were compared


EXAMPLE = """
import numpy as np
from mixupmp import MixupMPClassifier
from mixupmp.networks import ResNet18
for size in (28, 56):
    images = np.random.default_rng(0).random((48, size, size), dtype=np.float32)
    model = MixupMPClassifier(ratio=1.0, network=lambda: ResNet18(1, 3, width=4), members=1, epochs=1)
    model.fit(images, np.arange(48) % 3)
    assert np.isfinite(model.predict_proba(images)).all()
"""


def test_a_narrow_residual_network_is_trained(tmp_path: Path) -> None:
    script = tmp_path / "narrow.py"
    script.write_text(EXAMPLE)
    done = isolated(str(script), [])
    assert done.returncode == 0, done.stderr


class Video(nn.Module):
    """A 3-d convolution over images, seen as one short film."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 3 * 64, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.unsqueeze(1))


def test_a_network_of_3d_convolutions_is_trained() -> None:
    rows = Rows(torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 2)
    task = Task(Categorical(2), Standardize(), (3, 8, 8))
    plan = Plan(deep_ensemble(1), Video, rows, task, Recipe(epochs=1, batch_size=8, learning_rate=0.01))
    assert fit(plan, engine="inline").members == 1


def test_the_rule() -> None:
    last, plain = torch.channels_last, torch.contiguous_format
    assert memory_format(CNN(1, (28, 28), 10)) is last
    assert memory_format(ResNet18(1, 10)) is last
    assert memory_format(ResNet18(3, 10, width=16)) is last
    assert memory_format(WideResNet(3, 10, 10, 2)) is last
    assert memory_format(ResNet18(1, 10, width=8)) is plain  # 16 channels are a block of AVX-512
    assert memory_format(nn.Sequential(nn.Flatten(), nn.Linear(4, 2))) is plain  # nothing to gain
    assert memory_format(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 3, 1, 2))) is plain  # not known
    assert memory_format(Video()) is plain
