"""The Bayesian bootstrap against the deep ensemble: their table, the paired scatter of members, and whether they meet.

Both start from the same random weights, or from the finished deep ensemble, and go on long after the training rows
are all learned. The paper's appendix A says that both then maximize the same normalized margin. The fit goes in
stages, each of which starts from where the one before ended, so that margins can be measured on the way; momentum
starts anew with each. A member that diverges or collapses is not trained any further; the others keep their numbers,
by which their weights over the rows are drawn and their margins are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn

from mixupmp.core.member_summary import MemberSummary, left_out
from mixupmp.core.methods import Method, bayesian_bootstrap, deep_ensemble
from mixupmp.core.plan import Plan, initial_weights
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Rows
from mixupmp.metrics import evaluate, normalized_margin
from mixupmp.paper.lines import Line
from mixupmp.paper.members import Wanted
from mixupmp.paper.paired_members import COLORS, Tracks, below_100, draw_margins, draw_pairs, margins_table
from mixupmp.paper.report import on_test_rows, table_of, write_evaluations, write_table
from mixupmp.paper.settings import WITH_BIASES, Setting, homogeneous
from mixupmp.paper.study import Evaluation, NothingCached, Study
from mixupmp.paper.table import BOLD

TITLE = "Bayesian bootstrap against deep ensemble: table, paired members, normalized margins"
_ALL = tuple(name + end for end in ("", WITH_BIASES) for name in ("mnist", "fmnist"))
DATASETS = {"smoke": ("fmnist",), "cpu": _ALL, "paper": _ALL}
FURTHER = {"smoke": (2, 3), "cpu": (10, 40, 150), "paper": (10, 90, 400, 500)}  # epochs after 100% training accuracy
MEASURES = ("acc", "ece", "oe", "ue", "nll", "nll_calibrated", "ece_calibrated")
LABELS = ("DE from random", "BB from random", "DE from DE", "BB from DE")

Key = tuple[str, int]  # label and seed


def methods(members: int) -> dict[str, Method]:
    return {"DE": deep_ensemble(members), "BB": bayesian_bootstrap(members)}


def work(dataset: str, scale: str) -> tuple[Setting, list[Line]]:
    """The first of the stages; how many epochs it takes is not known beforehand, so 1,000 further ones are counted."""
    setting = homogeneous(dataset, scale)
    setting = replace(setting, recipe=replace(setting.recipe, epochs=2 * sum(FURTHER[scale])))
    return setting, [Line(setting.name, name, method) for name, method in methods(setting.members).items()]


def run(study: Study, dataset: str) -> None:
    setting = study.setting(homogeneous(dataset, study.scale, study.protocol))
    further = FURTHER[study.scale]
    tracks: Tracks = {label: [] for label in LABELS}
    fresh = {
        (f"{name} from random", seed): Wanted(first_stage(setting.plan(method, seed)))
        for name, method in methods(setting.members).items()
        for seed in setting.seeds
    }
    final = follow(study, setting, run_stages(study, fresh, further), tracks)
    ended = {seed: _posterior(study, final["DE from random", seed]) for seed in setting.seeds}
    pretrained = {
        (f"{name} from DE", seed): next_stage(fresh[f"{name} from random", seed].plan, ended[seed], further[0])
        for name in COLORS
        for seed in setting.seeds
    }
    final |= follow(study, setting, run_stages(study, pretrained, further[1:]), tracks)
    report(study, setting, tracks, final)
    study.record(
        differences(setting),
        setting.seeds,
        setting=setting.describe(),
        train_rows=setting.train_rows,
        further_epochs=list(further),
    )


def differences(setting: Setting) -> list[str]:
    """From section 5.1 and appendix D."""
    return [
        *setting.all_differences,
        "the bootstrap is the plain one, as section 5.1 has it, while Proposition 1 is about the stabilized one",
        "a batch's loss is the mean of its rows' weighted losses, with weights of mean one over all rows, as the text "
        "leaves its scale open",
        "further epochs are counted from 100% training accuracy, as section 5.1 says, where appendix D once says test",
        "BB from DE has the row weights of BB from random, as the text does not say",
    ]


def first_stage(plan: Plan) -> Plan:
    """From random weights to 100% training accuracy."""
    return replace(plan, recipe=replace(plan.recipe, epochs_after_interpolation=0))


def next_stage(plan: Plan, posterior: Posterior, epochs: int) -> Wanted:
    """So many further epochs from these members. Weights over the rows are drawn as before: same seed, same member."""
    numbers = tuple(summary.member for summary in left(posterior))
    weights = dict(zip(numbers, initial_weights(posterior) or (), strict=True))
    # A lost member is not among the wanted ones: what stands in its place is not trained.
    start = [weights.get(number, weights[numbers[0]]) for number in range(plan.method.sampler.networks)]
    recipe = replace(plan.recipe, epochs=epochs, epochs_after_interpolation=None)
    return Wanted(replace(plan, recipe=recipe, initial=start), numbers)


def left(posterior: Posterior) -> list[MemberSummary]:
    """How the fits of the posterior's networks ended, without those of lost members."""
    lost = left_out(posterior.summaries)
    return [summary for summary in posterior.summaries if summary.member not in lost]


def run_stages(study: Study, wanted: dict[Key, Wanted], further: Sequence[int]) -> Iterator[dict[Key, Wanted]]:
    """Train these and then so many further epochs in each stage; yields all of them after each stage."""
    current = wanted
    for epochs in (None, *further):
        if epochs is not None:
            current = {key: next_stage(one.plan, _posterior(study, one), epochs) for key, one in current.items()}
        study.train(list(current.values()))
        if not all(study.available(one) for one in current.values()):
            raise NothingCached(f"--partial: a stage of {study.name} is not finished, and the next starts from it.")
        yield current


def _posterior(study: Study, wanted: Wanted) -> Posterior:
    posterior = study.cache.posterior(wanted)
    if posterior is None:
        raise ArithmeticError(f"every member of {wanted.plan.method.name} diverged before it had learned its rows.")
    return posterior


@dataclass(frozen=True, eq=False)
class Members:
    """Each member's normalized margin on the training rows, and its own test accuracy and loss."""

    train: Rows
    test: Rows

    @property
    def key(self) -> str:
        return f"margins of members by number {self.test.fingerprint()}"

    def __call__(self, posterior: Posterior) -> Evaluation:
        each = [evaluate(member, self.test.labels) for member in posterior.member_probabilities(self.test.inputs).cpu()]
        summaries = left(posterior)
        return {
            "members": [summary.member for summary in summaries],
            "margins": self.margins(posterior),
            "member_acc": [one["acc"] for one in each],
            "member_nll": [one["nll"] for one in each],
            "epochs": [summary.epochs for summary in summaries],
            "member_training_accuracy": [summary.training_accuracy for summary in summaries],
        }

    def margins(self, posterior: Posterior) -> list[float]:
        """min_i margin_i / ||theta||^L of each member, L its number of layers."""
        found = []
        for network, logits in zip(posterior.networks, posterior.member_outputs(self.train.inputs).cpu(), strict=True):
            layers = sum(isinstance(module, nn.Linear | nn.Conv2d) for module in network.modules())
            found.append(normalized_margin(logits, self.train.labels, network.parameters(), layers))
        return found


def follow(study: Study, setting: Setting, stages: Iterator[dict[Key, Wanted]], tracks: Tracks) -> dict[Key, Wanted]:
    """Go through the stages and record every member's margin, accuracy and loss after each; returns the last."""
    wanted: dict[Key, Wanted] = {}
    for stage, wanted in enumerate(stages):
        pairs = [(one, Members(setting.dataset(seed).train, setting.test)) for (_, seed), one in wanted.items()]
        for (label, _), found in zip(wanted, study.evaluate(pairs), strict=True):
            tracks[label].append({"stage": stage, **found})
    return wanted


def report(study: Study, setting: Setting, tracks: Tracks, final: dict[Key, Wanted]) -> None:
    evaluated, evaluator = [], on_test_rows(setting)
    for label in LABELS:
        chosen = [final[label, seed] for seed in setting.seeds]
        found = study.evaluate([(one, evaluator(seed)) for seed, one in zip(setting.seeds, chosen, strict=True)])
        evaluated.append((Line(setting.name, label, chosen[0].plan.method), found))
    biases = setting.name.endswith("biases")
    wrong = "; ".join(f"{count} of {all_} of {label}" for label, (count, all_) in below_100(tracks).items())
    caption = (
        f"{setting.describe()}. {'CNN with biases' if biases else 'Bias-free CNN'}; both methods start from the same "
        f"weights. {BOLD} Networks that are wrong about a training row in the end: {wrong or 'none'}. "
        f"Differs from the paper: {'; '.join(differences(setting))}."
    )
    title = f"Bayesian bootstrap against deep ensemble, {setting.name}"
    write_table(study, "table", table_of(evaluated, title, MEASURES, ("bb_vs_de", setting.name), caption))
    write_evaluations(study, evaluated)
    study.write("members.json", tracks)
    draw_pairs(study, tracks, setting.name)
    if not biases:  # with them a network has no normalized margin
        study.write("margins.md", margins_table(tracks, FURTHER[study.scale]) + "\n")
        draw_margins(study, tracks, setting.name, FURTHER[study.scale])
