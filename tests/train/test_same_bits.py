"""The weights of every method by every engine, against those that were stored: a change of the code must keep them.

The fits run with the arithmetic that all x86-64 processors have in common. Where torch is another version, or its
arithmetic another all the same, the stored outputs are compared to within rounding in place of the hashes.

An intended change is stored by `python tests/train/test_same_bits.py --store`, and said in CHANGELOG.md.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STORED = Path(__file__).with_name("same_bits.json")
COMMON = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def measure() -> dict[str, object]:
    """For each fit, the hashes of its members' weights and of their outputs, and some of these outputs."""
    import torch

    from mixupmp import Recipe, fit, plan_for
    from mixupmp.core.methods import ALL_METHODS, ca_mixup_mc, laplace, mixup_mp
    from mixupmp.data import load
    from mixupmp.train.vectorized.group import unsuited, vectorizable

    digits = load("digits")
    digits = digits.with_train(digits.train.take(torch.arange(200)))
    recipe = Recipe(epochs=2, batch_size=32, learning_rate=0.05)
    found: dict[str, object] = {"torch": torch.__version__, "arithmetic": _arithmetic()}
    plans = {}
    for make in ALL_METHODS:
        if make is laplace and importlib.util.find_spec("laplace") is None:
            continue
        method = make(validation_fraction=0.2) if make is ca_mixup_mc else make()
        plans[f"{method.name} mlp"] = plan_for(digits, method, "mlp", recipe, seed=3)
    plans["mixup-mp cnn"] = plan_for(digits, mixup_mp(1.0, 2.0, 2), "cnn", recipe, seed=3)
    for name, plan in plans.items():
        engines = ["inline"]
        if unsuited(plan) is None and vectorizable(plan.template, plan.task.input_shape):
            engines.append("vectorized")
        if plan.method.sampler.networks > 1:
            engines.append("processes")
        for engine in engines:
            posterior = fit(plan, engine=engine)  # type: ignore[arg-type]
            weights = [value for network in posterior.networks for value in network.state_dict().values()]
            outputs = posterior.member_outputs(digits.test.inputs[:8])
            some = outputs[:, 0].flatten()[::7].tolist()
            found[f"{name} {engine}"] = [_hash(weights), _hash([outputs]), [round(value, 6) for value in some]]
    return found


def _hash(tensors: list) -> str:  # type: ignore[type-arg]
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _arithmetic() -> str:
    """A hash of the operations that a fit is made of, on fixed numbers."""
    import torch
    from torch.nn import functional

    numbers = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    convolved = functional.conv2d(numbers[None, None], numbers[:4, :25].reshape(4, 1, 5, 5))
    batched = torch.bmm(numbers.reshape(4, 16, 64), numbers.reshape(4, 64, 16))
    return _hash([numbers @ numbers, numbers.softmax(-1), numbers.exp(), numbers.mean(0), convolved, batched])


@pytest.fixture(scope="module")
def measured() -> dict[str, object]:
    """In a process of its own, as the arithmetic is chosen when torch is loaded."""
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, env={**os.environ, **COMMON}, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_method_has_the_stored_bits_by_every_engine(measured: dict[str, object]) -> None:
    stored = json.loads(STORED.read_text())
    if "laplace mlp inline" not in measured:  # needs an extra
        del stored["laplace mlp inline"]
    assert measured.keys() == stored.keys()
    if all(measured[key] == stored[key] for key in ("torch", "arithmetic")):
        assert {name for name in stored if measured[name] != stored[name]} == set()
        return
    for name in stored.keys() - {"torch", "arithmetic"}:
        assert measured[name][2] == pytest.approx(stored[name][2], rel=1e-2, abs=1e-3), name  # type: ignore[index]


if __name__ == "__main__":
    if "--store" in sys.argv:
        os.execve(sys.executable, [sys.executable, __file__, "--write"], {**os.environ, **COMMON})
    result = measure()
    if "--write" in sys.argv:
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in result.items()]
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(json.dumps(result))
