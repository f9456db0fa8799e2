"""What is chosen where nothing is given: r and the training length together, and a temperature or variance factor.

Everything is judged on rows that no member was trained on; the fit to all rows comes afterwards. See
results/tables/README.md for the measurements behind the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.streams import has_labels
from mixupmp.decide.calibrators import Calibrator, Temperature, VarianceFactor
from mixupmp.decide.detect import Detector
from mixupmp.decide.evaluator import calibration
from mixupmp.decide.held_out import disjoint_parts
from mixupmp.decide.search import Candidate, Search, epoch_grid
from mixupmp.decide.select import Selection, select
from mixupmp.train.plans import MANY_ROWS
from mixupmp.train.run import Engine, fit

ALPHA = 0.4
RATIOS = (0.0, 1.0, inf)
FEWEST_ROWS = 20  # with fewer there is nothing to hold out: r = 1, alpha = .4, the recipe's length, no temperature
MOST_HELD_OUT, FEWEST_HELD_OUT = 5000, 4
LONGEST, SHORTEST, MOST_EPOCHS = 1000, 50, 100  # the first two in steps
LONGEST_OF_MANY = 4000  # steps from `MANY_ROWS` rows on, as four members do a quarter of the arithmetic of sixteen
# With fewer rows than the first number, so many parts of them are held out in turn, for members that share one network,
# and where each has to be trained. (200 digits, r = 1: one part of 40 rows leaves T = 1 in a fifth of the divisions
# where two find .47 to .70, around the best on 699 other rows.)
PARTS_SHARED, PARTS_SEPARATE = ((500, 3), (1000, 2)), ((2000, 2),)
PARTS_REGRESSION = (
    (1000, 2),
)  # of members that share one network; a third part gains .02 in NLL for half as much time
# The temperature of the chosen candidate comes from so many held-out rows, if so many parts of a fifth have them: from
# the 80 rows of two parts it is mostly noise (results/demo).
CALIBRATION_ROWS, MOST_PARTS = 200, 5
GROWTH = 1.4  # from one length to the next
PATIENCE = 2


@dataclass(frozen=True)
class Choice:
    """A plan for all rows with what was chosen for it."""

    plan: Plan
    selection: Selection | None = None
    calibrator: Calibrator | None = None
    detector: Detector | None = None  # of the rows that were held out; None where none were, and in regression
    posterior: Posterior | None = None  # of the plan, where choosing has fitted it
    variance: VarianceFactor | None = None  # in regression


def choose(
    plan: Plan,
    *,
    ratio: float | None = None,
    alpha: float | None = None,
    length: bool = False,
    calibrate: bool = True,
    search: Search | None = None,
    engine: Engine = "auto",
) -> Choice:
    """Choose what is open of a plan for MixupMP, and the temperature, on rows held out from its training rows.

    Parameters
    ----------
    ratio, alpha
        Those that are fixed; None: open.
    length
        Whether the number of epochs is open. It can only be chosen at a constant learning rate.
    calibrate
        Whether a temperature is fitted, or in regression a factor of the variance.
    search
        In place of the default candidates; ratio and alpha that are fixed go over it.
    """
    fixed = Candidate(1.0 if ratio is None else ratio, ALPHA if alpha is None else alpha)
    search = default_search(plan, ratio, alpha, length, calibrate) if search is None else _fixed(search, ratio, alpha)
    if search is None:
        return Choice(fixed.applied(plan))
    selection = select(plan, search, engine=engine)
    chosen = selection.chosen.applied(plan)
    if not calibrate:
        return Choice(chosen, selection, None, selection.detector)
    return Choice(chosen, selection, selection.calibrator, selection.detector, variance=selection.variance)


def calibrated(plan: Plan, engine: Engine = "auto") -> Choice:
    """The plan as it is, with the temperature of a fit to four fifths of its rows."""
    if plan.task.likelihood.classes is None or not can_hold_out(plan):
        return Choice(plan)
    return Choice(plan, None, *_held_out(plan, _calibration_parts(plan), engine))


def _parts(plan: Plan) -> int:
    """More parts for few rows: one of them does not determine a temperature."""
    shared = PARTS_SHARED if plan.task.likelihood.classes is not None else PARTS_REGRESSION
    table = shared if plan.method.sampler.networks == 1 else PARTS_SEPARATE
    return next((parts for rows, parts in table if len(plan.train) < rows), 1)


def _calibration_parts(plan: Plan) -> int:
    """Of members that are trained one by one and hold little out, so many parts that `CALIBRATION_ROWS` speak."""
    parts = _parts(plan)
    if plan.method.sampler.networks == 1:
        return parts
    return max(parts, min(MOST_PARTS, ceil(CALIBRATION_ROWS / (_share(plan) * len(plan.train)))))


def _held_out(plan: Plan, parts: int, engine: Engine) -> tuple[Temperature, Detector]:
    """Temperature and detector of fits to all rows but a part, on that part's rows, for disjoint parts together."""
    assert has_labels(plan.train)
    outputs, parts_held = [], []
    for train, held in disjoint_parts(plan.train, _share(plan), parts, plan.seed):
        rows = held.read()
        outputs.append(fit(replace(plan, train=train), engine=engine).member_outputs(rows.inputs).cpu())
        parts_held.append(rows)
    return calibration(parts_held, outputs)


def can_hold_out(plan: Plan) -> bool:
    """Whether there are rows enough to hold some out, with every class in what is left."""
    if not has_labels(plan.train) or plan.train.labels is None or len(plan.train) < FEWEST_ROWS:
        return False
    return round(_share(plan) * len(plan.train)) >= FEWEST_HELD_OUT


def default_search(
    plan: Plan, ratio: float | None, alpha: float | None, length: bool, calibrate: bool
) -> Search | None:
    """What is tried for this plan, or None where nothing is open or there are too few rows."""
    lengths = _lengths(plan) if length and plan.recipe.schedule == "constant" else None
    if not can_hold_out(plan):
        return None
    search = Search(
        pairs=_pairs(ratio, alpha),
        validation=_share(plan),
        standard_errors=0.0,
        length_errors=0.3,
        epochs=lengths,
        calibrate=calibrate,
        patience=PATIENCE,
        parts=_parts(plan),
        calibration_parts=_calibration_parts(plan),
    )
    nothing_open = len(search.candidates(plan)) == 1 and lengths is None and not calibrate
    return None if nothing_open else search


def _pairs(ratio: float | None, alpha: float | None) -> tuple[tuple[float, float | None], ...]:
    ratios = RATIOS if ratio is None else (ratio,)
    alphas = (ALPHA,) if ratio is None and alpha is None else (ALPHA, 2.0) if alpha is None else (alpha,)
    return tuple(pair for r in ratios for pair in ([(r, a) for a in alphas] if r else [(r, None)]))


def _fixed(search: Search, ratio: float | None, alpha: float | None) -> Search:
    """A search of the user's own, with what is fixed in place of its candidates."""
    if search.pairs is not None:
        given = ((r if ratio is None else ratio, (a or ALPHA) if alpha is None else alpha) for r, a in search.pairs)
        return replace(search, pairs=tuple(dict.fromkeys((r, a if r else None) for r, a in given)))
    if ratio is not None:
        search = replace(search, ratios=(0.0, ratio, inf))
    return search if alpha is None else replace(search, alphas=(alpha,))


def _share(plan: Plan) -> float:
    """Of the rows, held out: a fifth, less of many rows, and of classes with few rows all but one of each."""
    rows, labels = len(plan.train), getattr(plan.train, "labels", None)
    classes = 0 if plan.task.likelihood.classes is None or labels is None else len(labels.unique())
    return min(0.2, MOST_HELD_OUT / rows, 1 - classes / rows)


def _lengths(plan: Plan) -> tuple[int, ...]:
    """Training lengths from `SHORTEST` to `LONGEST` steps, more for many rows, but 3 to `MOST_EPOCHS` epochs."""
    rows = len(plan.train)
    steps_an_epoch = ceil(rows / (plan.recipe.batch_size or rows))
    steps = LONGEST if rows < MANY_ROWS else LONGEST_OF_MANY
    longest = min(MOST_EPOCHS, max(3, steps // steps_an_epoch))
    return epoch_grid(longest, min(longest, max(1, SHORTEST // steps_an_epoch)), GROWTH)
