"""The reference fit: one network on its way to becoming one posterior sample.

Every engine either runs this, or is held to it by a test. Its whole state can be taken out and put back between any
two steps, which is what makes a resumed fit end with the same bits.
"""

from __future__ import annotations

import json
import time
from math import isfinite
from typing import Any, Protocol

import torch
from torch import Tensor

from mixupmp.core import seeds
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.given_network import logits_of
from mixupmp.core.likelihoods import weighted_loss
from mixupmp.core.member_summary import EpochRecord, MemberSummary
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import Future, simulate
from mixupmp.core.recipe import batches_of, some_rows
from mixupmp.core.rows import Rows
from mixupmp.core.threads import pinned_threads
from mixupmp.train.factory import memory_format, to_training_mode
from mixupmp.train.forward import build_optimizer, forward_inside, inside_of, trained_blocks, unfreeze
from mixupmp.train.generators import generator_for
from mixupmp.train.state import copied, optimizer_tensors, parse_progress, restore_optimizer, with_prefix
from mixupmp.train.validation import outputs_constant, over_confidence, probed_inputs, take_votes, validation_record

# A summary's training accuracy is of at most this many rows: the last digit is not worth a pass over a large dataset.
ENOUGH_ROWS = 10_000
ENOUGH_STREAMED_ROWS = 2_000  # which take longer to read than to predict


class StepCallback(Protocol):
    """Called after each step."""

    def on_step(self, fit: MemberFit) -> None:
        """A step is done and the state is consistent: may save a checkpoint, may raise `StopTraining`."""
        ...


class StopTraining(Exception):
    """Raised to end a fit after a step; its checkpoint is written."""


class MemberFit:
    """One member: its network, its optimizer, its future, and where it is."""

    def __init__(self, plan: Plan, member: int) -> None:
        self.plan, self.member = plan, member
        self.recipe = plan.recipe
        self.device = torch.device(plan.device)
        self.draws = seeds.generator(plan.seed, member, "draws")
        with pinned_threads(self.recipe.threads):  # what is computed here is as much a matter of threads as the steps
            self.network = plan.build(member).to(self.device)
            # A sampler that trains several members in one network simulates a future for each of them.
            simulated = getattr(plan.method.sampler, "simulate", simulate)
            data, pseudo_rows = plan.training_data(member), self.recipe.pseudo_batch_size
            self.future: Future = simulated(plan.method.predictive, data, pseudo_rows, self.draws)
        images = len(plan.task.input_shape) == 3
        self.memory_format = memory_format(self.network) if images else torch.contiguous_format
        self.network = self.network.to(memory_format=self.memory_format)  # type: ignore[call-overload]
        self.forward: Any = torch.compile(self.network) if self.recipe.compile else self.network
        self.inside, self.blocks = inside_of(plan, self.network), trained_blocks(plan, self.network)
        self.optimizer = build_optimizer(self.recipe, self.network, self.blocks)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.recipe.precision == "float16")
        self.steps_an_epoch = len(batches_of(len(self.future), self.recipe.batch_size, torch.arange(len(self.future))))
        self.generator = generator_for(plan, member, self.network)
        self.step = 0  # steps done
        self.interpolated_at: int | None = None  # the epoch that ended with 100% training accuracy
        self.diverged_at: int | None = None
        self.over_confidence: Tensor | None = None
        self.history: list[EpochRecord] = []
        self.new_record: EpochRecord | None = None  # of the epoch that has just ended, until a callback was called
        self.seconds = 0.0
        self.losses: list[Tensor] = []  # of this epoch's steps
        self.epoch_loss = float("nan")

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.step // self.steps_an_epoch

    @property
    def last_loss(self) -> float:
        """The loss of the latest step that was looked at."""
        return float(self.losses[-1]) if self.losses else self.epoch_loss

    @property
    def total_steps(self) -> int:
        """The most steps there can be."""
        return self.recipe.epochs * self.steps_an_epoch

    @property
    def finished(self) -> bool:
        if self.diverged_at is not None or self.step >= self.total_steps:
            return True
        after = self.recipe.epochs_after_interpolation
        return after is not None and self.interpolated_at is not None and self.epoch >= self.interpolated_at + after

    def run(self, callback: StepCallback) -> MemberSummary:
        """Go on to the end."""
        with pinned_threads(self.recipe.threads), self.generator.running():
            to_training_mode(self.network)
            while not self.finished:
                self._run_epoch(callback)
            self._check_weights()
            return self.summary()

    def _run_epoch(self, callback: StepCallback) -> None:
        started = time.perf_counter()
        epoch, done = divmod(self.step, self.steps_an_epoch)
        unfreeze(self.blocks, self.network, self.recipe.unfreeze, epoch)
        for batch in self.future.batches(self._chunks(epoch)[done:], self.draws, epoch):
            self._step(batch)
            if self.diverged_at is not None:
                self.seconds += time.perf_counter() - started
                return
            if self.step % self.steps_an_epoch == 0:
                self.seconds += time.perf_counter() - started
                self._end_epoch()
                started = time.perf_counter()
            callback.on_step(self)

    def _chunks(self, epoch: int) -> list[Tensor]:
        rows, size = len(self.future), self.recipe.batch_size
        if size is None or size >= rows:
            return [torch.arange(rows)]  # all rows at once: their order is of no consequence
        if self.plan.train.sequential:
            return batches_of(rows, size, torch.arange(rows))
        order = torch.randperm(rows, generator=seeds.generator(self.plan.seed, self.member, "order", epoch))
        return batches_of(rows, size, order)

    def _step(self, batch: Batch) -> None:
        rate = self.recipe.rate(self.step, self.steps_an_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("share", 1.0)
        inputs = batch.inputs.contiguous(memory_format=self.memory_format)
        self.optimizer.zero_grad(set_to_none=True)
        reduced = self.recipe.precision != "float32"
        precision = torch.float16 if self.recipe.precision == "float16" else torch.bfloat16
        with torch.autocast(self.device.type, precision, enabled=reduced):
            if self.inside is None:
                outputs = logits_of(self.forward(inputs)).float()
            else:
                outputs, batch = forward_inside(self.network, self.inside, self.future, inputs, batch, self.draws)
        self._check_outputs(outputs, len(batch.targets))
        loss = weighted_loss(self.plan.task.likelihood, outputs, batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        self.losses.append(loss.detach())
        # Reading a loss waits for a GPU, so there it is done now and then.
        if self.device.type == "cpu" or len(self.losses) % 50 == 0:
            self._check_finite()

    def _check_outputs(self, outputs: Tensor, rows: int) -> None:
        wanted = (rows, self.plan.task.likelihood.outputs)
        if tuple(outputs.shape) != wanted:  # some shapes would broadcast against the targets and learn nothing
            must = f"one that returns (rows, {wanted[1]})"
            raise InvalidArgument("network", f"outputs {tuple(outputs.shape)} for {rows} rows", must)

    def _check_finite(self) -> None:
        recent = 1 if self.device.type == "cpu" else 50
        for back, loss in enumerate(reversed(self.losses[-recent:])):
            if not isfinite(float(loss)):
                self.diverged_at = self.step - back

    def _check_weights(self) -> None:
        """A last step can leave weights that no later loss tells of."""
        values = [value for value in self.network.state_dict().values() if value.is_floating_point()]
        if self.diverged_at is None and not all(bool(torch.isfinite(value).all()) for value in values):
            self.diverged_at = self.step

    def _end_epoch(self) -> None:
        self._check_finite()
        self.epoch_loss, self.losses = float(torch.stack(self.losses).mean()), []
        record: EpochRecord = {
            "member": self.member,
            "epoch": self.epoch,
            "loss": self.epoch_loss,
            "learning_rate": self.recipe.rate(self.step - 1, self.steps_an_epoch),
            "seconds": round(self.seconds, 3),
        }
        if self.recipe.epochs_after_interpolation is not None and self.interpolated_at is None:
            accuracy, _ = self._training_accuracy()
            record["training_accuracy"] = accuracy
            if accuracy == 1:
                self.interpolated_at = self.epoch
        recorded = self.recipe.records(self.epoch)
        if self.plan.validation is not None and recorded:
            record |= validation_record(self.network, self.plan)
        if self.plan.method.predictive.adaptive:
            self.over_confidence = over_confidence(self.network, self.plan)
            self._adapt()
        if recorded:
            self.new_record = take_votes(record, self.step)
            self.history.append(record)

    def _adapt(self) -> None:
        if self.over_confidence is not None:
            self.future.predictive = self.plan.method.predictive.adapted(self.over_confidence)

    @torch.no_grad()
    def _training_accuracy(self, most: int | None = None) -> tuple[float | None, bool]:
        """Of all rows, or of `most` of them, evenly spaced (they may be sorted); and whether one class is predicted."""
        if self.plan.task.likelihood.classes is None:
            return None, False
        seen = self.future.data.rows
        chosen = some_rows(seen, most)
        self.network.eval()
        correct, classes = 0, set[int]()
        for rows in seen.batches(chosen.split(256)):
            predicted = logits_of(self.network(self.plan.task.standardize(rows.inputs))).argmax(1)
            correct += int((predicted == rows.labels).sum())
            classes.update(predicted.unique().tolist())
        to_training_mode(self.network)
        return correct / len(chosen), len(classes) == 1

    def summary(self) -> MemberSummary:
        """How it ended."""
        most: int | None = ENOUGH_ROWS if isinstance(self.plan.train, Rows) else ENOUGH_STREAMED_ROWS
        if self.plan.recipe.epochs_after_interpolation is not None:
            most = None  # whether every row is right is what this fit is about
        finite = self.diverged_at is None
        accuracy, one_class = self._training_accuracy(most) if finite else (None, False)
        collapsed, probed_one_class = self._collapsed() if finite else (False, False)
        return MemberSummary(
            self.member,
            self.step,
            self.epoch,
            round(self.seconds, 3),
            accuracy,
            self.diverged_at,
            self.history,
            collapsed,
            one_class and probed_one_class,
        )

    @torch.no_grad()
    def _collapsed(self) -> tuple[bool, bool]:
        inputs = probed_inputs(self.plan)
        self.network.eval()
        outputs = logits_of(self.network(inputs))
        to_training_mode(self.network)
        return outputs_constant(inputs, outputs)

    def weights(self) -> dict[str, Tensor]:
        """The network's parameters and buffers, on the CPU in plain memory order; copies, so tied ones are two."""
        return {name: copied(value) for name, value in self.network.state_dict().items()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Everything needed to go on: tensors, and text. Copies: they stay as they are while the fit goes on."""
        tensors = {f"network/{name}": value for name, value in self.weights().items()}
        tensors |= optimizer_tensors(self.optimizer)
        tensors["generator/draws"] = self.draws.get_state()
        tensors |= self.generator.tensors()
        if self.over_confidence is not None:
            tensors["over_confidence"] = self.over_confidence
        if self.losses:
            tensors["losses"] = torch.stack(self.losses).cpu()
        text = {
            "step": self.step,
            "seconds": self.seconds,
            "interpolated_at": self.interpolated_at,
            "history": self.history,
            "scaler": self.scaler.state_dict(),
        }
        return tensors, {"fit": json.dumps(text)}

    def restore(self, tensors: dict[str, Tensor], text: dict[str, str]) -> None:
        """Put back what `state` took out."""
        self.network.load_state_dict(with_prefix(tensors, "network/"))
        restore_optimizer(self.optimizer, with_prefix(tensors, "optimizer/"))
        self.draws.set_state(tensors["generator/draws"])
        self.generator.restore(tensors)
        self.over_confidence = tensors.get("over_confidence")
        self._adapt()
        losses = tensors.get("losses", torch.empty(0))
        if losses.ndim != 1 or not losses.is_floating_point():
            raise ValueError("losses are not a vector of numbers")
        self.losses = list(losses.unbind())
        saved = parse_progress(text, self.total_steps)
        self.step, self.seconds = saved["step"], saved["seconds"]
        self.interpolated_at, self.history = saved["interpolated_at"], saved["history"]
        self.scaler.load_state_dict(saved["scaler"])
