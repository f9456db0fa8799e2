"""The wheel and the sdist, built from a copy of the sources, so that nothing is left in the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent


def version() -> str:
    """The version, from the one file that has it."""
    text = (REPOSITORY / "src/mixupmp/core/version.py").read_text("utf-8")
    found = re.search(r'__version__ = "(.+)"', text)
    assert found is not None
    return found[1]


def copy_sources(folder: Path) -> Path:
    """What a build reads, copied."""
    shutil.copytree(REPOSITORY / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def build_wheel(source: Path, out: Path) -> Path:
    """The wheel of a folder of sources or an sdist, with the setuptools that are installed here."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(source)], check=True)
    (wheel,) = out.glob("*.whl")
    return wheel


def build_sdist(source: Path, out: Path) -> Path:
    """The sdist of a folder of sources."""
    out.mkdir(parents=True, exist_ok=True)
    program = f"from setuptools.build_meta import build_sdist; build_sdist({str(out)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=source, check=True, stdout=subprocess.DEVNULL)
    (sdist,) = out.glob("*.tar.gz")
    return sdist


def unpack(sdist: Path, folder: Path) -> Path:
    """The folder of sources in an sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return source
