"""Members of the Bayesian bootstrap and of the deep ensemble with the same start, side by side: figures and a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch

from mixupmp.metrics.text_tables import markdown_table
from mixupmp.paper.figures import REFERENCE, panels, save
from mixupmp.paper.study import Evaluation, Study
from mixupmp.plots.style import METHOD_COLORS, OTHER_COLOR, styled

COLORS = {"DE": METHOD_COLORS["DE"], "BB": METHOD_COLORS["Mixup ensemble"]}
STARTS = ("random", "DE")
QUARTILES = torch.tensor([0.25, 0.5, 0.75])

Tracks = dict[str, list[Evaluation]]
ByMember = dict[tuple[int, int], float]  # by seed and number


def by_stage(track: Sequence[Evaluation], measure: str) -> dict[int, ByMember]:
    """A measure of the members of all repeats after each stage."""
    found: dict[int, ByMember] = {}
    for one in track:
        values = zip(one["members"], one[measure], strict=True)
        found.setdefault(one["stage"], {}).update({(one["seed"], number): value for number, value in values})
    return found


def pairs_of(tracks: Tracks, start: str, measure: str) -> list[tuple[float, float]]:
    """What DE's and BB's member of the same start had in the end, of those that neither has lost."""
    de, bb = (by_stage(tracks[f"{which} from {start}"], measure) for which in COLORS)
    last_de, last_bb = de[max(de)], bb[max(bb)]
    return [(last_de[key], last_bb[key]) for key in sorted(set(last_de) & set(last_bb))]


def epochs_passed(further: Sequence[int], start: str) -> list[int]:
    """After how many further epochs margins are measured: from random weights also at 100% training accuracy."""
    return [sum(further[:k]) for k in range(0 if start == "random" else 1, len(further) + 1)]


def below_100(tracks: Tracks) -> dict[str, tuple[int, int]]:
    """(how many, of how many) networks of each line that are wrong about a training row in the end, where there are."""
    found = {}
    for label, track in tracks.items():
        stages = by_stage(track, "member_training_accuracy")
        ended = stages[max(stages)].values()
        if below := sum(value < 1 for value in ended):
            found[label] = (below, len(ended))
    return found


def ratios(tracks: Tracks, start: str) -> list[list[float]]:
    """BB's margin over that of DE's member of the same start, after each stage, where both are positive.

    A ratio of negative margins would be the larger the worse BB's is.
    """
    de, bb = (by_stage(tracks[f"{which} from {start}"], "margins") for which in COLORS)
    found = []
    for stage in sorted(set(de) & set(bb)):
        both = [(de[stage][key], bb[stage][key]) for key in sorted(set(de[stage]) & set(bb[stage]))]
        found.append([theirs / ours for ours, theirs in both if ours > 0 and theirs > 0])
    return found


def margins_table(tracks: Tracks, further: Sequence[int]) -> str:
    """How BB's margins compare with DE's after each stage."""
    rows = []
    for start in STARTS:
        pairs = len(pairs_of(tracks, start, "margins"))
        for epochs, found in zip(epochs_passed(further, start), ratios(tracks, start), strict=True):
            span = f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else "-"
            rows.append([start, str(epochs), span, f"{len(found)} of {pairs}"])
    head = ["start", "further epochs", "margin of BB / of DE: median (range)", "pairs with positive margins"]
    return markdown_table(head, rows)


def draw_pairs(study: Study, tracks: Tracks, name: str) -> None:
    """Each point is a pair of members with the same start: on the diagonal they ended alike."""
    with styled():
        figure, (axes,) = panels(1, 4, 12, 3.2)
        shown = [(measure, start) for start in STARTS for measure in ("acc", "nll")]
        for axis, (measure, start) in zip(axes, shown, strict=True):
            x, y = zip(*pairs_of(tracks, start, f"member_{measure}"), strict=True)
            low, high = min(x + y), max(x + y)
            pad = 0.1 * (high - low) + 1e-4
            axis.plot([low - pad, high + pad], [low - pad, high + pad], color=REFERENCE, linewidth=1)
            axis.scatter(x, y, color=OTHER_COLOR, s=22)
            axis.set(xlabel=f"DE member, {measure.upper()}", ylabel=f"BB member, {measure.upper()}")
            axis.set_title(f"start: {start}")
        figure.suptitle(f"{name}: do BB and DE members from the same start end on the diagonal?")
    save(figure, study.folder, "pairs")


def draw_margins(study: Study, tracks: Tracks, name: str, further: Sequence[int]) -> None:
    """Normalized margins over training, and BB's as shares of DE's: do the two methods meet?"""
    with styled():
        figure, (upper, lower) = panels(2, 2, 8.4, 5.4, sharey="row", sharex="col")
        for top, bottom, start in zip(upper, lower, STARTS, strict=True):
            passed = epochs_passed(further, start)
            for which, color in COLORS.items():
                track = tracks[f"{which} from {start}"]
                stages, right = by_stage(track, "margins"), by_stage(track, "member_training_accuracy")
                for key in stages[0]:
                    values = [stages[stage][key] for stage in sorted(stages) if key in stages[stage]]
                    dashes = "-" if right[max(right)].get(key, 0.0) == 1 else ":"
                    top.plot(passed[: len(values)], values, dashes, color=color, marker="o", markersize=3)
            shares = [(x, each) for x, each in zip(passed, ratios(tracks, start), strict=True) if each]
            spread = torch.tensor([torch.tensor(each).quantile(QUARTILES).tolist() for _, each in shares]).view(-1, 3)
            epochs, (low, middle, high) = [x for x, _ in shares], spread.T
            bottom.plot(epochs, middle, color=COLORS["BB"], marker="o")
            bottom.fill_between(epochs, low, high, color=COLORS["BB"], alpha=0.2, lw=0)
            top.axhline(0, color=REFERENCE, linewidth=1)
            bottom.axhline(1, color=REFERENCE, linewidth=1)
            top.set_title(f"start: {start}")
            bottom.set_xlabel("further epochs")
        upper[0].set_ylabel("normalized margin")
        lower[0].set_ylabel("margin of BB / of DE\nmedian and quartiles of pairs")
        for which, color in COLORS.items():
            upper[0].plot([], [], color=color, marker="o", markersize=3, label=which)
        if below_100(tracks):
            upper[0].plot([], [], ":", color=REFERENCE, label="dotted: wrong about a training row in the end")
        figure.legend(*upper[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
        figure.suptitle(f"{name}: normalized margins of DE and BB members over training")
    save(figure, study.folder, "margins")
