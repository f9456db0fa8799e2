"""All that is fuzzed."""

from __future__ import annotations

from tests.fuzz import data_targets, run_targets, server_target

TARGETS = (*run_targets.TARGETS, *data_targets.TARGETS, *server_target.TARGETS)
