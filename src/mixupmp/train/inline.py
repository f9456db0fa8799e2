"""The plain engine: one member after another, in this process."""

from __future__ import annotations

from mixupmp.train.job import Finished, Job, fit_member


def run(job: Job) -> list[Finished]:
    return [fit_member(job, member) for member in job.members]
