"""Where published datasets are looked for, and where they come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mixupmp.core.errors import DataNotFound
from mixupmp.data.download import Remote, fetch, unpack

ROOT_VARIABLE = "MIXUPMP_DATA"


@dataclass(frozen=True)
class Source:
    """The files a dataset consists of, the folders of a data root they may be in, and who publishes them."""

    title: str
    page: str  # the publisher's own page, for those who fetch by hand
    folders: tuple[str, ...]  # under a data root, in order; a download goes to the first
    files: tuple[str, ...]  # all of them are needed; each may also end in .gz
    remotes: tuple[Remote, ...]
    elsewhere: tuple[Path, ...] = ()  # absolute folders, such as an operating system's package


def roots(root: str | os.PathLike[str] | None = None) -> list[Path]:
    """The data roots in the order they are searched: the argument, $MIXUPMP_DATA, the cache folder."""
    named = [root, os.environ.get(ROOT_VARIABLE)]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mixupmp"
    return list(dict.fromkeys([*(Path(n).expanduser() for n in named if n), cache]))


def file_in(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder, plain or gzipped, or None."""
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    return None


def locate(source: Source, root: str | os.PathLike[str] | None = None, download: bool = False) -> Path:
    """The first folder that holds all of a source's files; downloads them where that is asked for and needed."""
    searched = roots(root)
    looked = [base / folder for base in searched for folder in source.folders] + list(source.elsewhere)
    for folder in looked:
        if all(file_in(folder, name) for name in source.files):
            return folder
    if download:
        return _download(source, searched[0])
    raise DataNotFound(_not_found(source, looked, searched[0]))


def _download(source: Source, root: Path) -> Path:
    folder = root / source.folders[0]
    for remote in source.remotes:
        if not remote.is_archive:
            fetch(remote, folder)
            continue
        kept = (root / remote.file).exists()
        archive = fetch(remote, root)
        unpack(archive, folder, source.files)
        if not kept:  # what the user put there stays
            archive.unlink()
    return folder


def _not_found(source: Source, looked: list[Path], root: Path) -> str:
    lines = [f"{source.title} was not found. Looked in:"]
    for folder in looked:
        missing = [name for name in source.files if file_in(folder, name) is None]
        if not folder.is_dir():
            state = "no such folder"
        elif len(missing) == len(source.files):
            state = "none of its files"
        else:
            state = f"incomplete: no {', '.join(missing)}"
        lines.append(f"  {folder} ({state})")
    plural = "s" if len(source.files) > 1 else ""
    lines.append(f"To get it: pass download=True (on the command line --download), or fetch it from {source.page}")
    lines.append(f"and put its file{plural} {', '.join(source.files)} into {root / source.folders[0]}")
    lines.append(f"(the data root is --data-root, then ${ROOT_VARIABLE}, then the cache folder).")
    return "\n".join(lines)
