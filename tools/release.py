"""Check what would be released: `python -m tools.release check` (docs/releasing.md)."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.building import REPOSITORY, build_sdist, build_wheel, copy_sources, unpack, version

DIST = REPOSITORY / "dist"


def changelog_section(text: str, wanted: str) -> str:
    """The section of a version in the changelog, without its heading."""
    found = re.search(rf"^## {re.escape(wanted)}(?![\w.])[^\n]*\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def obstacles(wanted: str, status: str, tags: list[str], source: str, changes: str) -> list[str]:
    """What stands in the way of releasing this version."""
    found = []
    if status:
        found.append(f"the working tree is not clean:\n{status}")
    if f"v{wanted}" in tags:
        found.append(f"the tag v{wanted} is on another commit: raise the version in src/mixupmp/core/version.py")
    if ".dev" in wanted:
        found.append(f"{wanted} is a development version")
    if not changes:
        found.append(f"CHANGELOG.md has no section for {wanted}")
    if "example.org" in source:
        found.append("project.urls in pyproject.toml still has the placeholder example.org")
    return found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build() -> list[Path]:
    """The wheel, built from the sdist, and the sdist, in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist = build_sdist(copy_sources(folder / "sources"), DIST)
        return [build_wheel(unpack(sdist, folder / "unpacked"), DIST), sdist]


def audit_problem(printed: str, code: int, errors: str) -> str | None:
    """What pip-audit's JSON says against a release; packages that it could not look up were not audited."""
    try:
        packages = json.loads(printed)["dependencies"]
    except (ValueError, KeyError):
        unreachable = re.search(r"ConnectionError|ServiceError|Max retries|resolve", errors)
        return f"pip-audit {'could not reach its service' if unreachable else 'failed'}:\n{errors[-1000:]}"
    bad = [f"{one['name']} {one['version']}: {vuln['id']}" for one in packages for vuln in one.get("vulns", [])]
    if bad or code:
        return f"pip-audit found {len(bad)} vulnerabilities: {', '.join(bad) or errors[-1000:]}"
    unknown = [one["name"] for one in packages if "skip_reason" in one]
    if not packages or unknown:
        names = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        return (
            f"pip-audit could not look up {len(unknown)} of {len(packages)} packages, so they were not audited: {names}"
        )
    return None


def audit() -> str | None:
    """Known vulnerabilities of what the constraints install, or why it could not be asked; None where it has none."""
    options = ["--no-deps", "--disable-pip", "--requirement", "constraints.txt"]
    machine = ["--format", "json", "--progress-spinner", "off"]
    command = [sys.executable, "-m", "pip_audit", *options, *machine]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    return audit_problem(done.stdout, done.returncode, done.stderr)


def check() -> int:
    """Build, check and audit; print what stands in the way. The exit code is the number of obstacles."""
    wanted = version()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    changes = changelog_section((REPOSITORY / "CHANGELOG.md").read_text("utf-8"), wanted)
    status, tags = _git("status", "--porcelain"), _git("tag", "--list", "--no-contains", "HEAD").splitlines()
    found = obstacles(wanted, status, tags, project["urls"]["Source"], changes)
    built = build()
    (DIST / "RELEASE.md").write_text(f"# mixupmp {wanted}\n\n{changes}\n", "utf-8")
    if subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]).returncode:
        found.append("twine check refused what was built")
    if (problem := audit()) is not None:
        found.append(problem)
    for one in found:
        print(f"in the way: {one}")
    things = "1 thing" if len(found) == 1 else f"{len(found)} things"
    print(f"{things} in the way of {wanted}; built {', '.join(path.name for path in built)}")
    return len(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["check"])
    parser.parse_args()
    sys.exit(check())
