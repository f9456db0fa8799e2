"""`mixupmp demo`: what MixupMP does for a classifier's probabilities, in under a minute."""

from __future__ import annotations

from mixupmp.cli.options import Json


def command(as_json: Json = False) -> None:
    """To come."""
