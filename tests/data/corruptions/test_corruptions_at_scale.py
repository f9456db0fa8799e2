"""10,000 images, 19 corruptions, 5 severities: the time it takes on two cores, and how the changes rise."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import time
from itertools import pairwise

import pytest
import torch
from small_files import real_or_skip

from mixupmp.data import CORRUPTIONS, SEVERITIES, corrupt
from mixupmp.data.corruptions import NOT_RISING

MINUTES = 3


def measure(name: str) -> tuple[list[float], float]:
    """One corruption of all CIFAR test images in a process of one thread: mean changes, and seconds of a core."""
    torch.set_num_threads(1)
    images = real_or_skip("cifar10").test.inputs
    changes, seconds = [], 0.0
    for severity in SEVERITIES:
        start = time.process_time()
        result = corrupt(images, name, severity)
        seconds += time.process_time() - start
        changes.append(float((result.float() - images.float()).abs().mean()) / 255)
    return changes, seconds


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_of_cifar_in_three_minutes_on_two_cores():
    assert len(real_or_skip("cifar10").test) == 10_000
    start = time.perf_counter()
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        results = dict(zip(CORRUPTIONS, pool.map(measure, CORRUPTIONS), strict=True))
    waited = time.perf_counter() - start
    for name, (changes, seconds) in results.items():
        print(f"{name:18} {seconds:6.1f} s  " + " ".join(f"{value:.5f}" for value in changes))
        rising = all(low < high for low, high in pairwise(changes))
        assert rising == (name not in NOT_RISING), (name, changes)
    # Seconds of a core, not of the clock on the wall: other work on the machine is not counted.
    total = sum(seconds for _, seconds in results.values())
    print(f"{total:.0f} s of one core, {total / 2:.0f} s on two; waited {waited:.0f} s with reading and comparing")
    assert total / 2 < 60 * MINUTES
