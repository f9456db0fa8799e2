r"""Proposition 1 on problems whose maximum margin is known: do BB and DE end with the same normalized margin?

A linear network of L layers without biases, f(x) = W_L .. W_1 x, is L-homogeneous, and with ||theta||^2 = S its product
has a norm of at most (S/L)^(L/2). So its largest normalized margin is

    gamma* = gamma_SVM L^(-L/2),

where gamma_SVM is the geometric margin of the hard-margin support vector machine through the origin. Points in the
plane around two known support vectors make gamma_SVM known too. The loss is the weighted logistic loss with the weights
of DE (equal) or of the stabilized Bayesian bootstrap; gradient descent in double precision with steps of one length,
without which margins approach their limit like 1/log(step) (Nacson et al. 2019).

The largest margin of two layers with ReLU is known too, as the two support vectors are x and -x. A neuron is active on
one of them alone. Those active on x with squared norm s give it a margin of at most gamma_SVM s/2, the others the
opposite point at most gamma_SVM (1 - s)/2, and the smaller of these is at most gamma_SVM/4, which two neurons reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mixupmp.core.foreign import Json
from mixupmp.core.seeds import generator
from mixupmp.core.weights import StabilizedDirichlet
from mixupmp.metrics.text_tables import markdown_table
from mixupmp.paper.figures import REFERENCE, panels, save
from mixupmp.paper.study import Study
from mixupmp.plots.style import METHOD_COLORS, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Proposition 1: the normalized margins of BB and DE where the largest is known"
OPTIONS = ()  # gradient descent of its own, in double precision
COST = "minutes of a CPU"
POINTS = 40  # on each side
SVM_MARGIN = 0.5
HIDDEN = 8
STEPS = {"smoke": 100, "cpu": 5000, "paper": 20_000}
REPEATS = {"smoke": 3, "cpu": 10, "paper": 20}
RECORDS = 25
RATE = 0.1
BOUND = 100.0  # M of the stabilized bootstrap, as a multiple of the rows: nearly the plain one


@dataclass(frozen=True)
class HomogeneousNetwork:
    """Layers of a bias-free network in the plane, linear or with ReLU."""

    name: str
    widths: tuple[int, ...]
    relu: bool = False

    @property
    def layers(self) -> int:
        return len(self.widths) - 1

    @property
    def largest_margin(self) -> float:
        """gamma*, with ReLU of two layers."""
        return SVM_MARGIN / 4 if self.relu else SVM_MARGIN * self.layers ** (-self.layers / 2)

    def start(self, repeats: int, draws: torch.Generator) -> list[Tensor]:
        """(repeats, out, in) for each layer: repeats start apart."""
        shapes = zip(self.widths[1:], self.widths[:-1], strict=True)
        return [torch.randn(repeats, o, i, generator=draws, dtype=torch.float64) / sqrt(i) for o, i in shapes]

    def outputs(self, weights: list[Tensor], inputs: Tensor) -> Tensor:
        """(repeats, rows)."""
        values = inputs.T.expand(len(weights[0]), -1, -1)
        for layer, weight in enumerate(weights):
            values = weight @ (values.relu() if self.relu and layer else values)
        return values.squeeze(1)


NETWORKS = (
    HomogeneousNetwork("linear, 1 layer", (2, 1)),
    HomogeneousNetwork("linear, 2 layers", (2, HIDDEN, 1)),
    HomogeneousNetwork("ReLU, 2 layers", (2, HIDDEN, 1), relu=True),
)


def separable_points(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points and labels of -1 and 1, of geometric margin `SVM_MARGIN` through the origin, whose normal is (1, 0).

    Of each class one point lies on the margin at height 0; those two determine the separator. The others are farther.
    """
    draws = generator(seed, "margins")
    heights = torch.randn(2 * POINTS, generator=draws, dtype=torch.float64)
    depths = SVM_MARGIN + torch.rand(2 * POINTS, generator=draws, dtype=torch.float64) * 2
    depths[::POINTS], heights[::POINTS] = SVM_MARGIN, 0.0
    labels = torch.ones(2 * POINTS, dtype=torch.float64)
    labels[POINTS:] = -1
    return torch.stack([labels * depths, heights], 1), labels


def margins(
    network: HomogeneousNetwork, weights: Tensor, steps: int, records: list[int], seed: int = 0
) -> dict[int, Tensor]:
    """{step: normalized margins (repeats,)} of networks trained on the weighted loss, weights (repeats, rows)."""
    points, labels = separable_points()
    parameters = [p.requires_grad_() for p in network.start(len(weights), generator(seed, "start"))]
    found = {}
    for step in range(1, steps + 1):
        margin = labels * network.outputs(parameters, points)
        losses = torch.logsumexp(weights.log() + log_softplus(-margin), 1)
        gradients = torch.autograd.grad(losses.sum(), parameters)
        with torch.no_grad():
            lengths = torch.cat([g.flatten(1) for g in gradients], 1).norm(dim=1)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= RATE * gradient / lengths[:, None, None]
            if step in records:
                found[step] = normalized_margins(network, parameters, points, labels)
    return found


def log_softplus(values: Tensor) -> Tensor:
    """log log(1 + exp(v)), which is v where exp(v) is small: losses of e^-1000 keep their ratios."""
    return torch.where(values < -30, values, torch.nn.functional.softplus(values.clamp_min(-30)).log())


@torch.no_grad()
def normalized_margins(network: HomogeneousNetwork, parameters: list[Tensor], points: Tensor, labels: Tensor) -> Tensor:
    """min_i y_i f(x_i) / ||theta||^L of each repeat."""
    norms = torch.cat([p.flatten(1) for p in parameters], 1).norm(dim=1)
    return (labels * network.outputs(parameters, points)).amin(1) / norms**network.layers


def bootstrap_weights(repeats: int, rows: int, seed: int = 0) -> Tensor:
    """Stabilized weights of mean one, anew for each repeat."""
    draws = generator(seed, "weights")
    drawn = [StabilizedDirichlet(BOUND).draw(rows, 0, 0.0, draws) for _ in range(repeats)]
    return rows * torch.stack(drawn).double()


def run(study: Study) -> None:
    """Train, tabulate, draw."""
    steps, repeats = STEPS[study.scale], REPEATS[study.scale]
    records = sorted({max(1, round(steps ** (k / RECORDS))) for k in range(RECORDS + 1)})
    rows = 2 * POINTS
    kinds: dict[str, Callable[[], Tensor]] = {
        "DE": lambda: torch.ones(repeats, rows, dtype=torch.float64),
        "BB": lambda: bootstrap_weights(repeats, rows),
    }
    tracks = {
        (network.name, kind): margins(network, weights(), steps, records)
        for network in NETWORKS
        for kind, weights in kinds.items()
    }
    lines = [_line(network, tracks, records[-1]) for network in NETWORKS]
    head = ("network", "largest margin", "DE", "BB", "BB / DE, paired")
    study.write("table.md", f"# {TITLE}\n\n{steps:,} steps, {repeats} starts.\n\n" + markdown_table(head, lines))
    study.write("evaluations.json", [_shares(n, k, tracks, records[-1]) for n in NETWORKS for k in kinds])
    _draw(study, tracks, records)
    differences = [
        "the paper measures no problem with a known margin: this is an illustration of its proposition",
        "gradient descent with steps of the same length and no regularization, where the lemma has a weak one",
        "every repeat has the same rows",
        f"weights of the stabilized bootstrap have M = {BOUND:g} n, as the paper names none",
    ]
    study.record(differences, [0], steps=steps, repeats=repeats, svm_margin=SVM_MARGIN, rate=RATE)


def _line(network: HomogeneousNetwork, tracks: dict[tuple[str, str], dict[int, Tensor]], step: int) -> tuple[str, ...]:
    de, bb = (tracks[network.name, kind][step] for kind in ("DE", "BB"))
    return network.name, f"{network.largest_margin:.4f}", _mean(de), _mean(bb), _mean(bb / de)


def _shares(
    network: HomogeneousNetwork, kind: str, tracks: dict[tuple[str, str], dict[int, Tensor]], step: int
) -> dict[str, Json]:
    """The margins of all starts as shares of the largest one, for the ledger."""
    shares = (tracks[network.name, kind][step] / network.largest_margin).tolist()
    repeats = [{"seed": number, "margin share": share} for number, share in enumerate(shares)]
    return {"group": network.name, "label": f"{kind}, {network.name}", "repeats": repeats}


def _mean(values: Tensor) -> str:
    return f"{values.mean():.4f} ± {values.std() / sqrt(len(values)):.4f}"


def _draw(study: Study, tracks: dict[tuple[str, str], dict[int, Tensor]], records: list[int]) -> None:
    """Margins of both over training, as shares of the largest, and their ratio."""
    colors = {"DE": METHOD_COLORS["DE"], "BB": METHOD_COLORS["Mixup ensemble"]}
    with styled():
        figure, axes = panels(2, len(NETWORKS), 10.5, 5.6)
        for column, network in enumerate(NETWORKS):
            top, bottom = axes[0][column], axes[1][column]
            for kind, color in colors.items():
                values = torch.stack([tracks[network.name, kind][step] for step in records]) / network.largest_margin
                _band(top, records, values, color, kind)
            _band(bottom, *_ratios(tracks, network, records), colors["BB"], "BB / DE")
            for axis in (top, bottom):
                axis.set(xscale="log", xlim=(1, records[-1]))
                axis.axhline(1.0, color=REFERENCE, lw=1)
            top.set_title(network.name)
            top.set_ylabel("margin / largest")
            bottom.set_ylabel("margin of BB / of DE")
            bottom.set_xlabel("step")
        starts = len(tracks[NETWORKS[0].name, "DE"][records[0]])
        axes[0][0].fill_between([], [], color=REFERENCE, alpha=0.5, lw=0, label=f"quartiles of {starts} starts")
        axes[0][0].legend(loc="lower right", title="median", fontsize=7)
        figure.suptitle("Row weights change the path, not the end: BB and DE reach the same margin")
        save(figure, study.folder, "margins")


def _ratios(
    tracks: dict[tuple[str, str], dict[int, Tensor]], network: HomogeneousNetwork, records: list[int]
) -> tuple[list[int], Tensor]:
    """(steps, BB's margin over DE's) from the step on at which both are positive in all starts.

    Of two negative margins the ratio is the larger the worse BB's is.
    """
    both = {step: [tracks[network.name, kind][step] for kind in ("BB", "DE")] for step in records}
    early = [step for step, (bb, de) in both.items() if float(torch.minimum(bb, de).min()) <= 0]
    steps = [step for step in records if step > max(early, default=0)]
    return steps, torch.stack([both[step][0] / both[step][1] for step in steps])


def _band(axis: Axes, steps: list[int], values: Tensor, color: str, label: str) -> None:
    """Median and quartiles over starts: a ratio to a margin near zero would rule a mean."""
    low, median, high = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype), 1)
    wide = label == "DE"  # BB lies on it
    width, alpha, dashes = (5, 0.5, "-") if wide else (1.5, 1, "--")
    axis.plot(steps, median, color=color, label=label, lw=width, alpha=alpha, ls=dashes)
    axis.fill_between(steps, low, high, color=color, alpha=0.25, lw=0)
