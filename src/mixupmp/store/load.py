"""Posteriors on disk: `save` writes the folder that a fit writes too, `load` reads either and runs no code from it.

A network is kept as an import path with arguments. Loading builds only our own classes by name; any other has to be
handed over by the caller. Before a byte of weights is read, the network says how many there must be.
"""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mixupmp.core import seeds
from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.errors import BadRun, InvalidArgument, MixupMPError, check, whole
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.plan import plain
from mixupmp.core.posterior import EnsemblePosterior, Posterior, Summary, Task, left_out, member_notes
from mixupmp.core.rows import Standardize
from mixupmp.core.shared import SharedEnsemble, SharedPosterior
from mixupmp.core.version import __version__
from mixupmp.metrics.reliability import Result
from mixupmp.networks import Network
from mixupmp.networks.catalog import own_classes
from mixupmp.store.folder import RunFolder, check_writable, checked_config, parse_member
from mixupmp.store.manifest import Sealed
from mixupmp.store.sign import signed_by
from mixupmp.store.tensors import read_tensors

LAYERS_LIMIT = 1000  # a hostile depth must not keep us building
MEMBERS_LIMIT = 100_000
_SAMPLERS = {
    EnsemblePosterior: "Ensemble",
    DropoutPosterior: "DropoutMasks",
    LaplacePosterior: "Laplace",
    SharedPosterior: "SharedEnsemble",
}


def save(
    posterior: Posterior, folder: str | os.PathLike[str], metrics: Mapping[str, float | None] | Result | None = None
) -> None:
    """Write a posterior to a new folder, whole or not at all; `metrics` are shown on its model card."""
    check(type(posterior) in _SAMPLERS, "posterior", posterior, "a posterior by one of our samplers")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidArgument("folder", str(target), "new or empty", "Nothing is written over: choose another.")
    check_writable(target.parent)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        temporary.chmod(0o755)
        _write(posterior, RunFolder(temporary), metrics)
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write(posterior: Posterior, run: RunFolder, metrics: Mapping[str, float | None] | Result | None) -> None:
    run.create({
        "plan": _plan_of(posterior),
        "wanted": posterior.wanted,
        "notes": list(posterior.notes),
        "saved_by": f"mixupmp {__version__}",
    })  # fmt: skip
    stories = _stories_of(posterior)
    kept, out = iter(posterior.networks), left_out(stories)
    for story in stories:
        run.finish_member(story, {} if story.member in out else _weights_of(next(kept)))
    run.finish_posterior(stories, posterior)
    if metrics is not None:
        run.add_evaluation("as given when saved", metrics.to_dict() if isinstance(metrics, Result) else metrics)


def _plan_of(posterior: Posterior) -> dict[str, Any]:
    """What the posterior was fitted by, with what it is now where that differs."""
    origin = posterior.origin or {}
    network = type(posterior.networks[0])
    method = origin.get("method", {"name": "A posterior"})
    kept = method.get("sampler", {})
    sampler = {**kept, "type": _SAMPLERS[type(posterior)], "members": posterior.members}
    seed = posterior.seed if isinstance(posterior, DropoutPosterior) else origin.get("seed", 0)
    return {
        **origin,
        "method": {**method, "sampler": sampler},
        "network": origin.get("network", f"{network.__module__}.{network.__qualname__}"),
        "task": plain(posterior.task),
        "seed": seed,
    }


def _stories_of(posterior: Posterior) -> list[Summary]:
    """How the networks' fits ended; networks that did not come from a fit are only numbered."""
    if len(posterior.summaries) - len(left_out(posterior.summaries)) == len(posterior.networks):
        return list(posterior.summaries)
    return [Summary(number, 0, 0, 0.0) for number in range(len(posterior.networks))]


def _weights_of(network: nn.Module) -> dict[str, Tensor]:
    # Clones, because safetensors refuses tensors that share memory, as tied weights do.
    return {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in network.state_dict().items()
    }


def load(
    folder: str | os.PathLike[str],
    network: Callable[..., nn.Module] | None = None,
    verify_key: str | os.PathLike[str] | None = None,
) -> Posterior:
    """Read a posterior from a finished run or from what `save` wrote. Everything is checked; no code is run.

    `network` is the class or factory of a network that is not one of ours; a class that was saved by its import path
    with arguments is called with those. `verify_key` is the file of an Ed25519 public key: the folder must have been
    signed with its private part (see `mixupmp.store.sign`).
    """
    sealed = Sealed(folder, None if verify_key is None else signed_by(verify_key))
    config = checked_config(sealed.json("config.json"), sealed.path)
    with _telling(sealed.path / "config.json"):
        plan = config["plan"]
        task = _task(plan["task"])
        sampler = plan["method"]["sampler"]
        factory = _factory(plan["network"], network, sealed.path)
        if sampler["type"] == "SharedEnsemble":
            check(
                whole(sampler["members"]) and sampler["members"] <= LAYERS_LIMIT,
                "members",
                sampler["members"],
                f"a whole number in 1..{LAYERS_LIMIT}",
            )
            factory = partial(_shared, factory, sampler["members"])
        form = _form(factory, trusted=network is not None)
    stories = _stories(sealed)
    networks, out = [], left_out(stories)
    for story in stories:
        if story.member not in out:
            weights = read_tensors(sealed, f"members/{story.member:03d}.safetensors", form)
            networks.append(_with_weights(factory, weights))
    if not networks:
        raise BadRun(f"{sealed.path} holds no member with weights: there is nothing to load.")
    with _telling(sealed.path / "config.json"):
        posterior = _posterior(sealed, sampler, networks, task, plan["seed"])
        posterior.wanted = int(config.get("wanted", len(stories)))
        posterior.notes = tuple(map(str, config.get("notes", member_notes(stories))))
    posterior.summaries, posterior.origin = stories, plan
    sealed.check_rest()
    return posterior


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Whatever does not fit in a described posterior is told as a fault of the file that describes it."""
    try:
        yield
    except BadRun:
        raise
    except (MixupMPError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise BadRun(f"{path} does not describe a posterior: {type(error).__name__}: {error}") from error


def _task(told: dict[str, Any]) -> Task:
    kind = told["likelihood"]["type"]
    check(kind in ("Categorical", "Gaussian"), "likelihood", kind, "Categorical or Gaussian")
    likelihood = Gaussian() if kind == "Gaussian" else Categorical(told["likelihood"]["classes"])
    scale = told["standardize"]
    standardize = Standardize(tuple(map(float, scale["mean"])), tuple(map(float, scale["deviation"])))
    return Task(likelihood, standardize, tuple(map(int, told["input_shape"])), tuple(map(str, told["classes"])))


def _factory(told: Any, given: Callable[..., nn.Module] | None, folder: Path) -> Callable[[], nn.Module]:
    """What builds the network: ours by name, anybody else's only from the caller."""
    path, arguments = (told["path"], told["arguments"]) if isinstance(told, dict) and "path" in told else (told, {})
    if given is not None:
        check(callable(given) and not isinstance(given, nn.Module), "network", given, "a class or factory of networks")
        named = f"{getattr(given, '__module__', '')}.{getattr(given, '__qualname__', '')}"
        return (lambda: given(**arguments)) if arguments and named == path else given
    if not isinstance(path, str) or path not in own_classes() or not isinstance(told, dict):
        shown = (
            path if isinstance(path, str) else f"of the kind {told.get('type') if isinstance(told, dict) else told!r}"
        )
        raise BadRun(
            f"{folder} needs the network {shown[:200]}, and a folder's own code is never imported. Import it yourself "
            f"and pass its class or factory: load({str(folder)!r}, network=MyNetwork)"
        )
    known = inspect.signature(own_classes()[path]).parameters
    for name, value in arguments.items():
        check(name in known, f"network argument {name}", value, f"one of {', '.join(known)}")
        small = len(value) <= LAYERS_LIMIT if isinstance(value, list) else name != "depth" or value <= LAYERS_LIMIT
        check(small, f"network argument {name}", value, f"at most {LAYERS_LIMIT}")
    return Network(path, {k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})


def _shared(factory: Callable[[], nn.Module], members: int) -> nn.Module:
    return SharedEnsemble(members).adapt(factory())


def _form(factory: Callable[[], nn.Module], trusted: bool) -> dict[str, Tensor]:
    """The names, shapes and types of the network's tensors. One described by a folder is built without memory."""
    with torch.device("cpu" if trusted else "meta"), seeds.global_seed(0):
        built = factory()
    if not isinstance(built, nn.Module):
        raise InvalidArgument("network", built, "a class or factory that returns an nn.Module")
    return {name: value.detach().to("meta") for name, value in built.state_dict().items()}


def _with_weights(factory: Callable[[], nn.Module], weights: dict[str, Tensor]) -> nn.Module:
    with seeds.global_seed(0):  # building draws weights: leave the caller's generator alone
        built = factory()
    built.load_state_dict(weights)
    return built


def _stories(sealed: Sealed) -> list[Summary]:
    stories = []
    for name in sealed.names(r"members/\d{3,6}\.json"):
        with _telling(sealed.path / name):
            story, _ = parse_member(sealed.json(name), sealed.path / name)
            check(story.member == int(Path(name).stem), "member", story.member, "the number in the file's name")
            stories.append(replace(story, history=list(story.history)))
    return stories


def _posterior(sealed: Sealed, sampler: dict[str, Any], networks: list[nn.Module], task: Task, seed: int) -> Posterior:
    kind, members = sampler["type"], sampler["members"]
    check(kind in _SAMPLERS.values(), "sampler", kind, f"one of {', '.join(_SAMPLERS.values())}")
    check(whole(members) and members <= MEMBERS_LIMIT, "members", members, f"a whole number in 1..{MEMBERS_LIMIT}")
    if kind == "Ensemble":
        return EnsemblePosterior(networks, task, members)
    check(len(networks) == 1, "members", len(networks), f"one network for {kind}")
    if kind == "SharedEnsemble":
        return SharedPosterior(networks, task)
    if kind == "DropoutMasks":
        return DropoutPosterior(networks, task, members, seed)
    parameters = {name: value.detach().to("meta") for name, value in networks[0].named_parameters()}
    form = {name: value.expand(members, *value.shape) for name, value in parameters.items()}
    return LaplacePosterior(networks, task, read_tensors(sealed, "posterior.safetensors", form, all_of_them=False))
