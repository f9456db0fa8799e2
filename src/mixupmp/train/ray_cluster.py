"""The connection to a Ray cluster: the user's, or one that is started on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from mixupmp.core.errors import MixupMPError, extra
from mixupmp.train.environment import package_home

log = logging.getLogger("mixupmp")


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to the cluster at this address, or use the one that is connected, or start one on this machine.

    One that is started here listens on the loopback interface only: whoever reaches a Ray port can run code.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    # Ray would otherwise limit OpenMP to num_cpus by itself and say so; threads are pinned by the recipe.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with contextlib.nullcontext() if address or os.environ.get("RAY_ADDRESS") else _loopback_only():
        try:
            ray.init(
                address=address,
                job_config=_job_config(address or os.environ.get("RAY_ADDRESS", "")),
                log_to_driver=False,
                logging_level="warning",
                include_dashboard=False,
            )
        except Exception as error:  # a plain Exception, where a node does not start in time
            raise MixupMPError(
                f"there is no Ray cluster: {error} Check its address, or use another engine: engine='processes'."
            ) from error
        try:
            yield
        finally:
            try:
                ray.shutdown()
            except OSError as error:  # Ray makes folders of its own there, for which a full disk has no room
                log.warning("the Ray cluster of this fit was not shut down cleanly: %s", error)


def _job_config(address: str) -> Any:
    """A job whose workers find this package, and do not look for modules in the driver's current folder first.

    Ray puts that folder before all others on their paths, unless the job has a working directory of its own.
    """
    if address.startswith("ray://"):  # the driver is then a process of the cluster's
        return None
    from ray.job_config import JobConfig

    class Config(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            return True

    return Config(_py_driver_sys_path=[package_home()])


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Let Ray take 127.0.0.1 for this machine's address, as it does where it supports no clusters (macOS, Windows)."""
    from ray._private import ray_constants

    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def import_ray() -> Any:
    with extra("ray", "ray", "The engine 'ray'"):
        import ray
    return ray
