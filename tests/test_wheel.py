"""The built wheel holds every file that is read at run time, and runs alone (`make wheel-test` does more)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from tools.building import REPOSITORY, build_sdist, build_wheel, copy_sources, unpack, version

PROGRAM = """
import mixupmp
from mixupmp.cli import main

print(mixupmp.__file__)
for arguments in (["demo", "--help"], ["reproduce", "list"]):
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code == 0
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, so that both are complete."""
    folder = tmp_path_factory.mktemp("built")
    sdist = build_sdist(copy_sources(folder / "sources"), folder / "sdist")
    return build_wheel(unpack(sdist, folder / "unpacked"), folder / "wheel")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_string(archive.read(f"mixupmp-{version()}.dist-info/METADATA").decode())


def test_every_file_of_the_package_is_inside(wheel: Path) -> None:
    sources = REPOSITORY / "src"
    files = {path.relative_to(sources).as_posix() for path in (sources / "mixupmp").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert {Path(name).suffix for name in files} >= {".py", ".pyi", ".js", ".css", ".j2", ".json", ".toml", ".typed"}
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == files


def test_it_runs_from_a_folder_of_its_own(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": str(place)}
    command = [sys.executable, "-P", "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]).is_relative_to(place)
    assert "mixupmp demo" in done.stdout
    assert "illustration-r" in done.stdout


def test_the_description_has_no_links_that_need_the_repository(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 5
    assert all(link.startswith("https://") for link in links)
    source = dict(entry.split(", ") for entry in metadata.get_all("Project-URL", []))["Source"]
    inside = [link.removeprefix(f"{source}/").partition("/main/")[2] for link in links if link.startswith(source)]
    assert all((REPOSITORY / path.partition("#")[0]).exists() for path in inside)


def test_the_version_is_stated_once(metadata: Message) -> None:
    assert metadata["Version"] == version()
    citation = (REPOSITORY / "CITATION.cff").read_text()
    assert f"\nversion: {version()}\n" in citation
    assert f"\n## {version()}" in (REPOSITORY / "CHANGELOG.md").read_text()
