"""MkDocs hooks: files of the repository that pages link to become part of the site.

Pages link to `../results/...` and `../CONTRIBUTING.md`, as they lie in the repository. MkDocs knows only what is below
docs/, so each such file, and what it links to in turn, gets a place below `repository/` and the links are rewritten.
A link to nothing is left as it is: the strict build refuses it.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs runs a hook as a file of its own, outside of any package

from docs.tools.command_line import reference  # noqa: E402
from docs.tools.results import filled  # noqa: E402

DOCS = ROOT / "docs"
OUTSIDE = "repository"
# Markdown links and images, in or out of code: a path in code is never one that leads out of docs/.
LINK = re.compile(r"(\]\(\s*)([^)\s#]+)((?:#[^)\s]*)?\s*\))")

# A script, picture, frame, style sheet or icon of another site. Links that a reader follows may lead there.
LOADED = re.compile(
    r'<(?:script|img|iframe|link rel="?(?:stylesheet|icon)"?)\b[^>]*?(?:src|href)="?(?:https?:)?(//[^"\s>]+)'
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ that a page links to, or that the navigation names."""
    waiting = [Path(file.abs_src_path or "") for file in files.documentation_pages()]
    waiting += [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "results/CLAIMS.md")]
    added: set[Path] = set()
    while waiting:
        page = waiting.pop()
        if is_outside(page) and page not in added:
            added.add(page)
            source = f"{OUTSIDE}/{page.relative_to(ROOT).as_posix()}"
            files.append(File.generated(config, source, abs_src_path=str(page), inclusion=InclusionLevel.NOT_IN_NAV))
        if page.suffix == ".md":
            waiting += [path for path in targets(page) if path not in added]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated; point links that lead out of docs/ to the copies, and those of a copy to the pages."""
    here = Path(page.file.abs_src_path or "")
    if page.file.src_uri == "cli.md":
        markdown += reference()
    markdown = filled(markdown, ROOT)
    folder = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        path = target(here, match[2])
        if path is None or (is_outside(path) == is_outside(here) and not is_outside(path)):
            return match[0]
        base, prefix = (ROOT, OUTSIDE + "/") if is_outside(path) else (DOCS, "")
        return match[1] + posixpath.relpath(prefix + path.relative_to(base).as_posix(), folder or ".") + match[3]

    return LINK.sub(moved, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a page that loads anything from elsewhere: the site is read without a network."""
    for page in Path(config.site_dir).rglob("*.html"):
        found = LOADED.search(page.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{page} loads {found[1]} from elsewhere.")


def targets(page: Path) -> Iterator[Path]:
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        path = target(page, match[2])
        if path is not None and is_outside(path):
            yield path


def target(page: Path, link: str) -> Path | None:
    """The file of the repository that a relative link of a page leads to; a folder's README where it has one."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    path = Path(os.path.normpath(page.parent / link))
    if path.is_dir():
        path = next((path / name for name in ("index.md", "README.md") if (path / name).exists()), path)
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def is_outside(path: Path) -> bool:
    return not path.is_relative_to(DOCS)
