"""Networks that were trained elsewhere become a posterior that everything works with."""

from __future__ import annotations

import pickle

import pytest
import safetensors.torch
import torch
from torch import nn

import mixupmp
from mixupmp import ensemble_of
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.networks import MLP
from small_data import small_table
from small_posteriors import seeded

DATA = small_table(40)
NETWORKS = seeded(lambda: MLP(4, 3, hidden=(8,)), 3)


def outputs() -> torch.Tensor:
    return torch.stack([network(DATA.test.inputs) for network in NETWORKS]).detach()


def check(posterior: mixupmp.Posterior) -> None:
    assert posterior.members == 3
    torch.testing.assert_close(posterior.member_outputs(DATA.test.inputs), outputs())


def test_modules_and_state_dicts() -> None:
    check(ensemble_of(NETWORKS, DATA.test.inputs[:2]))
    check(ensemble_of(NETWORKS, DATA.test.inputs[:2].numpy()))
    weights = [network.state_dict() for network in NETWORKS]
    check(ensemble_of(weights, DATA.test.inputs[:2], network=lambda: MLP(4, 3, hidden=(8,))))


def test_the_callers_modules_stay_as_they_are() -> None:
    network, inputs = MLP(4, 3, hidden=(8,)).train(), {"input": DATA.test.inputs}
    posterior = ensemble_of([network], inputs)
    before = posterior.probabilities(inputs)
    assert network.training
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not network._forward_pre_hooks
    nn.init.zeros_(next(network.parameters()))
    assert torch.equal(posterior.probabilities(inputs), before)


def test_architectures_may_differ_until_they_are_saved(tmp_path) -> None:
    posterior = ensemble_of([nn.Linear(4, 3), MLP(4, 3, hidden=(8,))], DATA.test.inputs[:2])
    assert posterior.probabilities(DATA.test.inputs).shape == (len(DATA.test), 3)
    with pytest.raises(InvalidArgument, match="networks of one architecture, to be saved"):
        mixupmp.save(posterior, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_checkpoints(tmp_path) -> None:
    first, second, third = (network.state_dict() for network in NETWORKS)
    torch.save(first, tmp_path / "a.pt")
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in second.items()}}, tmp_path / "b.pth")
    safetensors.torch.save_file(third, tmp_path / "c.safetensors")
    (tmp_path / "notes.txt").write_text("not weights")
    check(ensemble_of(tmp_path, DATA.test.inputs[:2], network=lambda: MLP(4, 3, hidden=(8,))))


def build() -> nn.Module:
    return MLP(4, 3, hidden=(8,))


def renamed(prefix: str, network: nn.Module) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": value for name, value in network.state_dict().items()}


@pytest.mark.parametrize(
    "prefix",
    ["module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod.", "model.module.", "model._orig_mod.", "net."],
)
def test_prefixes_of_wrappers_within_wrappers(prefix: str) -> None:
    check(ensemble_of([renamed(prefix, network) for network in NETWORKS], DATA.test.inputs[:2], network=build))


def test_checkpoints_of_training_loops(tmp_path) -> None:
    """Lightning's, with the weights of its loss; a loop's own; and a list of files of several kinds."""
    first, second, third = NETWORKS
    lightning = {**renamed("model.", first), "criterion.weight": torch.ones(3)}
    torch.save({"state_dict": lightning, "epoch": 3}, tmp_path / "a.ckpt")
    torch.save({"net": second.state_dict(), "epoch": 3}, tmp_path / "b.bin")
    torch.save(third.state_dict(), tmp_path / "c.pt")
    torch.save({"state": {}, "param_groups": []}, tmp_path / "optimizer.pt")
    check(ensemble_of(tmp_path, DATA.test.inputs[:2], network=build))
    files = [tmp_path / "a.ckpt", str(tmp_path / "b.bin"), third]
    check(ensemble_of(files, DATA.test.inputs[:2], network=build))


def test_a_folder_for_each_network(tmp_path) -> None:
    for number, network in enumerate(NETWORKS):
        (tmp_path / f"member-{number}").mkdir()
        safetensors.torch.save_file(network.state_dict(), tmp_path / f"member-{number}" / "model.safetensors")
        torch.save({"state": {}}, tmp_path / f"member-{number}" / "optimizer.bin")
    check(ensemble_of(tmp_path, DATA.test.inputs[:2], network=build))


def test_it_is_calibrated_saved_and_loaded(tmp_path) -> None:
    weights = [network.state_dict() for network in NETWORKS]
    settings = {"name": "mlp", "hidden": [8]}
    posterior = ensemble_of(weights, DATA.test.inputs[:2], network=settings, classes=("a", "b", "c"))
    probabilities = posterior.probabilities(DATA.test.inputs)
    assert fit_temperature(probabilities, DATA.test.labels).temperature > 0
    mixupmp.save(posterior, tmp_path / "run")
    check(mixupmp.load(tmp_path / "run"))  # a network of the catalog needs no factory


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise SystemExit('code of a checkpoint was run')",))


def test_bad_checkpoints_are_refused_by_name(tmp_path) -> None:
    (tmp_path / "a.pt").write_bytes(pickle.dumps(Trap(), 2))
    with pytest.raises(BadData, match=r"a\.pt is no file of weights"):
        ensemble_of(tmp_path, DATA.test.inputs[:2], network=MLP)
    torch.save({"epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(BadData, match="holds no state dict"):
        ensemble_of(tmp_path, DATA.test.inputs[:2], network=MLP)
    (tmp_path / "a.pt").unlink()
    with pytest.raises(InvalidArgument, match="a folder with files of weights"):
        ensemble_of(tmp_path, DATA.test.inputs[:2], network=MLP)


def test_wrong_arguments_are_named() -> None:
    weights = [NETWORKS[0].state_dict()]
    with pytest.raises(InvalidArgument, match="the class or factory of the networks"):
        ensemble_of(weights, DATA.test.inputs[:2])
    with pytest.raises(InvalidArgument, match="one that takes the weights of member 0"):
        ensemble_of(weights, DATA.test.inputs[:2], network=lambda: nn.Linear(4, 3))
    with pytest.raises(InvalidArgument, match="logits"):
        ensemble_of(NETWORKS, DATA.test.inputs[:2], classes=("a", "b"))
    with pytest.raises(InvalidArgument, match="a list of networks or state dicts, also of one"):
        ensemble_of(NETWORKS[0], DATA.test.inputs[:2])
    with pytest.raises(InvalidArgument, match=r"one that takes inputs \(2, 5\)"):
        ensemble_of(NETWORKS, torch.zeros(2, 5))
    with pytest.raises(InvalidArgument, match="a lazy layer of this network has no weights yet"):
        ensemble_of([nn.Sequential(nn.LazyLinear(3))], DATA.test.inputs[:2])
    with pytest.raises(InvalidArgument, match=r"networks that return logits \(rows, 3\).*\(2, 4\)"):
        ensemble_of([nn.Linear(4, 3), nn.Linear(4, 4)], DATA.test.inputs[:2])
    with pytest.raises(InvalidArgument, match=r"must be without a softmax at the end.*got 'probabilities'"):
        ensemble_of([nn.Sequential(*NETWORKS[0], nn.Softmax(1))], DATA.test.inputs[:2])
    ensemble_of([nn.Sequential(*NETWORKS[0], nn.LogSoftmax(1))], DATA.test.inputs[:2])
