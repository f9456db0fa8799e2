"""Downloads with the publisher's checksum: the file is complete and right, or it is not there."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import shutil
import sys
import tarfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mixupmp.core.errors import BadData, DataNotFound, InvalidArgument
from mixupmp.core.files import replacing

BLOCK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte, not for the whole file
LIMIT = 8 * 2**30  # bytes; the largest archive in the catalog has under 3 GB


@dataclass(frozen=True)
class Remote:
    """A published file: its name, the MD5 its publisher gives, and the addresses it is served under."""

    file: str
    md5: str
    bases: tuple[str, ...]  # tried in turn; the file's name is appended

    @property
    def is_archive(self) -> bool:
        return self.file.endswith((".tar", ".tar.gz", ".tgz"))


def fetch(remote: Remote, folder: Path) -> Path:
    """Download a file into a folder, unless the right one is there already; return its path."""
    target = folder / remote.file
    if target.is_file() and _md5(target) == remote.md5:
        return target
    failures = []
    for base in remote.bases:
        address = base + remote.file
        if not address.startswith(("https://", "http://")):
            raise InvalidArgument("address", address, "an http or https address")
        try:
            _fetch_from(address, remote.md5, target)
        except (OSError, http.client.HTTPException, BadData) as error:  # OSError: network errors, and a full disk
            failures.append(f"  {address}: {error}")
        else:
            return target
    tried = "\n".join(failures)
    raise DataNotFound(
        f"could not download {remote.file}. Tried:\n{tried}\n"
        f"Fetch it by other means (MD5 {remote.md5}) and put it into {folder}."
    )


def _fetch_from(address: str, md5: str, target: Path) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    # Addresses are those of the catalog, never ones that came with data.
    with urllib.request.urlopen(address, timeout=TIMEOUT) as response, replacing(target) as file:
        length = int(response.headers.get("Content-Length") or 0)
        received = 0
        with _progress(target.name, length) as advance:
            while block := response.read(BLOCK):
                received += len(block)
                if received > LIMIT:
                    raise BadData(f"it has more than {LIMIT} bytes.")
                digest.update(block)
                file.write(block)
                advance(len(block))
        if length and received != length:
            raise BadData(f"the connection ended after {received} of {length} bytes.")
        if digest.hexdigest() != md5:
            raise BadData(f"its MD5 is {digest.hexdigest()}, the publisher's is {md5}.")


def unpack(archive: Path, folder: Path, files: tuple[str, ...]) -> None:
    """Write the named files of a tar archive into a folder, and nothing else.

    Only regular files are read, and only the last part of their names is used, so no path, link or device in the
    archive has an effect.
    """
    wanted = set(files)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                content = tar.extractfile(member) if member.isreg() and name in wanted else None
                if content is not None:
                    with replacing(folder / name) as file:
                        shutil.copyfileobj(content, file, BLOCK)
                    wanted.discard(name)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise BadData(f"{archive} could not be unpacked into {folder}: {error}") from error
    if wanted:
        raise BadData(f"{archive} does not hold {', '.join(sorted(wanted))}: it is not the publisher's archive.")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextlib.contextmanager
def _progress(name: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, and nothing in a log."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress("{task.description}", *columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=length or None)
        yield lambda count: bar.advance(task, count)
