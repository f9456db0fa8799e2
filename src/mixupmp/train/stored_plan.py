"""A plan on disk, for worker processes: its tensors as files they all map, the rest pickled by value.

Mapped files are shared by the operating system, so a second worker costs no second copy of the data, and there is no
limit on shared memory to run into. A stored plan is for processes of one user on one machine or one cluster: it is
never read from a run folder that came from elsewhere.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows


class CannotBeSent(InvalidArgument):
    """Something of a plan cannot be pickled, not even by value."""


def store(plan: Plan, folder: Path) -> Path:
    """Write a plan for workers; returns the file they are to be given."""
    if isinstance(plan.train, Rows):
        for name in ("inputs", "labels", "weights"):
            tensor = getattr(plan.train, name)
            if tensor is not None:
                np.save(folder / f"{name}.npy", tensor.contiguous().cpu().numpy())
        empty = torch.empty(0, *plan.task.input_shape)
        plan = with_train(plan, Rows(empty, torch.empty(0, dtype=torch.int64)))
    path = folder / "plan.pickle"
    try:
        path.write_bytes(cloudpickle.dumps(plan))
    except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
        must = "one that can be sent to another process"
        raise CannotBeSent("plan", plan.method.name, must, f"{error}. The engine 'inline' needs no other.") from error
    return path


def fetch(path: Path) -> Plan:
    """Read a plan that `store` wrote."""
    plan: Plan = pickle.loads(path.read_bytes())
    if not (path.parent / "inputs.npy").exists():
        return plan
    inputs, labels = _mapped(path.parent / "inputs.npy"), _mapped(path.parent / "labels.npy")
    weights = path.parent / "weights.npy"
    return with_train(plan, Rows(inputs, labels, _mapped(weights) if weights.exists() else None))


def with_train(plan: Plan, train: Rows) -> Plan:
    """The plan with other rows in the place of its own, unchecked."""
    # The rows were checked when the plan was made; neither placeholder nor map needs that again.
    changed = copy.copy(plan)
    object.__setattr__(changed, "train", train)
    return changed


def _mapped(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
