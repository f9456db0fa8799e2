"""The documentation site, opened from disk as `make docs` builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
# The start page, and pages with wide tables, long lines of code and a long reference.
PAGES = ("index", "cli", "performance", "guides/detect", "gallery/table")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="requirements-docs.txt is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 380), ("dark", 380)])
def test_a_page_fits_its_window(visit: Callable[..., Any], site: Path, page: str, scheme: str, width: int) -> None:
    found = visit((site / f"{page}.html").as_uri(), scheme, width)
    wide, there = found.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= there
    color = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, color.removeprefix("rgb(").rstrip(")").split(","))) < 300) == (scheme == "dark")
    assert found.complaints == []


@pytest.mark.parametrize(
    ("words", "page"),
    [("temperature", "guides/calibrate.html"), ("foreign", "guides/detect.html"), ("epistemic", "glossary.html")],
)
def test_search_finds_the_page(visit: Callable[..., Any], site: Path, words: str, page: str) -> None:
    found = visit((site / "index.html").as_uri())
    found.page.locator("input.md-search__input").press_sequentially(words)  # the theme listens to keys
    results = found.page.locator("a.md-search-result__link")
    results.first.wait_for()
    assert page in " ".join(results.evaluate_all("links => links.map(link => link.href)"))
    assert found.complaints == []
