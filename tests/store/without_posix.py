"""Fit, interrupt, resume, save and load where the system lacks what Windows lacks. Usage: ... FOLDER

A program of its own: `fcntl` and flags of `os` are taken away before anything of this package is imported.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios")))  # type: ignore[arg-type]
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "fork", "getuid", "sched_getaffinity", "killpg"):
    delattr(os, _name)
os.supports_dir_fd.clear()


def refuse_descriptors(name: str) -> None:
    """Let a function of `os` refuse descriptors of directories."""
    plain = getattr(os, name)

    def operation(*arguments: Any, **options: Any) -> Any:
        if any(value is not None for key, value in options.items() if key.endswith("dir_fd")):
            raise NotImplementedError("dir_fd unavailable on this platform")
        if name == "open" and os.path.isdir(arguments[0]):
            raise PermissionError(13, "Permission denied", arguments[0])
        return plain(*arguments, **options)

    setattr(os, name, operation)


for _name in ("open", "stat", "mkdir", "unlink", "rmdir", "rename", "replace"):
    refuse_descriptors(_name)
warnings.filterwarnings("ignore", message="only soft file lock")

from mixupmp import CheckpointInterval, MixupMPClassifier, Recipe, deep_ensemble, load, plan_for  # noqa: E402
from mixupmp.core.rows import Dataset, Rows  # noqa: E402
from mixupmp.train.progress import Callback, EpochRecord  # noqa: E402
from mixupmp.train.run import fit  # noqa: E402


class Interrupt(Callback):
    """Ctrl-C in the second of two members."""

    epochs = 0

    def on_epoch_end(self, record: EpochRecord) -> None:
        self.epochs += 1
        if self.epochs == 5:
            raise KeyboardInterrupt


def weights(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "members").glob("*.safetensors"))]


def main(folder: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    rows = Rows(inputs, labels)
    recipe = Recipe(epochs=3, batch_size=16, learning_rate=0.05)
    plan = plan_for(Dataset("table", rows, rows, ("a", "b", "c")), deep_ensemble(2), "mlp", recipe)
    each_epoch = CheckpointInterval(epochs=1)
    fit(plan, engine="inline", run=folder / "whole")
    try:
        fit(plan, engine="inline", run=folder / "run", checkpoints=each_epoch, progress=Interrupt())
    except KeyboardInterrupt:
        assert len(weights(folder / "run")) == 1
    fit(plan, engine="inline", run=folder / "run", checkpoints=each_epoch, resume=True)
    assert weights(folder / "run") == weights(folder / "whole")
    assert load(folder / "run").members == 2
    model = MixupMPClassifier(1.0, 1.0, members=2, recipe=recipe).fit(inputs.numpy(), labels.numpy())
    model.save(folder / "model")
    again = MixupMPClassifier.load(folder / "model")
    assert np.array_equal(again.predict_proba(inputs.numpy()), model.predict_proba(inputs.numpy()))
    print("resumed and loaded")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
