"""What the README shows runs as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupmp.estimators import DeepEnsembleClassifier

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_python_block_comes_out_as_printed() -> None:
    (block,) = blocks("python")
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["doubt"].shape == (1397,)
    ours = log_loss(names["y_test"], names["probabilities"])
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(names["X_train"], names["y_train"])
    rival = log_loss(names["y_test"], linear.predict_proba(names["X_test"]))
    said = r"NLL on the test rows is (\.\d+), where.*? has (\.\d+),\s+and a deep\s+ensemble.*?tuning (\.\d+)"
    printed = re.search(said, README.read_text(), re.DOTALL)
    assert printed is not None
    assert abs(ours - float(printed[1])) < 0.01
    assert abs(rival - float(printed[2])) < 0.01
    ensemble = DeepEnsembleClassifier(random_state=0).fit(names["X_train"], names["y_train"])
    assert ours < rival
    deep = log_loss(names["y_test"], ensemble.predict_proba(names["X_test"]))
    assert abs(deep - float(printed[3])) < 0.01
    assert ours <= deep + 1e-9


def test_the_commands_run(tmp_path: Path) -> None:
    _, commands = blocks("bash")
    for line in commands.splitlines():
        program, *arguments = line.split()
        assert program == "mixupmp"
        done = subprocess.run(
            [sys.executable, "-m", "mixupmp", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()[0])["metrics"]
    assert metrics["acc"] > 0.93


def test_torch_is_installed_in_the_versions_that_were_tested() -> None:
    install, _ = blocks("bash")
    pinned, lowest = re.findall(r"torch([=>]=[\d.]+)", install)
    assert f"\ntorch{pinned}\n" in (README.parent / "constraints.txt").read_text()
    project = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]
    assert f"torch{lowest}" in project["dependencies"]
    listed = {
        name for line in re.findall(r"^\| (`.*?) \|", README.read_text(), re.MULTILINE) for name in line.split("`")
    }
    assert set(project["optional-dependencies"]) <= listed


def test_linked_files_and_their_sections_are_there() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        path, _, section = target.partition("#")
        assert (README.parent / path).exists(), target
        if section:
            headings = re.findall(r"^#+ (.+)$", (README.parent / path).read_text(), re.MULTILINE)
            assert section in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
