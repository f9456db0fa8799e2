"""Posteriors on disk: the same bits come back, and nothing that was tampered with is read."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from mixupmp import Gaussian, Method, Recipe, deep_ensemble, laplace, load, mc_dropout, mixup_mp, plan_for, save
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import BadRun, InvalidArgument, MixupMPError
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.rows import Rows
from mixupmp.metrics import evaluate
from mixupmp.networks import CNN, Network
from mixupmp.store.manifest import write_manifest
from mixupmp.train.run import fit
from small_data import small_images, small_table

TABLE = small_table()
DEEP = {"path": "mixupmp.networks.WideResNet", "arguments": {"channels": 1, "outputs": 3, "depth": 6 * 10**8 + 4}}
RECIPE = Recipe(epochs=1, learning_rate=0.05)


def fitted(method: Method, run: Path | None = None, network: Any = "mlp") -> Posterior:
    return fit(plan_for(TABLE, method, network, RECIPE), engine="inline", run=run)


@pytest.fixture(scope="module")
def ensemble() -> Posterior:
    return fitted(mixup_mp(1.0, 2.0, members=3))


@pytest.fixture
def folder(ensemble: Posterior, tmp_path: Path) -> Path:
    save(ensemble, tmp_path / "saved", {"acc": 0.5})
    return tmp_path / "saved"


def same(first: Posterior, second: Posterior, inputs: Tensor = TABLE.test.inputs) -> bool:
    return torch.equal(first.member_outputs(inputs), second.member_outputs(inputs))


class OwnNet(nn.Module):
    """A user's network, with weights that are tied."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.body = nn.Linear(4, width)
        self.first, self.second = nn.Linear(width, 3), nn.Linear(width, 3)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.first(self.body(inputs).tanh()) + self.second(self.body(inputs).relu())


# The same bits come back.


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # what laplace-torch imports uses it
@pytest.mark.parametrize("method", [mixup_mp(1.0, 2.0, members=3), mixup_mp(inf, 0.5, 2), mc_dropout(4), laplace(4)])
def test_a_run_and_a_saved_copy_give_the_same_bits(method: Method, tmp_path: Path) -> None:
    posterior = fitted(method, tmp_path / "run")
    of_run = load(tmp_path / "run")
    save(of_run, tmp_path / "copy")
    of_copy = load(tmp_path / "copy")
    assert type(of_run) is type(of_copy) is type(posterior)
    assert same(of_run, posterior)
    assert same(of_copy, posterior)
    assert of_copy.members == posterior.members
    assert of_copy.wanted == posterior.wanted
    assert of_copy.task == posterior.task
    assert of_copy.summaries == posterior.summaries
    assert of_copy.origin == posterior.origin


def test_images_and_batch_norm_come_back(tmp_path: Path) -> None:
    images = small_images()
    network = Network("mixupmp.networks.ResNet18", {"channels": 1, "outputs": 3, "width": 8})
    posterior = fit(plan_for(images, deep_ensemble(2), network, RECIPE), engine="inline")
    save(posterior, tmp_path / "images")
    assert same(load(tmp_path / "images"), posterior, images.test.inputs)


def test_a_regression_posterior_comes_back(tmp_path: Path) -> None:
    rows = Rows(TABLE.train.inputs, TABLE.train.inputs[:, 0])
    task = Task(Gaussian(), TABLE.standardize, (4,))
    network = Network("mixupmp.networks.MLP", {"features": 4, "outputs": 2})
    posterior = fit(Plan(mixup_mp(1.0, 2.0, members=2), network, rows, task, RECIPE), engine="inline")
    save(posterior, tmp_path / "regression")
    loaded = load(tmp_path / "regression")
    assert loaded.task.likelihood == Gaussian()
    assert same(loaded, posterior)


def test_members_that_diverged_stay_told(tmp_path: Path) -> None:
    posterior = fitted(deep_ensemble(3))
    posterior.networks = posterior.networks[1:]
    posterior.summaries[0] = replace(posterior.summaries[0], diverged_at=7)
    posterior.notes = ("member 0 diverged at step 7",)
    save(posterior, tmp_path / "short")
    loaded = load(tmp_path / "short")
    assert (loaded.members, loaded.wanted, loaded.notes) == (2, 3, posterior.notes)
    assert "member 0 diverged at step 7" in (tmp_path / "short" / "README.md").read_text()
    assert same(loaded, posterior)


def test_what_is_saved_says_nothing_of_a_device(folder: Path) -> None:
    """A posterior saved on a GPU loads on a CPU: files hold plain CPU tensors, and no file names a device."""
    assert "cuda" not in (folder / "config.json").read_text()
    assert '"device"' not in (folder / "config.json").read_text()
    for path in (folder / "members").glob("*.safetensors"):
        assert all(value.device.type == "cpu" for value in safetensors.torch.load_file(path).values())
    assert load(folder).device.type == "cpu"


def test_loading_leaves_the_global_generator_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    load(folder)
    assert torch.equal(torch.get_rng_state(), before)


# The network: ours by name, anybody else's from the caller.


def test_a_users_network_has_to_be_handed_over(tmp_path: Path) -> None:
    posterior = fitted(deep_ensemble(2), network=OwnNet)
    save(posterior, tmp_path / "own")
    with pytest.raises(BadRun, match=r"test_load\.OwnNet.*load\(.*network=MyNetwork\)"):
        load(tmp_path / "own")
    assert same(load(tmp_path / "own", network=OwnNet), posterior)
    assert same(load(tmp_path / "own", network=lambda: OwnNet(5)), posterior)
    with pytest.raises(BadRun, match=r"'body.bias' is float32 \(5,\), the network needs float32 \(6,\)"):
        load(tmp_path / "own", network=lambda: OwnNet(6))


def test_tied_weights_can_be_kept_in_a_run(tmp_path: Path) -> None:
    posterior = fitted(deep_ensemble(2), tmp_path / "run", network=OwnNet)
    assert same(load(tmp_path / "run", network=OwnNet), posterior)


def test_arguments_of_a_users_class_are_kept(tmp_path: Path) -> None:
    posterior = fitted(deep_ensemble(2), network=Network(f"{OwnNet.__module__}.OwnNet", {"width": 7}))
    save(posterior, tmp_path / "own")
    assert same(load(tmp_path / "own", network=OwnNet), posterior)


def test_a_hand_made_posterior_can_be_saved(tmp_path: Path) -> None:
    images = small_images()
    task = Task(plan_for(images, deep_ensemble(2)).task.likelihood, images.standardize, (1, 20, 20), images.classes)
    posterior = EnsemblePosterior([CNN(1, (20, 20), 3), CNN(1, (20, 20), 3)], task, 2)
    save(posterior, tmp_path / "hand")
    with pytest.raises(BadRun, match="network=MyNetwork"):
        load(tmp_path / "hand")
    assert same(load(tmp_path / "hand", network=lambda: CNN(1, (20, 20), 3)), posterior, images.test.inputs)


@pytest.mark.parametrize(
    "path", ["os.system", "mixupmp.networks.importlib.import_module", "builtins.eval", "subprocess.Popen"]
)
def test_foreign_import_paths_are_refused_and_not_imported(folder: Path, path: str, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    edit_config(folder, lambda c: c["spec"].update(network={"path": path, "arguments": {"command": f"touch {mark}"}}))
    with pytest.raises(BadRun, match=r"never imported"):
        load(folder)
    assert not mark.exists()


# Saving writes whole folders, and over nothing.


def test_saving_writes_over_nothing(ensemble: Posterior, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(InvalidArgument, match="new or empty"):
        save(ensemble, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_failed_save_leaves_nothing(ensemble: Posterior, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save(ensemble, tmp_path / "new", {"acc": object()})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_the_card_tells_metrics_and_how_to_load(ensemble: Posterior, tmp_path: Path) -> None:
    metrics = evaluate(ensemble.member_probabilities(TABLE.test.inputs), TABLE.test.labels)
    save(ensemble, tmp_path / "saved", metrics)
    card = (tmp_path / "saved" / "README.md").read_text()
    assert f"| {100 * metrics['acc']:.4g} |" in card
    assert "mixupmp.load(" in card
    assert "Mixup(alpha=2.0)" in card


# What was damaged or tampered with is refused by name.


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    path = folder / "members" / "001.safetensors"
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    path.write_bytes(safetensors.torch.save(tensors))
    write_manifest(folder)


def test_any_flipped_bit_is_refused_by_name(folder: Path) -> None:
    draw = random.Random(0)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for _ in range(min(12, len(content))):
            place, bit = draw.randrange(len(content)), draw.randrange(8)
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            with pytest.raises(BadRun, match="saved/" if path.name == "manifest.json" else path.name):
                load(folder)
        path.write_bytes(content)
    load(folder)


def refused(folder: Path, match: str) -> None:
    """Refused with these words, within a second."""
    started = time.perf_counter()
    with pytest.raises(BadRun, match=match):
        load(folder)
    assert time.perf_counter() - started < 1


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "members" / "001.safetensors").unlink()
    refused(folder, r"001\.safetensors is missing")
    write_manifest(folder)  # even if the manifest agrees, the member's story does not
    refused(folder, r"001\.safetensors is missing")


def test_no_folder_and_no_manifest(tmp_path: Path, folder: Path) -> None:
    refused(tmp_path / "nowhere", "is not a folder")
    (folder / "manifest.json").unlink()
    refused(folder, r"no manifest.json.*--resume")


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "members/../../outside", "members//001.json", "..\\outside", "C:outside", ""]
)
def test_paths_out_of_the_folder_are_refused(folder: Path, name: str) -> None:
    (folder.parent / "outside").write_text("secret")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, name: "0" * 64}))
    refused(folder, "not a plain path inside")


@pytest.mark.parametrize("name", ["members/001.safetensors", "config.json", "manifest.json", "README.md", "members"])
def test_links_are_not_followed(folder: Path, name: str) -> None:
    real = folder.parent / "real"
    (folder / name).rename(real)
    (folder / name).symlink_to(real)
    refused(folder, "is a link|is not in the manifest")


def test_a_pipe_in_place_of_a_file_does_not_block(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    refused(folder, "not a plain file")
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    refused(folder, "not a plain file")


def test_strangers_are_refused(folder: Path) -> None:
    (folder / "members" / "extra.py").write_text("raise SystemExit")
    refused(folder, r"extra\.py is not in the manifest")


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_non_finite_weights_are_refused(folder: Path, value: float) -> None:
    edit_weights(folder, lambda tensors: next(iter(tensors.values())).view(-1)[:1].fill_(value))
    refused(folder, r"001\.safetensors holds NaN or infinity in '1\.")


def test_wrong_shapes_types_and_names_are_refused(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.update({"1.weight": tensors["1.weight"].T.contiguous()}))
    refused(folder, r"'1\.weight' is float32 \(4, 16\), the network needs float32 \(16, 4\)")
    edit_weights(folder, lambda tensors: tensors.update({"1.weight": torch.zeros(16, 4, dtype=torch.int32)}))
    refused(folder, r"'1\.weight' is int32")
    edit_weights(folder, lambda tensors: tensors.update({"2.weight": tensors.pop("1.weight").float()}))
    refused(folder, r"'1\.weight' is in only one of the two")


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("padding", [0, 6000])
def test_a_pickle_in_place_of_weights_is_not_opened(folder: Path, tmp_path: Path, padding: int) -> None:
    content = pickle.dumps(Bomb(tmp_path / "executed")) + b"\0" * padding
    (folder / "members" / "001.safetensors").write_bytes(content)
    write_manifest(folder)
    refused(folder, r"001\.safetensors (is not a safetensors file|has \d+ bytes)")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("length", [10 * 2**30, 2**63, 2**64 - 1, 0, 1])
def test_a_header_longer_than_its_file_is_refused(folder: Path, length: int) -> None:
    path = folder / "members" / "001.safetensors"
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    write_manifest(folder)
    refused(folder, f"not a safetensors file .*{length} bytes")


def test_a_huge_file_is_refused_unread(folder: Path) -> None:
    for name in ("members/001.safetensors", "config.json", "members/000.json", "metrics.jsonl"):
        path = folder / name
        before = path.read_bytes()
        os.truncate(path, 10 * 2**30)  # sparse: takes no room
        refused(folder, r"bytes")
        path.write_bytes(before)
    os.truncate(folder / "manifest.json", 10 * 2**30)
    refused(folder, r"manifest\.json has \d+ bytes")


@pytest.mark.parametrize(
    "content", ["[" * 500_000, '{"format": ' + "9" * 100_000 + "}", "\xff", "null", "[]", '{"format": "1"}']
)
def test_odd_json_is_refused(folder: Path, content: str) -> None:
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    write_manifest(folder)
    refused(folder, r"config\.json (is damaged|names no format)")


def test_a_run_of_the_first_version_is_refused_by_its_name(folder: Path) -> None:
    edit_config(folder, lambda config: config.update(format=1))
    refused(folder, r"written by mixupmp 0\.1\.0 \(format 1\).*Fit it again")


def test_a_newer_format_says_upgrade(folder: Path) -> None:
    edit_config(folder, lambda config: config.update(format=99))
    refused(folder, "format 99.*upgrade mixupmp")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("network", "arguments", "hidden"), [10**9, 10**9]),
        (("network", "arguments", "hidden"), [1] * 100_000),
        (("network", "arguments", "features"), -1),
        (("network", "arguments", "surprise"), 1),
        (("network", "arguments", "dropout"), "often"),
        (("network", "path"), 7),
        (("network",), DEEP),
        (("task", "likelihood", "type"), "Poisson"),
        (("task", "standardize", "mean"), ["x"]),
        (("task", "standardize", "deviation"), [0.0] * 4),
        (("task",), None),
        (("method", "sampler", "type"), "Guess"),
        (("method", "sampler", "members"), 10**12),
        (("method", "sampler", "members"), 100_000),
        (("method", "sampler", "members"), "4"),
        (("method",), {}),
    ],
)  # fmt: skip
def test_a_config_that_describes_no_posterior_is_refused(folder: Path, where: tuple[str, ...], value: object) -> None:
    def change(config: dict[str, Any]) -> None:
        place = config["spec"]
        for key in where[:-1]:
            place = place[key]
        place[where[-1]] = value

    edit_config(folder, change)
    refused(folder, r"config\.json does not describe|never imported|where the network's tensors have")


def test_every_refusal_is_one_of_ours() -> None:
    assert issubclass(BadRun, MixupMPError)


@pytest.mark.parametrize("shape", [[], [5], [1, 2, 3]])
def test_rows_that_the_network_does_not_take_are_refused_at_loading(folder: Path, shape: list[int]) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["spec"]["task"]["input_shape"] = shape
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)
    with pytest.raises(BadRun, match=r"config\.json does not describe a posterior"):
        load(folder)
