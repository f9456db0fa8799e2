"""Which engine, and how it is called."""

from __future__ import annotations

import time

from mixupmp.core.plan import Plan
from mixupmp.core.threads import cores
from mixupmp.train import inline
from mixupmp.train import pool as processes
from mixupmp.train.factory import build_network
from mixupmp.train.job import Finished, Job
from mixupmp.train.member import MemberFit
from mixupmp.train.vectorized import engine as vectorized
from mixupmp.train.vectorized.group import unsuited, vectorizable

ENGINES = ("auto", "inline", "vectorized", "processes", "ray")
WORTH_A_WORKER = 8.0  # seconds of work under which starting worker processes gains nothing


def choose_engine(plan: Plan, members: int) -> str:
    """The engine that suits: decided by rule where it changes bits, and by a short measurement where it does not.

    A fully connected network trains all members in one program, also where there is one, so that how it is computed
    does not depend on how many there are. Other networks on a CPU go to worker processes if there is more than a few
    seconds of work; a GPU is used by one member after another.
    """
    alike = unsuited(plan) is None and vectorizable(build_network(plan, 0), plan.task.input_shape)
    if plan.device == "cpu" and alike:
        return "vectorized"
    if members == 1 or plan.device != "cpu" or cores() // plan.recipe.threads < 2:
        return "inline"
    return "processes" if _seconds(plan) * members > WORTH_A_WORKER else "inline"


def _seconds(plan: Plan) -> float:
    """How long one member will take, by its first steps; at most about two seconds are spent on it."""
    fit = MemberFit(plan, 0)
    clock = _Clock()
    try:
        fit.run(clock)
    except _Enough:
        return fit.total_steps * clock.fastest
    return clock.total


class _Enough(Exception):
    pass


class _Clock:
    """Watches a fit for a few steps and then ends it."""

    def __init__(self) -> None:
        self.fastest, self.steps, self.total = float("inf"), 0, 0.0
        self.last = time.perf_counter()

    def stepped(self, fit: MemberFit) -> None:
        now = time.perf_counter()
        self.fastest, self.total = min(self.fastest, now - self.last), self.total + now - self.last
        self.last = now
        self.steps += 1
        if self.steps >= 5 or self.total > 2:
            raise _Enough


def run_engine(engine: str, job: Job) -> list[Finished]:
    """Train the job's members with this engine."""
    if engine == "inline":
        return inline.run(job)
    if engine == "processes":
        return processes.run(job)
    if engine == "vectorized":
        return vectorized.run(job)
    from mixupmp.train import ray as on_ray

    return on_ray.run(job)
