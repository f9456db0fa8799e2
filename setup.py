"""The long description: the README, whose links to files of the repository work on a registry's page too."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
SOURCE = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]


def absolute_links(text: str, source: str) -> str:
    """Markdown with links to files made links into the repository's page, and images its raw files."""
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\1{source}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\1{source}/blob/main/", text)


if __name__ == "__main__":
    setup(
        long_description=absolute_links((HERE / "README.md").read_text("utf-8"), SOURCE),
        long_description_content_type="text/markdown",
    )
