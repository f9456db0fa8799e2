"""Files of run folders, each sealed again after it was changed, so that what lies behind the hashes is reached."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from tests.fuzz.mutate import joined, mutated, mutated_json
from tests.fuzz.nearby import Near, near_json, near_lines, near_tensors, near_zip
from tests.fuzz.target import Check, Target

from mixupmp import (
    Recipe,
    deep_ensemble,
    load,
    mc_dropout,
    mixup_mp,
    plan_for,
    shared_mixup_mp,
)
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.spec import encode
from mixupmp.decide.calibrators import Calibrator, MemberCalibrators, Temperature, VectorScaling, calibrator_of
from mixupmp.store.card import model_card
from mixupmp.store.elsewhere import read_weights
from mixupmp.store.folder import RunFolder
from mixupmp.store.manifest import Sealed
from mixupmp.train.job import Job, fit_member
from mixupmp.train.member import MemberFit
from mixupmp.train.run import fit
from mixupmp.train.settings import read_toml, settings_from

TOML = b"""seed = 3
engine = "auto"
[data]
name = "digits"
rows = 500
[network]
name = "mlp"
hidden = [16, 16]
[method]
name = "mixup-mp"
ratio = inf
kernel = ["pad-crop", "flip"]
[recipe]
epochs = 10
learning_rate = 0.05
"""


def _plan(kind: str) -> Plan:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 3
    rows = Rows(torch.randn(24, 4, generator=generator) + labels[:, None], labels)
    dataset = Dataset("clusters", rows, rows, ("a", "b", "c"))
    methods = {
        "Ensemble": lambda: mixup_mp(1.0, 1.0, 2),
        "DropoutMasks": lambda: mc_dropout(2, 0.1),
        "SharedEnsemble": lambda: shared_mixup_mp(members=2),
        "plain": lambda: deep_ensemble(1),
    }
    return plan_for(dataset, methods[kind](), "mlp", Recipe(epochs=2, batch_size=16, learning_rate=0.01))


WEIGHTS = "members/000.safetensors"
CALIBRATORS: dict[str, Calibrator] = {
    "DropoutMasks": Temperature(1.5),
    "SharedEnsemble": VectorScaling((1.0, 2.0, 1.0), (0.0, 0.1, 0.0)),
    "Ensemble": MemberCalibrators((Temperature(2.0), Temperature(0.5))),
}
KINDS = tuple(CALIBRATORS)


@functools.cache
def _templates() -> dict[str, dict[str, bytes]]:
    """The files of small finished runs, by the sampler of their method."""
    found = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "run"
            fit(_plan(kind), engine="inline", run=folder)
            RunFolder(folder).add_evaluation("test rows", {"acc": 0.5, "nll": 1.0})
            config = json.loads((folder / "config.json").read_text())
            config["spec"]["calibrator"] = encode(CALIBRATORS[kind])
            RunFolder(folder).files.write_json("config.json", config)
            sealed = json.loads((folder / "manifest.json").read_text())
            sealed["config.json"] = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
            RunFolder(folder).files.write_json("manifest.json", sealed)
            files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
            found[kind] = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(files)}
    return found


def _seeds(name: str) -> list[bytes]:
    return [files[name] for files in _templates().values()]


def _use(folder: Path, name: str) -> None:
    """Everything that is done with a run from elsewhere, short of training, that reads the file of this name."""
    run = RunFolder(folder)
    if name != WEIGHTS:
        summaries = [summary for k in range(2) if (summary := run.summary(k)) is not None]
        model_card(run.config(), summaries, run.evaluations())
        settings_from(run.config()["spec"])
        calibrator_of(run.config())
    if name != "evaluations.jsonl":
        posterior = load(folder)
        probabilities = posterior.probabilities(torch.zeros(1, *posterior.task.input_shape))
        assert bool(torch.isfinite(probabilities).all()), "a loaded posterior predicts numbers that are not finite"


def _valid(name: str) -> list[bytes]:
    """Of the run that a content without a sampler's name is put into, and of all where it has one."""
    return _seeds(name) if name == "config.json" else [_templates()["Ensemble"][name]]


def _in_run(name: str, seal: bool = True) -> Callable[[Path], Check]:
    """The reader of a run in which the file `name` is the case."""

    def prepare(scratch: Path) -> Check:
        manifests = {}
        for kind, files in _templates().items():
            for path, content in files.items():
                (scratch / kind / path).parent.mkdir(parents=True, exist_ok=True)
                (scratch / kind / path).write_bytes(content)
            manifests[kind] = Sealed(scratch / kind).hashes

        def check(content: bytes) -> None:
            sampler = next((kind for kind in KINDS if f'"{kind}"'.encode() in content), "Ensemble")
            folder = scratch / sampler
            original = _templates()[sampler]
            (folder / name).write_bytes(content)
            if seal:
                hashes = manifests[sampler] | {name: hashlib.sha256(content).hexdigest()}
                (folder / "manifest.json").write_text(json.dumps(hashes))
            try:
                _use(folder, name)
            finally:
                (folder / name).write_bytes(original[name])
                (folder / "manifest.json").write_bytes(original["manifest.json"])

        return check

    return prepare


def _json_cases(name: str) -> st.SearchStrategy[bytes]:
    seeds = _seeds(name)
    return st.one_of(mutated_json(seeds), mutated_json(seeds), mutated_json(seeds), mutated(seeds))


def _tensor_parts(content: bytes) -> list[bytes]:
    (length,) = struct.unpack("<Q", content[:8])
    return [content[8 : 8 + length], content[8 + length :]]


def _join_tensors(parts: list[bytes]) -> bytes:
    header, *data = parts or [b""]
    return struct.pack("<Q", len(header)) + header + b"".join(data)


def _tensor_cases(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    parts = [_tensor_parts(seed) for seed in seeds]
    headers = [header for header, _ in parts]
    renamed = st.integers(0, len(parts) - 1).flatmap(
        lambda k: mutated_json([headers[k]]).map(lambda header: _join_tensors([header, parts[k][1]]))
    )
    return st.one_of(renamed, renamed, joined(parts, _join_tensors), mutated(seeds))


@functools.cache
def _checkpoints() -> list[bytes]:
    """States of a member after each of its steps."""
    kept: list[bytes] = []

    class Keep:
        def on_step(self, fit: MemberFit) -> None:
            kept.append(save(*fit.state()))

    MemberFit(_plan("plain"), 0).run(Keep())
    return kept[:-1]


def _checkpoint_cases() -> st.SearchStrategy[bytes]:
    """Checkpoints with any part changed, and whole ones whose text is that of another state."""
    header, tensors = _tensor_parts(_checkpoints()[1])
    document = json.loads(header)
    text = document["__metadata__"]["fit"].encode()

    def with_text(changed: bytes) -> bytes:
        metadata = {"fit": changed.decode("utf-8", "replace")}
        return _join_tensors([json.dumps(document | {"__metadata__": metadata}).encode(), tensors])

    def with_tensor(name: str, shape: list[int], dtype: torch.dtype) -> bytes:
        return save(load_tensors(_checkpoints()[1]) | {name: torch.ones(shape).to(dtype)}, document["__metadata__"])

    names = st.sampled_from(
        [*sorted(set(document) - {"__metadata__"}), "losses", "optimizer/0/other", "optimizer/99/x"]
    )
    dtypes = st.sampled_from((torch.float32, torch.float64, torch.uint8, torch.int64, torch.bool, torch.bfloat16))
    shaped = st.builds(with_tensor, names, st.lists(st.integers(0, 40), max_size=3), dtypes)
    missing = names.map(lambda name: {k: v for k, v in load_tensors(_checkpoints()[1]).items() if k != name})
    without = missing.map(lambda left: save(left, document["__metadata__"]))
    states = st.one_of(shaped, without, mutated_json([text]), mutated([text])).map(with_text)
    return st.one_of(states, states, _tensor_cases(_checkpoints()))


def _prepare_checkpoint(scratch: Path) -> Check:
    """A member goes on from the case, to its end."""
    plan = _plan("plain")

    def check(content: bytes) -> None:
        run = RunFolder(scratch / "run")
        shutil.rmtree(run.path, ignore_errors=True)
        place = run.path / "checkpoints" / "000"
        place.mkdir(parents=True)
        (place / f"{2:012d}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors").write_bytes(content)
        fit_member(Job(plan, (0,), run), 0)

    return check


def _prepare_toml(scratch: Path) -> Check:
    def check(content: bytes) -> None:
        (scratch / "settings.toml").write_bytes(content)
        settings_from(read_toml(scratch / "settings.toml"))

    return check


def _saved_by_torch() -> list[bytes]:
    """State dicts as `torch.save` writes them, today and before 1.6."""
    found = []
    for as_zip in (True, False):
        torch.save(
            {"weight": torch.ones(3, 4), "bias": torch.zeros(2)},
            made := io.BytesIO(),
            _use_new_zipfile_serialization=as_zip,
        )
        found.append(made.getvalue())
    return found


def _prepare_state_dict(scratch: Path) -> Check:
    def check(content: bytes) -> None:
        (scratch / "weights.pt").write_bytes(content)
        read_weights(scratch / "weights.pt")

    return check


def _run_target(title: str, name: str, near: Near) -> Target:
    cases = (lambda: _tensor_cases(_seeds(name))) if name == WEIGHTS else (lambda: _json_cases(name))
    return Target(title, _in_run(name, seal=title != "manifest"), cases, near, lambda: _valid(name))


TARGETS = (
    _run_target("manifest", "manifest.json", near_json),
    _run_target("config", "config.json", near_json),
    _run_target("member", "members/000.json", near_json),
    _run_target("evaluations", "evaluations.jsonl", near_lines),
    _run_target("weights", WEIGHTS, near_tensors),
    Target("checkpoint", _prepare_checkpoint, _checkpoint_cases, near_tensors),
    Target("state dict", _prepare_state_dict, lambda: mutated(_saved_by_torch()), near_zip, _saved_by_torch),
    Target("toml", _prepare_toml, lambda: mutated([TOML])),
)
