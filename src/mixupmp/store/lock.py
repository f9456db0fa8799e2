"""Locks of run folders: held through the kernel, so that a process that dies leaves none behind."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedIOBase

from mixupmp.core.errors import BadRun, MixupMPError
from mixupmp.core.files import Directory, storage_errors

SOFT = ".{}.soft"  # file that stands for a lock where the kernel has none
_POLL = 0.05  # seconds between attempts
_PATIENCE = 1.0  # seconds after which a wait is worth mentioning


class RunLocked(MixupMPError):
    """Another process works on this run."""


@contextmanager
def locked(
    directory: Directory, name: str, timeout: float | None = 0.0, on_wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the lock file of this name.

    Parameters
    ----------
    timeout : seconds to wait for another holder before `RunLocked` is raised; None waits without end.
    on_wait : called once, with a description of the holder, if the wait takes longer than a second.
    """
    started, reported = time.monotonic(), on_wait is None
    with ExitStack() as stack:
        with storage_errors(directory.path / name):
            file = stack.enter_context(directory.open(name, create=True))
        if os.fstat(file.fileno()).st_nlink > 1:  # a hard link: the holder's name would be written into another file
            raise BadRun(f"{directory.path / name} is a link to another file: refused. Remove it.")
        while not _acquired(file, directory, name, stack):
            waited = time.monotonic() - started
            if timeout is not None and waited >= timeout:
                raise RunLocked(
                    f"{directory.path} is in use by {_holder(file)}. Wait for it, or choose another folder."
                )
            if not reported and on_wait is not None and waited > _PATIENCE:
                reported = True
                on_wait(_holder(file))
            time.sleep(_POLL)
        descriptor = file.fileno()
        with storage_errors(directory.path / name):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield  # closing the file releases the lock


def _acquired(file: BufferedIOBase, directory: Directory, name: str, stack: ExitStack) -> bool:
    # Imported here because it warns on import where a platform has no locks.
    from filelock import SoftFileLock, Timeout, lock_descriptor

    try:
        return lock_descriptor(file.fileno(), blocking=False)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    path = directory.path / name  # no kernel locks on this platform or file system: the best there is
    try:
        stack.enter_context(SoftFileLock(path.with_name(SOFT.format(path.name)), timeout=0))
    except Timeout:
        return False
    return True


def _holder(file: BufferedIOBase) -> str:
    try:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        text = os.read(file.fileno(), 200).decode(errors="replace").strip()
    except OSError:  # Windows: locked bytes cannot be read
        text = ""
    return "".join(letter for letter in text if letter.isprintable()) or "another process"
