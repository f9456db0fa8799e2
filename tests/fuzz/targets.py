"""All that is fuzzed."""

from __future__ import annotations

from tests.fuzz import data_targets, estimator_targets, run_targets, server_target, text_and_sound_targets

TARGETS = (
    *run_targets.TARGETS,
    *estimator_targets.TARGETS,
    *data_targets.TARGETS,
    *text_and_sound_targets.TARGETS,
    *server_target.TARGETS,
)
