"""The Ray engine on a real cluster of this machine's own: same members, lost nodes, requests to stop."""

from __future__ import annotations

import errno
import os
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import runs

from mixupmp import CheckpointInterval, Posterior
from mixupmp.core.errors import MixupMPError
from mixupmp.decide.search import Search
from mixupmp.decide.select import select
from mixupmp.train.ray import Storage
from mixupmp.train.ray_cluster import connected
from mixupmp.train.run import fit

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster whose head has no cores: all work is on nodes that can be taken away."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


def weights(posterior: Posterior) -> list[bytes]:
    return [b"".join(p.detach().numpy().tobytes() for p in network.parameters()) for network in posterior.networks]


@pytest.mark.slow
def test_members_are_those_of_the_inline_engine(cluster: Any, tmp_path: Path) -> None:
    """With the run on shared storage, and with weights sent back."""
    cluster.add_node(num_cpus=2)
    expected = weights(fit(runs.plan("cnn"), engine="inline"))
    assert weights(fit(runs.plan("cnn"), engine="ray", run=tmp_path / "run")) == expected
    assert not list((tmp_path / "run").glob(".*")), "the token must not stay in the folder"
    assert weights(fit(runs.plan("cnn"), engine="ray")) == expected


@pytest.mark.slow
def test_only_unfinished_members_run_again_when_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    expected = tmp_path / "inline"
    fit(runs.plan("four"), engine="inline", run=expected)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    folder, failures = tmp_path / "run", []

    def work() -> None:
        try:
            fit(runs.plan("four"), engine="ray", run=folder, checkpoints=CheckpointInterval(epochs=1))
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    members = folder / "members"
    deadline = time.monotonic() + 240
    while len(finished := sorted(members.glob("*.json"))) < 2:
        assert thread.is_alive(), failures
        assert time.monotonic() < deadline
        time.sleep(0.05)
    written = {path.name: path.stat().st_mtime_ns for path in finished}
    cluster.remove_node(nodes[0], allow_graceful=False)
    cluster.add_node(num_cpus=1)
    thread.join(240)
    assert not thread.is_alive()
    assert not failures
    assert runs.hashes(folder) == runs.hashes(expected)
    assert {path.name: path.stat().st_mtime_ns for path in finished} == written


def test_a_worker_knows_whether_it_shares_the_drivers_storage(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path), "token", CheckpointInterval())
    assert not storage.shared
    (tmp_path / ".token").touch()
    assert storage.shared
    assert not Storage(None, "token", CheckpointInterval()).shared


@pytest.mark.slow
def test_a_search_is_on_the_cluster_all_at_once_and_finds_the_same(cluster: Any) -> None:
    cluster.add_node(num_cpus=2)
    plan = runs.plan("cnn")
    plan = replace(plan, recipe=replace(plan.recipe, epochs=3))
    search = Search(ratios=(1.0,), alphas=(1.0,), halving=False)
    expected = select(plan, search, engine="inline")
    found = select(plan, search, engine="ray")
    assert [result.scores for result in found.results] == [result.scores for result in expected.results]
    assert found.chosen == expected.chosen
    halved = select(plan, replace(search, halving=True), engine="ray")
    assert halved.results[0].scores[2] == pytest.approx(expected.results[0].scores[2], rel=1e-6)  # predicted one by one


def listening_addresses() -> set[str]:
    """The addresses, as in /proc, on which processes of this session's Ray listen."""
    sockets = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"ray" in (process / "cmdline").read_bytes():
                sockets |= {os.readlink(file)[8:-1]: process.name for file in (process / "fd").iterdir()}
        except OSError:
            continue
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")
def test_a_cluster_that_a_fit_starts_listens_on_this_machine_only() -> None:
    before = listening_addresses()
    with connected(None):
        found = listening_addresses() - before
    assert found
    assert found <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_cluster_that_does_not_start_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def time_out(**options: object) -> None:
        raise Exception("The current node timed out during startup.")  # the class that Ray raises

    monkeypatch.setattr(ray, "init", time_out)
    with pytest.raises(MixupMPError, match="there is no Ray cluster: The current node timed out"), connected(None):
        pytest.fail("not connected")


def test_a_full_disk_while_ray_shuts_down_does_not_hide_what_happened(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ray, "init", lambda **options: None)
    monkeypatch.setattr(ray, "shutdown", no_room)
    with connected(None):
        pass
    assert "not shut down cleanly" in caplog.text
    with pytest.raises(MixupMPError, match="the fit's own"), connected(None):
        raise MixupMPError("the fit's own")
