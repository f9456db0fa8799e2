"""Networks that were trained elsewhere, as a posterior: modules, state dicts, or a folder of checkpoints."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from mixupmp.core.arrays import Array, as_tensor, is_images, read_arrays
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.fields import Fields
from mixupmp.core.given_network import check_sized, logits_of, read_given, tried
from mixupmp.core.layouts import ARRAY_LAYOUTS, check_layout
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.rows import Standardize
from mixupmp.core.spec import encode
from mixupmp.networks.catalog import Network
from mixupmp.networks.factories import NetworkChoice, check_logits, factory_for

Weights = Mapping[str, Tensor]
SUFFIXES = (".pt", ".pth", ".safetensors", ".ckpt", ".bin")
BESIDE = ("optimizer", "scheduler", "scaler", "training_args", "rng_state")  # begin names of files that hold no weights
NESTED = ("state_dict", "model_state_dict", "model", "net", "network")  # where a training loop's checkpoint has them
PREFIXES = ("module.", "model.", "_orig_mod.", "network.", "net.")  # of DataParallel, Lightning and torch.compile


def ensemble_of(
    members: Sequence[nn.Module | Weights | str | os.PathLike[str]] | str | os.PathLike[str],
    example: Tensor | Array | Mapping[str, Tensor | Array] | Sequence[Any],
    *,
    network: NetworkChoice = None,
    classes: Sequence[str] = (),
    standardize: Standardize | Fields | None = None,
    layout: str | None = None,
) -> Posterior:
    """A posterior whose samples are these classifiers, trained elsewhere; their probabilities are averaged.

    It is what a fit returns: it can be evaluated, calibrated, saved, reported on, served and exported.

    Parameters
    ----------
    members
        Trained modules, which are copied; state dicts, or files of them; or a folder of such files, or of folders with
        one each, in the order of their names. All but .safetensors are read with `weights_only=True`. A training loop's
        checkpoint may hold the weights as "state_dict", "model" or "net", and their names may have the prefixes of
        DataParallel, Lightning or torch.compile. Files named for an optimizer, scheduler or scaler are left out.
    example
        A few rows as the posterior is to take them: floats as the networks take them; pixels, of which uint8 are
        divided by 255 and uint16 by 65,535; PIL images; tokens; or a dict or tuple of arrays for networks that take
        several.
    network
        For state dicts: what builds the network, as `network=` of the estimators. With a name of the catalog ("cnn") a
        saved posterior can be loaded, served and reported on from the command line.
    classes
        Their names.
    standardize, layout
        The scaling of raw inputs and the axes of `example`, as for `posterior_of`.

    Returns
    -------
    Posterior
        Of one sample for each network.

    Examples
    --------
    >>> posterior = ensemble_of([first, second], X[:2])  # doctest: +SKIP
    >>> posterior = ensemble_of("checkpoints", X[:2], network=lambda: MyNetwork(10))  # doctest: +SKIP
    """
    given = _read_all(members)
    check(len(given) > 0, "members", members, "at least one network")
    shape = _shape(example, layout)
    factory = (
        None if network is None else factory_for(network, shape, len(classes), fine_tune=isinstance(network, nn.Module))
    )
    networks = [_built(f"member {name}", weights, factory) for name, weights in given.items()]
    for network in networks:
        check_sized(network, "members")
    inputs, scaling, encoder = read_given(networks[0], example, layout, standardize, "example")
    outputs = _outputs([scaling.prepare(network) for network in networks], scaling(inputs), len(classes))
    pixels = inputs.dtype == torch.uint8 if isinstance(scaling, Standardize) else None
    task = Task(Categorical(outputs), scaling, tuple(inputs.shape[1:]), tuple(classes), encoder, pixels)
    posterior = EnsemblePosterior(networks, task, len(networks))
    if isinstance(factory, Network):
        posterior.origin = {"spec": {"network": encode(factory)}}
    return posterior


def _shape(example: Any, layout: str | None) -> tuple[int, ...]:
    """Of one row, by which a network of the catalog is sized."""
    check_layout(layout)
    if is_images(example) or layout in ARRAY_LAYOUTS:
        return read_arrays(example, layout, name="example")[1].shape
    several = isinstance(example, Mapping | tuple)
    return Fields.of(example).shape if several else tuple(as_tensor(example, "example").shape[1:])


def _read_all(members: object) -> Mapping[str, nn.Module | Weights]:
    """Modules and state dicts by the names that errors call them: of files, their paths."""
    if isinstance(members, str | os.PathLike):
        return _read_folder(Path(members))
    if not isinstance(members, Sequence):
        must = "a list of networks or state dicts, also of one"
        raise InvalidArgument("members", type(members).__name__, must)
    read = (read_weights(Path(one)) if isinstance(one, str | os.PathLike) else one for one in members)
    return dict(zip(map(str, range(len(members))), read, strict=True))


def _read_folder(folder: Path) -> dict[str, Weights]:
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = _weight_files(inside) or [path for one in inside if one.is_dir() for path in _weight_files(one.iterdir())]
    must = f"a folder with files of weights ({', '.join(SUFFIXES)}), or a list of them"
    check(len(paths) > 0, "members", str(folder), must)
    return {str(path): read_weights(path) for path in paths}


def _weight_files(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.suffix in SUFFIXES and not path.name.startswith(BESIDE))


def read_weights(path: Path) -> Weights:
    """The state dict in a .safetensors or .pt file; nothing else of it is believed, and no code of it is run."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise BadData(f"{path} is no file of weights: it is not a plain file.")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises nearly every exception there is on damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadData(f"{path} is no file of weights: {reason}. Save state_dict(), best as safetensors.") from error
    for name in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    known = isinstance(content, Mapping) and len(content) > 0 and all(isinstance(v, Tensor) for v in content.values())
    if not known:
        raise BadData(f"{path} holds no state dict: save model.state_dict(), or a dictionary with it as 'state_dict'.")
    return dict(content)


def _built(name: str, given: nn.Module | Weights, factory: Callable[[], nn.Module] | None) -> nn.Module:
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)  # a posterior freezes its networks, and may put a hook before them
    check(isinstance(given, Mapping), "members", given, "modules, state dicts, or a folder of them")
    if factory is None:
        raise InvalidArgument("network", None, "the class or factory of the networks", "State dicts do not say it.")
    network = factory()
    try:
        network.load_state_dict(_renamed(given, set(network.state_dict())))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise InvalidArgument(
            "network", type(network).__name__, f"one that takes the weights of {name}", reason
        ) from None
    return network


def _renamed(weights: Weights, wanted: set[str]) -> dict[str, Tensor]:
    """The weights by the names that the network has for them, without wrappers' prefixes.

    What has no prefix where others have one is the wrapper's own, as the class weights of a loss.
    """
    names = dict(weights)
    while not names.keys() & wanted:
        prefix = next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in names)), None)
        if prefix is None:
            return dict(weights)
        names = {name.removeprefix(prefix): value for name, value in names.items() if name.startswith(prefix)}
    return names


@torch.no_grad()
def _outputs(networks: Sequence[nn.Module], rows: Tensor, classes: int) -> int:
    """How many classes the networks have; an error unless all have as many, and as many as there are names."""
    outputs = [logits_of(tried(network, rows)) for network in networks]
    found = [tuple(each.shape) for each in outputs]
    wanted = (len(rows), classes or found[0][-1])
    must = f"networks that return logits (rows, {wanted[1]})" + (", one for each of `classes`" if classes else "")
    check(all(shape == wanted for shape in found), "members", f"outputs of shape {sorted(set(found))}", must)
    for each in outputs:
        check_logits(each, "members")
    return wanted[1]
