"""Posteriors on disk: `save` writes the folder that a fit writes too, `load` reads either and runs no code from it.

Loading builds only networks of this package's own from what a folder says; any other has to be passed by the caller.
Before a byte of weights is read, the network says how many there must be.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from mixupmp.core import seeds
from mixupmp.core.errors import BadRun, InvalidArgument, MixupMPError, check
from mixupmp.core.foreign import Json
from mixupmp.core.member_summary import MemberSummary, left_out
from mixupmp.core.methods import Method
from mixupmp.core.posterior import AllDiverged, Posterior, Task
from mixupmp.core.predictive import Predictive
from mixupmp.core.rows import Standardize
from mixupmp.core.sampler_catalog import SAMPLERS
from mixupmp.core.samplers import Ensemble, Sampler
from mixupmp.core.spec import decode, encode
from mixupmp.core.version import __version__
from mixupmp.metrics.reliability import Result
from mixupmp.networks import Network
from mixupmp.networks.catalog import LAYERS_LIMIT, own_classes
from mixupmp.store.folder import RunFolder, check_writable, checked_config, parse_member
from mixupmp.store.manifest import Sealed
from mixupmp.store.sign import signed_by
from mixupmp.store.tensors import read_tensors

MEMBERS_LIMIT = 10_000  # predictions of more, from one small file, would keep a server busy for hours
NetworkClass = Callable[..., nn.Module]
Metrics = Mapping[str, float | None] | Result


def save(posterior: Posterior, folder: str | os.PathLike[str], metrics: Metrics | None = None) -> None:
    """Write a posterior to a new folder, whole or not at all; `metrics` are shown on its model card.

    Parameters
    ----------
    posterior
        Of `fit`, `posterior_of` or `ensemble_of`; estimators have a `save` of their own.
    folder
        Must not be there yet, or be empty.
    metrics
        Shown on its model card.
    """
    write_posterior(posterior, Path(folder), metrics)


def write_posterior(
    posterior: Posterior,
    target: Path,
    metrics: Metrics | None = None,
    metadata: Mapping[str, Json] | None = None,
    tensors: Mapping[str, dict[str, Tensor]] | None = None,
) -> None:
    """`save`, with further entries of config.json and further files of tensors, by name."""
    check(type(posterior) in SAMPLERS, "posterior", posterior, "a posterior by one of our samplers")
    shapes = [{name: value.shape for name, value in net.state_dict().items()} for net in posterior.networks]
    if any(other != shapes[0] for other in shapes):
        hint = "They are loaded by one factory: save those of each architecture in a folder of their own."
        raise InvalidArgument("posterior", posterior, "of networks of one architecture, to be saved", hint)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidArgument("folder", str(target), "new or empty", "Nothing is written over: choose another.")
    check_writable(target.parent)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        temporary.chmod(0o755)
        _write(posterior, RunFolder(temporary), metrics, metadata or {}, tensors or {})
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write(
    posterior: Posterior,
    run: RunFolder,
    metrics: Metrics | None,
    metadata: Mapping[str, Json],
    tensors: Mapping[str, dict[str, Tensor]],
) -> None:
    config = {**document_of(posterior), "wanted": posterior.wanted, "notes": list(posterior.notes)}
    run.create({**config, "saved_by": f"mixupmp {__version__}", **metadata})
    for name, content in tensors.items():
        run.files.write(name, safetensors.torch.save(content))
    summaries = _summaries_of(posterior)
    networks, out = iter(posterior.networks), left_out(summaries)
    for summary in summaries:
        run.finish_member(summary, {} if summary.member in out else _weights_of(next(networks)))
    run.finish_posterior(summaries, posterior)
    if metrics is not None:
        run.add_evaluation("as given when saved", metrics.to_dict() if isinstance(metrics, Result) else metrics)


def document_of(posterior: Posterior) -> dict[str, Json]:
    """The document of the plan that the posterior was fitted by, with what it is now where that differs."""
    origin = posterior.origin or {}
    spec = dict(origin.get("spec", {}))
    kind = SAMPLERS[type(posterior)]
    method = spec.get("method") or encode(Method("posterior", Predictive(), kind()))
    sampler = {**encode(kind()), **method["sampler"], "members": posterior.members}
    if hasattr(posterior, "seed"):  # what its members are drawn with when it is loaded
        spec["seed"] = posterior.seed
    network = type(posterior.networks[0])
    return {
        **origin,
        "spec": {
            "network": f"{network.__module__}.{network.__qualname__}",
            "seed": 0,
            **spec,
            "method": {**method, "sampler": sampler},
            "task": encode(posterior.task),
        },
    }


def _summaries_of(posterior: Posterior) -> list[MemberSummary]:
    """How the networks' fits ended; networks that did not come from a fit are only numbered."""
    if len(posterior.summaries) - len(left_out(posterior.summaries)) == len(posterior.networks):
        return list(posterior.summaries)
    return [MemberSummary(number, 0, 0, 0.0) for number in range(len(posterior.networks))]


def _weights_of(network: nn.Module) -> dict[str, Tensor]:
    # Clones, because safetensors refuses tensors that share memory, as tied weights do.
    return {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in network.state_dict().items()
    }


def load(
    folder: str | os.PathLike[str],
    network: NetworkClass | None = None,
    verify_key: str | os.PathLike[str] | None = None,
) -> Posterior:
    """Read a posterior from a finished run or from what `save` wrote. Everything is checked; no code is run.

    Parameters
    ----------
    folder
        A run's folder, or one that `save` wrote.
    network
        The class or factory of a network that is not this package's own; a class that was saved by its import path with
        arguments is called with those.
    verify_key
        The file of an Ed25519 public key: the folder must have been signed with its private part, see
        `mixupmp.store.sign`.

    Returns
    -------
    Posterior
        With the bits it had when it was saved.
    """
    sealed = Sealed(folder, None if verify_key is None else signed_by(verify_key))
    posterior = read_posterior(sealed, read_config(sealed), network)
    sealed.check_rest()
    return posterior


def read_config(sealed: Sealed) -> dict[str, Json]:
    """A sealed folder's config.json."""
    return checked_config(sealed.json("config.json"), sealed.path)


def read_posterior(sealed: Sealed, config: dict[str, Json], network: NetworkClass | None = None) -> Posterior:
    """The posterior in a sealed folder with this configuration."""
    with blaming(sealed.path / "config.json"):
        spec = config["spec"]
        task = decode(spec["task"], Task, "task")
        sampler: Sampler = decode(spec["method"]["sampler"], Sampler, "method.sampler")  # type: ignore[type-abstract]
        members = sampler.members  # type: ignore[attr-defined]
        check(members <= MEMBERS_LIMIT, "members", members, f"at most {MEMBERS_LIMIT}")
        factory = partial(_prepared, _factory(spec["network"], network, sealed.path), task)
        if hasattr(sampler, "adapt"):
            check(members <= LAYERS_LIMIT, "members", members, f"at most {LAYERS_LIMIT}")
            # A network of the catalog, which is built without memory, has its layers in the order of their use.
            factory = partial(_adapted, factory, sampler.adapt, None if network is None else task.example())
        built = _form(factory, trusted=network is not None)
        separate = isinstance(sampler, Ensemble) and isinstance(task.standardize, Standardize)
        if network is None and not separate:
            _check_input(built, task, rows=2)
    form = {name: value.detach().to("meta") for name, value in built.state_dict().items()}
    summaries = _summaries(sealed)
    out = left_out(summaries)
    finished = [
        (s, {} if s.member in out else read_tensors(sealed, f"members/{s.member:03d}.safetensors", form))
        for s in summaries
    ]
    changes = None
    if hasattr(sampler, "restore"):
        parameters = {name: value.detach().to("meta") for name, value in built.named_parameters()}
        drawn = {name: value.expand(members, *value.shape) for name, value in parameters.items()}
        changes = read_tensors(sealed, "posterior.safetensors", drawn, all_of_them=False)
    with blaming(sealed.path / "config.json"), seeds.global_seed(0):  # building draws weights from torch's generator
        seed = decode(spec["seed"], int, "seed")
        try:
            posterior = Posterior.from_members(finished, lambda _: factory(), task, sampler, seed, tensors=changes)
        except AllDiverged:
            raise BadRun(f"{sealed.path} holds no member with weights: there is nothing to load.") from None
        if network is None and separate:
            _check_input(posterior.networks[0], task, rows=0)
        posterior.wanted = decode(config.get("wanted", posterior.wanted), int, "wanted")
        posterior.notes = tuple(map(str, config.get("notes", posterior.notes)))
        posterior.origin = {name: config[name] for name in ("spec", "fingerprints", "versions") if name in config}
    return posterior


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Report whatever does not describe a posterior as a fault of the file that should."""
    try:
        yield
    except BadRun:
        raise
    except (MixupMPError, LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise BadRun(f"{path} does not describe a posterior: {type(error).__name__}: {error}") from error


def _factory(document: Json, given: NetworkClass | None, folder: Path) -> Callable[[], nn.Module]:
    """What builds the network: this package's own by name, any other only from the caller."""
    described = document if isinstance(document, Mapping) else {"path": document}
    path, arguments = described.get("path"), described.get("arguments", {})
    if given is not None:
        check(callable(given) and not isinstance(given, nn.Module), "network", given, "a class or factory of networks")
        named = f"{getattr(given, '__module__', '')}.{getattr(given, '__qualname__', '')}"
        return (lambda: given(**arguments)) if arguments and named == path else given
    if path not in own_classes() or "arguments" not in described:
        shown = f"the network {path[:200]}" if isinstance(path, str) else "a network of your own"
        raise BadRun(
            f"{folder} needs {shown}, and a folder's own code is never imported. In Python, pass its class or a "
            f"function that builds it: load({str(folder)!r}, network=MyNetwork)"
        )
    return decode(document, Network, "network")


def _prepared(factory: Callable[[], nn.Module], task: Task) -> nn.Module:
    built = factory()
    if not isinstance(built, nn.Module):
        raise InvalidArgument("network", built, "a class or factory that returns an nn.Module")
    return task.prepare(built)


def _adapted(factory: Callable[[], nn.Module], adapt: Callable[..., nn.Module], rows: Tensor | None) -> nn.Module:
    return adapt(factory(), rows)


def _form(factory: Callable[[], nn.Module], trusted: bool) -> nn.Module:
    """A network for the names, shapes and types of its tensors. One that a folder describes is built without memory."""
    with torch.device("cpu" if trusted else "meta"), seeds.global_seed(0):
        return factory()


def _check_input(network: nn.Module, task: Task, rows: int) -> None:
    """Raise unless a network takes rows of the task's shape, which may be too large for memory.

    On the meta device no row takes any, but a forward pass there imports torch._dynamo and sympy, which takes as long
    as importing torch. So networks that are known to accept it are given no rows, once they have their weights.
    """
    device = next(network.parameters()).device
    scaled = task.standardize(torch.empty(0, *task.input_shape))
    was_training = network.training
    with torch.no_grad():
        network.eval()(torch.empty(rows, *scaled.shape[1:], dtype=scaled.dtype, device=device))
    network.train(was_training)


def _summaries(sealed: Sealed) -> list[MemberSummary]:
    summaries = []
    for name in sealed.names(r"members/\d{3,6}\.json"):
        with blaming(sealed.path / name):
            summary, _ = parse_member(sealed.json(name), sealed.path / name)
            check(summary.member == int(Path(name).stem), "member", summary.member, "the number in the file's name")
            summaries.append(replace(summary, history=list(summary.history)))
    return summaries
