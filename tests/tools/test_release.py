"""What stands in the way of a release is named."""

from __future__ import annotations

import json
import re

import pytest
from tools.release import audit_problem, changelog_section, obstacles

CHANGES = "# What changed\n\n## 0.3.0\n\nNew:\n\n- this\n\n## 0.2.0 (2026)\n\n- that\n"


def test_the_section_of_a_version_is_found() -> None:
    assert changelog_section(CHANGES, "0.3.0") == "New:\n\n- this"
    assert changelog_section(CHANGES, "0.2.0") == "- that"
    assert changelog_section(CHANGES, "0.2") == changelog_section(CHANGES, "1.0") == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": " M README.md"}, "not clean"),
        ({"tags": ["v0.3.0"]}, "tag v0.3.0 is on another commit"),
        ({"wanted": "0.3.0.dev0"}, "development version"),
        ({"changes": ""}, "no section for 0.3.0"),
        ({"source": "https://example.org/mixupmp"}, "placeholder"),
    ],
)
def test_each_obstacle_is_named(change: dict[str, object], said: str) -> None:
    ready = {"wanted": "0.3.0", "status": "", "tags": ["v0.2.0"], "source": "https://a.b/c", "changes": "- this"}
    assert obstacles(**ready) == []  # type: ignore[arg-type]
    (found,) = obstacles(**{**ready, **change})  # type: ignore[arg-type]
    assert said in found


GOOD = {"name": "numpy", "version": "2.0", "vulns": []}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([GOOD, {"name": "jinja2", "version": "1.0", "vulns": [{"id": "PYSEC-1"}]}], 1, "jinja2 1.0: PYSEC-1"),
        ([GOOD, {"name": "here-only", "skip_reason": "not found on PyPI"}], 0, "look up 1 of 2 packages.*: here-only"),
        ([], 0, "0 of 0 packages"),
    ],
)
def test_an_audit_that_found_or_missed_something_is_an_obstacle(packages: object, code: int, said: str) -> None:
    assert re.search(said, audit_problem(json.dumps({"dependencies": packages}), code, "") or "")


def test_an_audit_passes_only_where_every_package_was_looked_up() -> None:
    assert audit_problem(json.dumps({"dependencies": [GOOD]}), 0, "") is None
    assert "could not reach" in (audit_problem("", 1, "requests.exceptions.ConnectionError: ...") or "")
    assert "failed" in (audit_problem("", 2, "unknown option") or "")
