"""All members in one program."""

from __future__ import annotations

from mixupmp.fit.job import Finished, Job


def run(job: Job) -> list[Finished]:
    return []
