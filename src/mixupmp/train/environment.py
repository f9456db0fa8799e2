"""What a worker process starts with: its import path and malloc settings, and whether they are still up to date."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path

import mixupmp


def malloc_settings() -> dict[str, str]:
    """Environment that lets glibc keep freed memory until the call is over.

    Otherwise a freed block of some megabytes goes back to the system and is taken again page by page at the next step:
    up to a seventh of a Wide-ResNet's time. Before glibc 2.36 so high a threshold is refused.
    """
    version = (os.confstr("CS_GNU_LIBC_VERSION") or "") if hasattr(os, "confstr") else ""
    if not version.startswith("glibc ") or tuple(int(part) for part in version[6:].split(".")[:2]) < (2, 36):
        return {}
    return {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}


def import_state() -> tuple[str, ...]:
    """Where a process started now would find modules, and files by relative names."""
    return (*sys.path, _current_folder())


def start_path() -> list[str]:
    """Where a worker finds the modules it starts with: never in the current folder, whatever files are there.

    The parent may have that folder on its own path (a notebook, `python -c`, a script in it), and then classes of
    modules there must be found when a call is unpickled: the parent's whole path is sent for that, after the start.
    """
    home = package_home()
    return [home, *(entry for entry in sys.path if os.path.isabs(entry) and entry not in (home, _current_folder()))]


def package_home() -> str:
    """The folder on the import path that this package was found in."""
    return str(Path(mixupmp.__file__).parents[1])


def own_path() -> list[str]:
    """The part of the import path where modules of the user's are, as opposed to installed ones."""
    found = [os.path.join(_current_folder(), entry) for entry in sys.path]
    return [entry for entry in found if not entry.startswith(_installed())]


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return ""


def last_edit() -> float:
    """When a module of the user's, as opposed to an installed one, was last changed."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    own = [file for file in files if isinstance(file, str) and not file.startswith(_installed())]
    return max((os.path.getmtime(file) for file in own if os.path.exists(file)), default=0.0)


@functools.cache  # sysconfig works them out anew at each call, and last_edit asks for each loaded module
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return paths["stdlib"], paths["purelib"], paths["platlib"]
