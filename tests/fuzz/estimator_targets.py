"""Files of a saved classifier: what it adds to config.json, its tensors, and its detector."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from tests.fuzz.mutate import mutated, mutated_json
from tests.fuzz.nearby import near_json, near_named, near_tensors
from tests.fuzz.run_targets import _tensor_cases
from tests.fuzz.target import Check, Target

from mixupmp import MixupMPClassifier, Recipe

CONFIG, TENSORS, DETECTOR = "config.json", "estimator.safetensors", "detector.safetensors"
LABELS = np.array(["a", "b", "c"])[np.arange(90) % 3]
ROWS = np.random.default_rng(0).normal(size=(90, 4)) + (np.arange(90) % 3)[:, None]


@functools.cache
def _files() -> dict[str, bytes]:
    """Of a small classifier with a calibrator, held-out rows and a detector."""
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.05)
    model = MixupMPClassifier(0.5, 1.0, members=2, recipe=recipe, random_state=0).fit(ROWS[:45], LABELS[:45])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        model.calibrate_on(ROWS[45:], LABELS[45:]).save(folder)
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in sorted(files.items())}


def _prepare(scratch: Path) -> Check:
    """A case is the name of a file, a line end, and its content; it is sealed again."""
    for name, content in _files().items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_bytes(content)
    manifest = json.loads(_files()["manifest.json"])

    def check(case: bytes) -> None:
        name, _, content = case.partition(b"\n")
        path = scratch / name.decode()
        path.write_bytes(content)
        hashes = manifest | {name.decode(): hashlib.sha256(content).hexdigest()}
        (scratch / "manifest.json").write_text(json.dumps(hashes))
        try:
            model = MixupMPClassifier.load(scratch)
            assert bool(np.isfinite(model.predict_proba(ROWS[:2])).all())
            model.predict(ROWS[:2])
            model.predict_set(ROWS[:2])
            model.detect(ROWS[:2])
        finally:
            path.write_bytes(_files()[name.decode()])

    return check


def _valid() -> list[bytes]:
    return [name.encode() + b"\n" + _files()[name] for name in (CONFIG, TENSORS, DETECTOR)]


def _cases() -> st.SearchStrategy[bytes]:
    whole = json.loads(_files()[CONFIG])
    added = json.dumps(whole["estimator"]).encode()
    config = mutated_json([added]).map(
        lambda part: json.dumps({**whole, "estimator": 0}).encode().replace(b'"estimator": 0', b'"estimator": ' + part)
    )
    parts = {CONFIG: st.one_of(config, config, mutated([_files()[CONFIG]]))}
    parts |= {name: _tensor_cases([_files()[name]]) for name in (TENSORS, DETECTOR)}
    named = [case.map(lambda content, name=name: name.encode() + b"\n" + content) for name, case in parts.items()]
    return st.one_of(*named, named[0])


near = near_named(lambda name: near_json if name == CONFIG.encode() else near_tensors)
TARGETS = (Target("estimator", _prepare, _cases, near, _valid),)
