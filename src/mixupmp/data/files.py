"""Files of data: where published ones are looked for, and how a file from anywhere is read safely."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mixupmp.core.errors import BadData, DataNotFound, MixupMPError
from mixupmp.data.download import Remote, fetch, unpack

ROOT_VARIABLE = "MIXUPMP_DATA"
Root = str | os.PathLike[str] | None  # of datasets; None: where `roots` looks
_BY_ITSELF = "pass download=True (on the command line --download), or "
MIB = 1 << 20


@dataclass(frozen=True)
class Published:
    """The files that a dataset consists of, the folders of a data root they may be in, and who publishes them."""

    title: str
    page: str  # the publisher's own page, for those who download by hand
    folders: tuple[str, ...]  # under a data root, in order; a download goes to the first
    files: tuple[str, ...]  # all of them are needed; each may also end in .gz
    remotes: tuple[Remote, ...]  # empty: it cannot be downloaded by itself
    elsewhere: tuple[Path, ...] = ()  # absolute folders, such as an operating system's package


def roots(root: Root = None) -> list[Path]:
    """The data roots in the order they are searched: the argument, $MIXUPMP_DATA, the cache folder."""
    named = [root, os.environ.get(ROOT_VARIABLE)]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mixupmp"
    return list(dict.fromkeys([*(Path(n).expanduser() for n in named if n), cache]))


def file_in(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder, plain or gzipped, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def locate(published: Published, root: Root = None, download: bool = False) -> Path:
    """The first folder that holds all files of a dataset; with `download` they are fetched where there is none."""
    searched = roots(root)
    folders = [base / folder for base in searched for folder in published.folders] + list(published.elsewhere)
    for folder in folders:
        if all(file_in(folder, name) for name in published.files):
            return folder
    if download and published.remotes:
        return _download(published, searched[0])
    raise DataNotFound(_not_found(published, folders, searched[0]))


def _download(published: Published, root: Path) -> Path:
    folder = root / published.folders[0]
    for remote in published.remotes:
        if not remote.is_archive:
            fetch(remote, folder)
            continue
        kept = (root / remote.file).exists()
        archive = fetch(remote, root)
        unpack(archive, folder, published.files)
        if not kept:  # an archive that the user put there stays
            archive.unlink()
    return folder


def _not_found(published: Published, folders: list[Path], root: Path) -> str:
    lines = [f"{published.title} was not found. Looked in:"]
    for folder in folders:
        missing = [name for name in published.files if file_in(folder, name) is None]
        state = "none of its files" if len(missing) == len(published.files) else f"incomplete: no {', '.join(missing)}"
        lines.append(f"  {folder} ({state if folder.is_dir() else 'no such folder'})")
    plural = "s" if len(published.files) > 1 else ""
    return "\n".join(
        [
            *lines,
            f"To get it: {_BY_ITSELF if published.remotes else ''}fetch it from {published.page}",
            f"and put its file{plural} {', '.join(published.files)} into {root / published.folders[0]}",
            f"(the data root is --data-root, then ${ROOT_VARIABLE}, then the cache folder).",
        ]
    )


@contextlib.contextmanager
def reading(name: str | Path, kind: str, hint: str = "") -> Iterator[None]:
    """Turn whatever a parser raises into `BadData` that names the file.

    Parsers of zip, gzip, npy, CSV, Parquet and image files raise nearly every exception there is on damaged input
    (zlib.error, tokenize.TokenError, KeyError, struct.error, MemoryError, ...), so no list of them would be complete.
    """
    try:
        yield
    except (MixupMPError, ImportError):
        raise
    except MemoryError as error:
        raise BadData(f"{name} cannot be read as {kind}: it asks for more memory than there is.") from error
    except Exception as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise BadData(f"{name} cannot be read as {kind}: {reason}.{hint and ' '}{hint}") from error


def plain_file(path: Path) -> Path:
    """The path, unless a pipe is there, which would be waited for, or a device, which has no end."""
    if path.exists() and not path.is_file():
        raise BadData(f"{path} is not a plain file.")
    return path


def most_unpacked(compressed: int) -> int:
    """How many bytes a compressed file of this size may unpack to.

    Up to 64 MiB anything may; beyond, 200 times its size up to 1 GiB and 20 times above it. Data compress far less.
    """
    return max(64 * MIB, min(200 * compressed, max(1024 * MIB, 20 * compressed)))


def check_unpacked(name: str | Path, compressed: int, unpacked: int) -> None:
    """Refuse a compressed file that would unpack to more than `most_unpacked`."""
    most = most_unpacked(compressed)
    if unpacked > most:
        raise BadData(
            f"{name} would unpack from {compressed:,} to {unpacked:,} bytes or more; at most {most:,} are read. "
            "If you trust it, store it uncompressed."
        )


def read_gzip(path: Path) -> bytes:
    """A gzip file's content, of at most `most_unpacked` bytes."""
    compressed = path.stat().st_size
    with gzip.open(path) as file:
        content = file.read(most_unpacked(compressed) + 1)
    check_unpacked(path, compressed, len(content))
    return content
