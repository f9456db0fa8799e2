"""The code blocks of every page run, in order, as a reader would run them; every link leads somewhere."""

from __future__ import annotations

import base64
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from docs.tools.notebooks import cells

DOCS = Path(__file__).parents[2] / "docs"
ROOT = DOCS.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted(page for page in DOCS.rglob("*.md"))
TEXTS = [*PAGES, *ROOT.glob("*.md")]
# Pages whose blocks take more than a few seconds; `make gallery` runs those of the gallery too.
SLOW = {"gallery/images", "gallery/text", "gallery/serve", "gallery/cluster", "gallery/table"}
# Packages that warn about themselves.
NOISY = ("onnx", "laplace", "ray")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).with_suffix("").as_posix()


def blocks(page: Path) -> list[str]:
    """Its Python blocks but for those of the README, which has a test of its own."""
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if block not in README]


def runnable() -> Iterator[object]:
    for page in PAGES:
        if blocks(page):
            slow = [pytest.mark.slow] if name_of(page) in SLOW else []
            yield pytest.param(page, marks=slow, id=name_of(page))


def test_the_pages_are_there() -> None:
    names = {name_of(page) for page in PAGES if blocks(page)}
    assert names >= {f"guides/{name}" for name in ("own-network", "tables", "choose-r", "calibrate", "regression")}
    assert names >= {f"guides/{name}" for name in ("vision-transformer", "tokens", "series", "which-future")}
    assert names >= {"getting-started", "theory", "guides/save-serve-export", "guides/trained-network"}
    assert names >= {f"migrate/{name}" for name in ("torch-uncertainty", "laplace-torch", "deep-ensemble")}
    assert len([name for name in names if name.startswith("gallery/")]) >= 9
    assert {name_of(page) for page in PAGES} >= SLOW


@pytest.mark.parametrize("page", list(runnable()))
def test_every_code_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with warnings.catch_warnings():
        if any(word in page.read_text() for word in NOISY):
            warnings.simplefilter("ignore")
        for number, block in enumerate(blocks(page)):
            exec(compile(block, f"{page.name}, block {number + 1}", "exec"), names)
    plt.close("all")


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_a_file(text: Path) -> None:
    outside_code = re.sub(r"^```.*?^```|`[^`\n]*`", "", text.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(\s*([^)\s]+)\s*\)", outside_code):
        path, _, anchor = link.partition("#")
        if "://" in link or not path:
            continue
        assert (text.parent / path).exists(), link
        if anchor and path.endswith(".md"):
            headings = re.findall(r"^#+ (.*)$", (text.parent / path).read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("text", [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md"], ids=lambda text: text.stem)
def test_what_contributors_are_told_of_exists(text: Path) -> None:
    """Files, the names that are said to be in them, any other name of code, and targets of make."""
    prose = re.sub(r"^```.*?^```", "", text.read_text(), flags=re.MULTILINE | re.DOTALL)
    source = ROOT / "src" / "mixupmp"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)`", prose)) <= set(targets)
    paths = set(re.findall(r"`([\w-]+(?:/[\w.-]+)*(?:/|\.(?:py|pyi|md|json)))`", prose)) - {"site/", "mine.py"}
    assert [path for path in sorted(paths) if not any((at / path).exists() for at in (source, ROOT, DOCS))] == []
    inside = re.findall(r"`([\w/]+\.py)` `(\w+)|`(\w+)` (?:of|in) `([\w/]+\.py)`", prose)
    for path, name in [(path or last, name or first) for path, name, first, last in inside]:
        assert re.search(
            rf"\b{name}\b", next(at / path for at in (source, ROOT) if (at / path).exists()).read_text()
        ), name
    known = set(
        re.findall(r"\w+", "\n".join(file.read_text() for file in source.rglob("*.py*") if file.suffix != ".pyc"))
    )
    known |= set(re.findall(r"\w+", "\n".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))))
    assert set(re.findall(r"`(\w+)`", prose)) - known - set(targets) == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    """Python files, and folders of the package and its tests; the reader's own files are `mine.py`."""
    named = re.findall(
        r"(?<![\w./-])((?:[\w-]+/)*[\w-]+\.pyi?|(?:src|tests|train|core|fit)/[\w/]*)(?![\w/])", page.read_text()
    )
    places = (
        ROOT,
        ROOT / "src",
        ROOT / "src" / "mixupmp",
        *(ROOT / "tests" / at for at in ("train", "store", "web/serve")),
    )
    missing = [path for path in named if path != "mine.py" and not any((at / path).exists() for at in places)]
    assert missing == []


def test_no_picture_of_the_gallery_is_large() -> None:
    pictures = list((DOCS / "gallery" / "pictures").iterdir())
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 100_000, picture.name


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name == "gallery" and blocks(page)], ids=name_of
)
def test_a_notebook_holds_the_code_of_its_page_and_its_outputs(page: Path) -> None:
    """`python -m docs.tools.notebooks` writes them anew."""
    path = page.parent / "notebooks" / f"{page.stem}.ipynb"
    assert f"](notebooks/{path.name})" in page.read_text()
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 4)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]) for cell in code] == [block.rstrip() for block in blocks(page)]
    outputs = [output for cell in code for output in cell["outputs"]]
    printed = ["".join(output["text"]) for output in outputs if output["output_type"] == "stream"]
    assert printed == re.findall(r"^```text\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    drawn = [base64.b64decode(output["data"]["image/png"]) for output in outputs if "data" in output]
    pictures = re.findall(r"\]\((pictures/\S+)\)", page.read_text())
    assert drawn == [(page.parent / picture).read_bytes() for picture in pictures]
    assert notebook["cells"] == list(cells(page)), "the text is of an earlier page"
    assert path.stat().st_size < 200_000
