"""Run the pages of docs/gallery and write what each code block prints and draws below it: `make gallery`.

A page is its own source: the Python blocks are run in order, in a folder of their own, and what stood between
`<!-- output -->` and `<!-- end -->` after a block is replaced. Pictures go to docs/gallery/pictures, and a notebook of
the page, with its outputs, to docs/gallery/notebooks.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from docs.tools import notebooks
from matplotlib import pyplot as plt
from PIL import Image

BLOCK = re.compile(r"(^```python\n(.*?)^```\n)(?:\n<!-- output -->\n.*?<!-- end -->\n)?", re.MULTILINE | re.DOTALL)
DOTS_PER_INCH = 110
COLORS = 128
STYLE = {"figure.figsize": (7, 2.8), "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}


def run(page: Path) -> str:
    """The page with the outputs of its blocks."""
    names: dict[str, Any] = {"__name__": "gallery"}
    pictures = 0

    def ran(match: re.Match[str]) -> str:
        nonlocal pictures
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(match[2], page.name, "exec"), names)
        parts = [f"```text\n{printed.getvalue().rstrip()}\n```"] if printed.getvalue().strip() else []
        for number in plt.get_fignums():
            pictures += 1
            name = f"{page.stem}-{pictures}.png"
            figure = plt.figure(number)
            path = notebooks.GALLERY / "pictures" / name
            figure.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight", metadata={"Software": ""})
            Image.open(path).convert("RGB").quantize(COLORS).save(path, optimize=True)  # a third of the bytes
            parts.append(f"![{figure.get_label() or 'What the block draws'}](pictures/{name})")
        plt.close("all")
        return match[1] + ("\n<!-- output -->\n" + "\n\n".join(parts) + "\n<!-- end -->\n" if parts else "")

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mpl.rc_context(STYLE):
        return BLOCK.sub(ran, page.read_text())


def main(chosen: list[str]) -> None:
    (notebooks.GALLERY / "pictures").mkdir(exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    for page in notebooks.pages():
        if not chosen or page.stem in chosen:
            start = time.perf_counter()
            text = run(page)
            page.write_text(text)
            notebooks.write(page)
            sys.stderr.write(f"{page.stem}: {time.perf_counter() - start:.0f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
