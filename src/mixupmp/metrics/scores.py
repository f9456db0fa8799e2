"""Metrics of a classifier's probabilities, streamed: a state of constant size, whatever the number of rows.

For predicted probabilities p (the mean over members where there are several), labels y, the top confidence
c = max_k p_k and M equal-width bins (m-1)/M < c <= m/M (the paper's appendix on calibration metrics, M = 15):

    ACC = mean 1[argmax p = y]           NLL = mean -log p_y           Brier = mean sum_k (p_k - 1[y=k])^2
    OE  = sum_m |B_m|/n max(Conf(B_m) - Acc(B_m), 0)                   UE the same with the sign turned
    ECE = OE + UE                        entropy = mean -sum_k p_k log p_k
    mutual information = entropy of the mean minus the mean entropy of the members
    gini = mean 1 - sum_k p_k^2, and times K/(K-1) on [0, 1]

All are fractions and nats; `mixupmp.metrics.catalog` says how each is shown. What is computed here in one pass is held
by tests to the `per_row` functions of the catalog; a metric that is only there is added up from its `per_row`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, MixupMPError, check
from mixupmp.metrics.catalog import METRICS
from mixupmp.metrics.checks import TINY, as_floats, check_rows, check_shape, checked_labels, sum_tolerance
from mixupmp.metrics.reliability import FUSED, Result, Totals, result_of

# Numbers of a block of probabilities, for each thread. Measured: smaller ones, which would fit in a core's own cache,
# lose more to the cost of calling torch than they gain.
BLOCK_NUMBERS = 262_144
# Below this many rows to a block, the cost of calling torch would outweigh a cache that holds.
BLOCK_ROWS = 256
# Up to this many classes the fast maximum of `_row_maximum` is the faster one.
POOLED_CLASSES = 32
# Blocks hold a multiple of this many rows, except the last.
PIECES = 64


class Scores:
    """Accumulates predictions block by block: `update` as often as needed, then `result`.

    The state is a few sums and a histogram of confidences of `bins` times 256 cells, so ten million predictions
    need no more memory than one block. Sums are float64 over blocks; within a block they are taken in the type
    of the probabilities, so results agree to about 1e-6 whatever the blocks. Two accumulators add up: `a + b`.
    """

    def __init__(self, classes: int, bins: int = 15) -> None:
        check(isinstance(classes, int) and classes >= 2, "classes", classes, "an integer of at least 2")
        check(isinstance(bins, int) and 1 <= bins <= 1000, "bins", bins, "an integer from 1 to 1000")
        self.classes = classes
        self.bins = bins
        self._totals = Totals.empty(bins)
        self._buffer = Buffer()

    @torch.no_grad()
    def update(self, probabilities: Tensor, labels: Tensor) -> Scores:
        """Add rows: probabilities (rows, classes) or (members, rows, classes), labels (rows,). Returns itself.

        Members are pooled by the mean of their probabilities. Nothing is added if any row is bad.
        """
        given = probabilities if isinstance(probabilities, Tensor) else torch.as_tensor(probabilities)
        check_shape(given, members=None)
        # Half precision is widened block by block, so that a large update stays as small as it came.
        dtype = as_floats(given[:0], "probabilities").dtype
        values = given.detach()
        rows, classes = values.shape[-2:]
        check(classes == self.classes, "probabilities", tuple(given.shape), f"over {self.classes} classes")
        labels = checked_labels(labels, rows, classes).to(given.device)
        if rows == 0:
            return self
        step = _block_rows(classes)
        for member in values if values.ndim == 3 else (values,):
            for start in range(0, rows, step):
                _check_block(member[start : start + step].to(dtype), sum_tolerance(values.dtype), start)
        if values.ndim == 3 or rows > step // 2:
            self._add(values, labels, dtype)
        elif not self._buffer.append(values.to(dtype), labels, step):
            self._flush()
            self._buffer.append(values.to(dtype), labels, step)
        return self

    def _add(self, values: Tensor, labels: Tensor, dtype: torch.dtype) -> None:
        rows, classes = values.shape[-2:]
        step = min(rows, _block_rows(classes))
        scratch = torch.empty(step * classes, dtype=dtype, device=values.device)
        for start in range(0, rows, step):
            block = values[..., start : start + step, :].to(dtype)
            _add_block(self._totals, block, labels[start : start + step], scratch)

    @torch.no_grad()
    def _flush(self) -> Totals:
        """The totals, with the buffered rows added."""
        buffer = self._buffer
        if buffer.rows:
            self._add(buffer.values[: buffer.rows], buffer.labels[: buffer.rows], buffer.values.dtype)
            buffer.rows = 0
        return self._totals

    def result(self) -> Result:
        """Every metric over all rows so far."""
        if len(self) == 0:
            raise BadData("there is nothing to score: no row was given to update().")
        return result_of(self._flush(), self.classes, self.bins)

    def __len__(self) -> int:
        return self._totals.rows + self._buffer.rows

    def __add__(self, other: Scores) -> Scores:
        check(isinstance(other, Scores), "other", other, "another Scores")
        same = (self.classes, self.bins) == (other.classes, other.bins)
        check(same, "other", (other.classes, other.bins), f"over {self.classes} classes with {self.bins} bins")
        merged = Scores(self.classes, self.bins)
        merged._totals = self._flush() + other._flush()
        return merged

    def to_dict(self) -> dict[str, object]:
        """The state as plain numbers, lists and strings: what JSON holds."""
        return {"classes": self.classes, "bins": self.bins, **self._flush().to_dict()}

    @classmethod
    def from_dict(cls, state: dict[str, object]) -> Scores:
        """The accumulator of which `to_dict` gave this state."""
        try:
            scores = cls(int(str(state["classes"])), int(str(state["bins"])))
            scores._totals = Totals.from_dict(state, scores.bins)
        except MixupMPError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise BadData(f"this is not the state of a Scores: {error!r}. Give what to_dict() returned.") from error
        return scores


class Buffer:
    """Small updates, checked, until they fill a block: torch is slow on a thousand rows at a time."""

    def __init__(self) -> None:
        self.values = torch.empty(0, 0)
        self.labels = torch.empty(0, dtype=torch.int64)
        self.rows = 0

    def append(self, values: Tensor, labels: Tensor, step: int) -> bool:
        """Copy the rows in, if there is room and the dtype and device are the same; returns whether they were."""
        stop = self.rows + len(values)
        same = self.values.dtype == values.dtype and self.values.device == values.device
        if self.rows == 0 and not (same and len(self.values) >= step):
            self.values = values.new_empty(step, values.shape[1])
            self.labels = labels.new_empty(step)
        elif not same or stop > len(self.values):
            return False
        self.values[self.rows : stop] = values
        self.labels[self.rows : stop] = labels
        self.rows = stop
        return True


def _block_rows(classes: int) -> int:
    return max(BLOCK_ROWS, BLOCK_NUMBERS * torch.get_num_threads() // classes // PIECES * PIECES)


def _check_block(probabilities: Tensor, tolerance: float, first_row: int) -> None:
    """One cheap pass that only knows good from bad; the slow search for the bad row runs when there is one."""
    sums = probabilities @ probabilities.new_ones(probabilities.shape[1])
    low, high = torch.aminmax(sums)
    # Written so that NaN fails.
    if not (float(low) >= 1 - tolerance and float(high) <= 1 + tolerance and float(probabilities.amin()) >= 0):
        check_rows(probabilities, tolerance, first_row=first_row)


def _add_block(totals: Totals, block: Tensor, labels: Tensor, scratch: Tensor) -> None:
    """Add one block (rows, classes) or (members, rows, classes) to the totals. `scratch` holds rows * classes."""
    mean = block.mean(0) if block.ndim == 3 else block.contiguous()
    lifted = scratch[: mean.numel()].view_as(mean)
    if block.ndim == 3:
        totals.member_rows += len(labels)
        entropies = (_entropy(member.contiguous(), _lift(member, lifted)) for member in block)
        totals.member_entropy += sum(entropies) / len(block)
    # Places in the flat block: torch indexes one dimension several times faster than two.
    places = torch.arange(0, mean.numel(), mean.shape[1], device=mean.device).add_(labels)
    flat = _lift(mean, lifted).view(-1)
    true = flat.index_select(0, places)
    # The best of the other classes is cheaper than the place of the maximum, and it shows the ties.
    rival = _row_maximum(flat.scatter_(0, places, torch.zeros_like(true)).view_as(mean))
    flat.scatter_(0, places, true)
    totals.entropy += _entropy(mean, lifted)
    correct = true > rival
    tied = (true == rival).nonzero().squeeze(1)
    if len(tied):  # among equal top probabilities the first is the prediction
        correct[tied] = mean[tied].argmax(1) == labels[tied]
    totals.rows += len(labels)
    totals.squares += float(torch.mul(mean, mean, out=lifted).sum())
    true, rival = true.cpu(), rival.cpu()  # not every device has float64
    totals.true += float(true.sum(dtype=torch.float64))
    totals.log_loss -= float(true.log().sum(dtype=torch.float64))
    _add_confidences(totals, torch.maximum(true, rival), correct.cpu())
    for name, metric in METRICS.items():
        if metric.per_row is not None and name not in FUSED and (block.ndim == 3 or not metric.needs_members):
            values = metric.per_row(block if metric.needs_members else mean, labels)
            totals.others[name] = totals.others.get(name, 0.0) + values.cpu().sum(0, dtype=torch.float64)


def _lift(probabilities: Tensor, lifted: Tensor) -> Tensor:
    """The probabilities with zeros lifted to the smallest float, so that 0 log 0 is 0; written into `lifted`."""
    return torch.clamp_min(probabilities, TINY, out=lifted)


def _entropy(probabilities: Tensor, lifted: Tensor) -> float:
    """The sum over all rows of -sum_k p_k log p_k; `lifted` becomes its logarithm.

    Three times faster than torch.special.entr, which has no vectorized kernel.
    """
    # torch.dot would save a pass, but it adds up in one float32; sum() adds in cascades and keeps seven digits.
    return -float(lifted.log_().mul_(probabilities).sum())


def _row_maximum(values: Tensor) -> Tensor:
    """The maximum of each row."""
    rows, classes = values.shape
    if values.device.type == "cpu" and classes <= POOLED_CLASSES:
        # A pool over the flat numbers runs down the rows, twice as fast as a reduction over a short last dimension.
        # As "channels" it takes pieces that fit in the first-level cache, and shares them out to threads.
        return torch.max_pool1d(values.view(1, math.gcd(rows, PIECES), -1), classes, classes).view(rows)
    return values.amax(1)


def _add_confidences(totals: Totals, top: Tensor, correct: Tensor) -> None:
    """Count the confidences into cells (lower, upper], those of correct rows apart from the others."""
    cells = totals.counts.shape[1]
    confidence = top.double()
    # Truncation puts an edge into the cell above it; the slack puts it, and the floats next to it, into the one
    # below. So m/M in the type of the probabilities, rounded either way, belongs to bin m.
    slack = cells * torch.finfo(top.dtype).eps / 2
    place = confidence.mul(cells).sub_(slack).long().clamp_(0, cells - 1).add_(correct, alpha=cells)
    totals.counts.view(-1).scatter_add_(0, place, torch.ones_like(place))
    totals.confidences.view(-1).scatter_add_(0, place, confidence)


def evaluate(probabilities: Tensor, labels: Tensor, bins: int = 15) -> dict[str, float | None]:
    """Every metric of these predictions by name: `Scores` for data that is all in memory.

    Parameters
    ----------
    probabilities
        (rows, classes), or (members, rows, classes), which are averaged.
    labels
        Class numbers, (rows,).
    bins
        Bins of equal width for ECE, OE and UE.

    Returns
    -------
    dict
        acc, nll, brier, ece, oe, ue and the others; shares, not percent.
    """
    given = probabilities if isinstance(probabilities, Tensor) else torch.as_tensor(probabilities)
    check_shape(given, members=None)
    return Scores(given.shape[-1], bins).update(given, labels).result().to_dict()
