"""Each page of docs/gallery as a Jupyter notebook, with the outputs and pictures that the page holds.

Nothing is run: `make gallery` runs the pages and then calls this. `python -m docs.tools.notebooks` writes all again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).resolve().parents[1] / "gallery"
NOTEBOOKS = GALLERY / "notebooks"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n<!-- output -->\n(.*?)<!-- end -->\n)?", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^```text\n(.*?)^```$|^!\[([^\]]*)\]\((\S+)\)$", re.MULTILINE | re.DOTALL)


def link(page: Path) -> str:
    """The line below a page's title that leads to its notebook."""
    return f"[Download as a notebook](notebooks/{page.stem}.ipynb)"


def cells(page: Path) -> Iterator[dict[str, Any]]:
    text = page.read_text().replace(link(page) + "\n\n", "")
    end = 0
    for block in BLOCK.finditer(text):
        yield from _prose(text[end : block.start()])
        outputs = [_output(found, page.parent) for found in OUTPUT.finditer(block[2] or "")]
        yield {"cell_type": "code", **_source(block[1]), "execution_count": None, "outputs": outputs}
        end = block.end()
    yield from _prose(text[end:])


def _prose(text: str) -> Iterator[dict[str, Any]]:
    # Links to other pages lead nowhere from a file that was downloaded: their text stays.
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)
    if text.strip():
        yield {"cell_type": "markdown", **_source(text)}


def _source(text: str) -> dict[str, Any]:
    return {"metadata": {}, "source": text.strip().splitlines(keepends=True)}


def _output(found: re.Match[str], folder: Path) -> dict[str, Any]:
    printed, label, picture = found.groups()
    if picture is None:
        return {"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)}
    data = {"image/png": base64.b64encode((folder / picture).read_bytes()).decode(), "text/plain": [label]}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def write(page: Path) -> None:
    """Write the notebook of a page, format 4.4, whose cells need no identifiers."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"cells": list(cells(page)), "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    NOTEBOOKS.mkdir(exist_ok=True)
    (NOTEBOOKS / f"{page.stem}.ipynb").write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def pages() -> list[Path]:
    """Those with code."""
    return [page for page in sorted(GALLERY.glob("*.md")) if BLOCK.search(page.read_text())]


if __name__ == "__main__":
    for page in pages():
        write(page)
