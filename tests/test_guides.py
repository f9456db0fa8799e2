"""The code blocks of every guide run, in order, as a reader would run them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "guides"
GUIDES = [*sorted(FOLDER.glob("*.md")), FOLDER.parent / "theory.md"]


def test_the_guides_are_there() -> None:
    names = {guide.stem for guide in GUIDES}
    assert names >= {"own-network", "tables", "choose-r", "calibrate", "save-serve-export", "regression"}
    assert names >= {"vision-transformer", "tokens", "series", "which-future"}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_code_block_runs(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    with warnings.catch_warnings():
        if "onnx" in guide.read_text():
            warnings.simplefilter("ignore")  # the exporter's own deprecations
        for number, block in enumerate(blocks):
            exec(compile(block, f"{guide.name}, block {number + 1}", "exec"), names)
