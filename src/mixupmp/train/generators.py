"""The generator that a network in training draws from, mostly for dropout: torch's global one, or one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from mixupmp.core import seeds
from mixupmp.core.kernels import uses_global_generator
from mixupmp.core.plan import Plan


class GlobalGenerator:
    """Torch's global generator as it is while one fit runs; `nn.Dropout` and users' transforms take no other."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed, self.device = seed, device
        self._state, self._running = Generator().manual_seed(seed).get_state(), False
        self._cuda_state: Tensor | None = None  # the GPU's own, once it has been used

    @contextmanager
    def running(self) -> Iterator[None]:
        """The fit's state in a block, and what was there before after it."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            torch.set_rng_state(self._state)
            if self._cuda_state is not None:
                torch.cuda.set_rng_state(self._cuda_state, self.device)
            self._running = True
            try:
                yield
            finally:
                self._state, self._cuda_state = torch.get_rng_state(), self._cuda_generator()
                self._running = False

    def _cuda_generator(self) -> Tensor | None:
        return torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None

    def tensors(self) -> dict[str, Tensor]:
        """Its state, for a checkpoint."""
        cuda = self._cuda_generator() if self._running else self._cuda_state
        found = {"generator/global": torch.get_rng_state() if self._running else self._state}
        return found if cuda is None else {**found, "generator/cuda": cuda}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` took out."""
        self._state, self._cuda_state = tensors["generator/global"], tensors.get("generator/cuda")
        Generator().set_state(self._state)  # which raises where it is no state


class OwnGenerator:
    """A generator that nobody else draws from, in the same states: such fits can run side by side in threads."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    @contextmanager
    def running(self) -> Iterator[None]:
        yield

    def tensors(self) -> dict[str, Tensor]:
        return {"generator/global": self.generator.get_state()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.generator.set_state(tensors["generator/global"])


def generator_for(plan: Plan, member: int, network: torch.nn.Module) -> GlobalGenerator | OwnGenerator:
    """One of the network's own, if it takes one and nothing else of the fit draws from the global generator."""
    plain = plan.device == "cpu" and plan.recipe.precision == "float32" and not plan.recipe.compile
    take = getattr(network, "draw_from", None)
    own = seeds.generator(plan.seed, member, "global")
    if take is not None and plain and not uses_global_generator(plan.method.predictive.kernel) and take(own):
        return OwnGenerator(own)
    return GlobalGenerator(seeds.derive(plan.seed, member, "global"), torch.device(plan.device))
