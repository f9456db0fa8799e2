"""Fitting: a plan in, a posterior out, by whichever engine suits; every engine gives the same members."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from mixupmp.core.errors import BadRun, MixupMPError, check, whole
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.threads import cores, pinned_threads
from mixupmp.store.folder import RunChanged, RunFolder, check_writable, differences
from mixupmp.train.engine import ENGINES, choose_engine, run_engine
from mixupmp.train.factory import build_network, check_factory
from mixupmp.train.job import Every, Finished, Job, Progress, Quiet
from mixupmp.train.member import Interrupted
from mixupmp.train.progress import Bars
from mixupmp.train.signals import FitInterrupted, stop_on_signals

__all__ = ["ENGINES", "Every", "FitInterrupted", "Plan", "RunChanged", "RunFolder", "fit"]

Engine = Literal["auto", "inline", "vectorized", "processes", "ray"]


class AllDiverged(MixupMPError, ArithmeticError):
    """Not one member had a finite loss to its end."""


def fit(
    plan: Plan,
    *,
    engine: Engine = "auto",
    run: str | Path | RunFolder | None = None,
    resume: bool = False,
    override: bool = False,
    members: Sequence[int] | None = None,
    every: Every | None = None,
    progress: Progress | bool = False,
    address: str | None = None,
) -> Posterior:
    """Draw posterior samples: fit a network to each simulated future.

    With `run`, everything is kept in that folder while it happens; `resume` goes on with a run that was interrupted
    and ends with the same bits, and refuses one that was started from something else unless `override` is set.
    `members` trains only some of them. `progress=True` shows bars on a terminal. `address` is that of a Ray cluster.
    """
    check(engine in ENGINES, "engine", engine, f"one of {', '.join(ENGINES)}")
    wanted = _wanted(plan, members)
    check_factory(plan)
    folder = run if run is None or isinstance(run, RunFolder) else RunFolder(run)
    with ExitStack() as stack:
        shown: Progress = progress if not isinstance(progress, bool) else Quiet()
        if progress is True:
            shown = stack.enter_context(Bars(len(wanted)))
        chosen = choose_engine(plan, len(wanted)) if engine == "auto" else engine
        shown.say(f"engine: {chosen}")
        job = Job(plan, wanted, None, every or Every(), shown, address=address)
        if folder is None:
            return _posterior(plan, run_engine(chosen, job), len(wanted))
        job.folder = folder
        check_writable(folder.path)
        stack.enter_context(folder.locked())
        _open(folder, plan, chosen, resume, override)
        finished = _keep_going(job, folder, chosen)
        posterior = _posterior(plan, finished, len(wanted))
        folder.finish_posterior([summary for summary, _ in finished], posterior)
        return posterior


def _wanted(plan: Plan, members: Sequence[int] | None) -> tuple[int, ...]:
    networks = plan.method.sampler.networks
    if members is None:
        return tuple(range(networks))
    known = all(whole(m, 0) and m < networks for m in members) and len(members) == len(set(members)) > 0
    check(known, "members", list(members), f"different numbers from 0 to {networks - 1}")
    return tuple(members)


def _open(folder: RunFolder, plan: Plan, engine: str, resume: bool, override: bool) -> None:
    """Start the run's folder, or check that it can be gone on with."""
    description = {"plan": plan.describe(), "arithmetic": _arithmetic(engine)}
    if not folder.is_started():
        if resume and not folder.is_unused():
            raise BadRun(f"{folder.path} holds no config.json: there is no run to resume.")
        folder.create(description | {"machine": _machine(), "command": sys.argv})
        return
    if not resume:
        raise BadRun(f"{folder.path} holds a run already: resume it, or choose another folder.")
    config = folder.config()
    changed = differences({key: config.get(key) for key in description}, description)
    if changed and not override:
        listed = "\n  ".join(changed)
        raise RunChanged(
            f"{folder.path} was started from something else:\n  {listed}\n"
            "Give the same settings, start a new run, or override this check (--override)."
        )


def _arithmetic(engine: str) -> str:
    # inline, processes and ray give the same bits, so a run may change between them; vectorized agrees to 1e-5.
    return "vectorized" if engine == "vectorized" else "one by one"


def _machine() -> dict[str, Any]:
    return {"platform": platform.platform(), "python": platform.python_version(), "cores": cores(),
            "capability": torch.backends.cpu.get_cpu_capability()}  # fmt: skip


def _keep_going(job: Job, folder: RunFolder, engine: str) -> list[Finished]:
    """Train what is not finished, and read back what is."""
    done = {member: summary for member in job.members if (summary := folder.summary(member)) is not None}
    for summary in done.values():
        job.progress.finished(summary)
    missing = tuple(member for member in job.members if member not in done)
    trained: dict[int, Finished] = {}
    with stop_on_signals(active=True) as stop:
        try:
            if missing:
                started_on = folder.config()["machine"]["cores"]
                left = replace(job, members=missing, everyone=job.members, cores=started_on, stop=stop)
                results = run_engine(engine, left)
                trained = {summary.member: (summary, weights) for summary, weights in results}
        except Interrupted:
            assert stop.number is not None
            raise FitInterrupted(folder.path, stop.number) from None
    return [
        trained[m] if m in trained else (done[m], folder.weights(m) if done[m].diverged_at is None else {})
        for m in job.members
    ]


def _posterior(plan: Plan, finished: list[Finished], wanted: int) -> Posterior:
    """The posterior of the members that stayed finite."""
    kept = [(summary, weights) for summary, weights in finished if summary.diverged_at is None]
    notes = [f"member {s.member} diverged at step {s.diverged_at}" for s, _ in finished if s.diverged_at is not None]
    if not kept:
        raise AllDiverged(
            f"no member is left: {'; '.join(notes)}. Lower the learning rate ({plan.recipe.learning_rate})."
        )
    networks = []
    for summary, weights in kept:
        network = build_network(plan, summary.member)
        network.load_state_dict(weights)
        networks.append(network.to(plan.device))
    with pinned_threads(plan.recipe.threads):  # a Laplace approximation computes as much as a fit
        posterior = plan.method.sampler.posterior(networks, plan.task, plan.training_data(), plan.seed)
    posterior.wanted, posterior.notes = wanted, (*notes, *posterior.notes)
    posterior.summaries = [summary for summary, _ in finished]
    posterior.origin = plan.describe()
    return posterior
