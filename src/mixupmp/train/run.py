"""The verb `fit`: a plan in, a posterior out, by whichever engine suits; every engine fits the same members."""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Literal, get_args

import torch

from mixupmp.core.errors import BadRun, check, is_whole
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.threads import cores
from mixupmp.store.folder import RunChanged, RunFolder, check_writable, differences
from mixupmp.train import processes
from mixupmp.train.factory import check_factory
from mixupmp.train.features import on_fixed_features
from mixupmp.train.job import CheckpointInterval, Finished, FitInterrupted, Job, fit_member, stop_on_signals
from mixupmp.train.member import MemberFit, StopTraining
from mixupmp.train.progress import Callback, ProgressBars
from mixupmp.train.state import size_limit
from mixupmp.train.vectorized import engine as vectorized
from mixupmp.train.vectorized.group import unsuited, vectorizable

Engine = Literal["auto", "inline", "vectorized", "processes", "ray"]
ENGINES = get_args(Engine)
_step_seconds: dict[tuple[object, ...], float] = {}  # by what decides how long a step takes
WORTH_A_WORKER = 8.0  # seconds of training below which starting worker processes gains nothing


def fit(
    plan: Plan,
    *,
    engine: Engine = "auto",
    run: str | Path | RunFolder | None = None,
    resume: bool = False,
    override: bool = False,
    members: Sequence[int] | None = None,
    checkpoints: CheckpointInterval | None = None,
    progress: Callback | bool = False,
    address: str | None = None,
    keep_collapsed: bool = False,
) -> Posterior:
    """Draw posterior samples: fit a network to each simulated future.

    Parameters
    ----------
    plan
        What is fitted, see `plan_for`.
    engine
        How members are computed: one by one in this process, vectorized, in worker processes, or on a Ray cluster.
    run
        A folder for checkpoints, weights and metrics. SIGINT and SIGTERM then end the fit with a checkpoint.
    resume
        Go on with an interrupted run; the result has the same bits as without the interruption. A run of another
        configuration, torch version or CPU capability is refused with `RunChanged`, unless `override` is set.
    members
        Fit only these.
    checkpoints
        How often they are written.
    progress
        True for bars on a terminal, or a callback.
    address
        Of a Ray cluster; None starts one that listens on this machine only.
    keep_collapsed
        Keep members whose outputs do not depend on their inputs, or that predict one class where others have learned.
        They are left out otherwise, like diverged ones; either way the posterior's `notes` name them.
    override
        Resume also where the configuration or the machine differs.

    Returns
    -------
    Posterior
        Of the members that did not diverge.
    """
    check(engine in ENGINES, "engine", engine, f"one of {', '.join(ENGINES)}")
    check(isinstance(progress, bool | Callback), "progress", progress, "True, False or a Callback")
    wanted = _members(plan, members)
    check_factory(plan)
    fitted, why_not = on_fixed_features(plan)
    folder = run if run is None or isinstance(run, RunFolder) else RunFolder(run)
    with _shown(progress, len(wanted)) as callback:
        chosen = choose_engine(fitted, len(wanted)) if engine == "auto" else engine
        callback.on_message(f"engine: {chosen}")
        interval, stop = checkpoints or CheckpointInterval(), callback.should_stop
        job = Job(fitted, wanted, folder, interval, callback, stop, address, keep_collapsed=keep_collapsed)
        if why_not is not None:
            callback.on_message(why_not)
        return _fitted(plan, job, chosen, resume, override)


def _shown(progress: Callback | bool, members: int) -> AbstractContextManager[Callback]:
    if isinstance(progress, Callback):
        return nullcontext(progress)
    return ProgressBars(members) if progress else nullcontext(Callback())


def _fitted(plan: Plan, job: Job, engine: str, resume: bool, override: bool) -> Posterior:
    if job.folder is not None:
        return _fit_in_folder(plan, job, job.folder, engine, resume, override)
    try:
        return plan.posterior(run_engine(engine, job))
    except StopTraining:
        raise FitInterrupted(None, None) from None


def _fit_in_folder(plan: Plan, job: Job, folder: RunFolder, engine: str, resume: bool, override: bool) -> Posterior:
    """Fit the members that a run folder does not have yet; the posterior of all."""
    check_writable(folder.path)
    with folder.locked():
        _open(folder, plan, _arithmetic(engine, job.plan is not plan), resume, override)
        finished = _fit_missing(job, folder, engine, override)
        posterior = plan.posterior(finished)
        folder.finish_posterior([summary for summary, _ in finished], posterior)
        return posterior


def choose_engine(plan: Plan, members: int) -> str:
    """The engine that suits: chosen by rule where it changes bits, and by timing a few steps where it does not.

    A fully connected network is fitted vectorized, also where there is one member, so that how it is computed does not
    depend on how many there are. Other networks on a CPU go to worker processes if there is more than a few seconds of
    work; a GPU is used by one member after another.
    """
    if unsuited(plan) is None and vectorizable(plan.template, plan.task.input_shape):
        return "vectorized"
    if members == 1 or plan.device != "cpu" or cores() // plan.recipe.threads < 2 or sys.platform == "win32":
        return "inline"
    return "processes" if member_seconds(plan) * members > WORTH_A_WORKER else "inline"


def run_engine(engine: str, job: Job) -> list[Finished]:
    """Fit the job's members with this engine."""
    if engine == "inline":
        return [fit_member(job, member) for member in job.members]
    if engine == "processes":
        return processes.run(job)
    if engine == "vectorized":
        return vectorized.run(job)
    from mixupmp.train import ray  # an extra

    return ray.run(job)


def member_seconds(plan: Plan) -> float:
    """How long one member takes, from its first steps; at most about two seconds are spent on it, once for a step.

    A search fits the same network to batches of the same size many times.
    """
    recipe, template = plan.recipe, plan.template
    size = min(recipe.batch_size or len(plan.train), len(plan.train))
    shapes = tuple(parameter.shape for parameter in template.parameters())
    pseudo = plan.method.predictive.ratio > 0 and (recipe.pseudo_batch_size or size)
    key = (type(template), shapes, plan.task.input_shape, size, pseudo, recipe.threads, recipe.precision)
    if key not in _step_seconds:
        timer = _StepTimer()
        with contextlib.suppress(StopTraining):
            MemberFit(plan, 0).run(timer)
        _step_seconds[key] = timer.fastest
    return recipe.epochs * ceil(len(plan.train) / size) * _step_seconds[key]


class _StepTimer:
    """Ends a fit after a few steps."""

    def __init__(self) -> None:
        self.fastest, self.steps, self.total = float("inf"), 0, 0.0
        self.last = time.perf_counter()

    def on_step(self, fit: MemberFit) -> None:
        now = time.perf_counter()
        self.fastest, self.total = min(self.fastest, now - self.last), self.total + now - self.last
        self.last = now
        self.steps += 1
        if self.steps >= 5 or self.total > 2:
            raise StopTraining


def _members(plan: Plan, members: Sequence[int] | None) -> tuple[int, ...]:
    networks = plan.method.sampler.networks
    if members is None:
        return tuple(range(networks))
    known = all(is_whole(m, 0) and m < networks for m in members) and len(members) == len(set(members)) > 0
    check(known, "members", list(members), f"different numbers from 0 to {networks - 1}")
    return tuple(members)


def _open(folder: RunFolder, plan: Plan, arithmetic: str, resume: bool, override: bool) -> None:
    """Create the run folder, or check that the run in it can be resumed."""
    document = {**plan.document(), "arithmetic": arithmetic}
    if not folder.is_started():
        if resume and not folder.is_unused():
            raise BadRun(f"{folder.path} holds no config.json: there is no run to resume.")
        spec = {**document["spec"], **(folder.settings or {})}
        folder.create({**document, "spec": spec, "machine": _machine(plan), "command": sys.argv})
        return
    if not resume:
        raise BadRun(f"{folder.path} holds a run already: resume it, or choose another folder.")
    config = folder.config()
    before = {key: config.get(key) for key in document}
    before["spec"] = {key: config["spec"].get(key) for key in document["spec"]}  # not where the rows were read from
    changed = differences(before, document)
    if changed and not override:
        raise _changed(folder, "was started from something else", changed, "Give the same settings")


def _changed(folder: RunFolder, what: str, lines: list[str], remedy: str) -> RunChanged:
    listed = "\n  ".join(lines)
    return RunChanged(
        f"{folder.path} {what}:\n  {listed}\n{remedy}, start a new run, or override this check (--override)."
    )


def _arithmetic(engine: str, features: bool) -> str:
    # inline, processes and ray give the same bits, so a run may change between them; vectorized agrees to 1e-5.
    order = "vectorized" if engine == "vectorized" else "one by one"
    return f"{order}, on features" if features else order


def _machine(plan: Plan) -> dict[str, str | int]:
    return {"platform": platform.platform(), "python": platform.python_version(), "cores": cores(), **_processor(plan)}


def _processor(plan: Plan) -> dict[str, str]:
    """What the last bits of a result depend on beside the plan: the vector instructions, and a GPU's model."""
    device = torch.device(plan.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"capability": torch.backends.cpu.get_cpu_capability(), "device": name}


def _check_processor(folder: RunFolder, plan: Plan, machine: dict[str, object]) -> None:
    """Refuse to go on where the rest of a run would have other bits than its beginning."""
    now = _processor(plan)
    changed = differences({key: machine.get(key, value) for key, value in now.items()}, now, "machine")
    if changed:
        what = "was started on a processor that rounds differently, so the members would have other bits"
        raise _changed(folder, what, changed, "Resume it on such a machine")


def _fit_missing(job: Job, folder: RunFolder, engine: str, override: bool) -> list[Finished]:
    """Read what is finished, and fit what is not: damage is found before hours of training."""
    done: dict[int, Finished] = {}
    for member in job.members:
        if folder.summary(member) is not None:
            limit = size_limit(job.plan.completed(job.plan.template.state_dict()))
            done[member] = processes.read_finished(folder, member, limit)
    for summary, _ in done.values():
        job.callback.on_member_end(summary)
    missing = tuple(member for member in job.members if member not in done)
    fitted: dict[int, Finished] = {}
    if missing:
        machine = folder.config()["machine"]
        if not override:
            _check_processor(folder, job.plan, machine)
        with stop_on_signals() as request:
            stop = lambda: request() or job.callback.should_stop()  # noqa: E731
            rest = replace(job, members=missing, all_members=job.members, cores=machine["cores"], stop=stop)
            try:
                fitted = {finished[0].member: finished for finished in run_engine(engine, rest)}
            except StopTraining:
                raise FitInterrupted(folder.path, request.number) from None
    finished = done | fitted
    return [finished[member] for member in job.members]
