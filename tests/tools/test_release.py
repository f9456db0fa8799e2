"""What stands in the way of a release is named."""

from __future__ import annotations

import pytest
from tools.release import changelog_section, obstacles

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
