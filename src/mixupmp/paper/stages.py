"""Fits in stages, for what has to be looked at on the way: each stage starts from where the one before ended.

The comparison of BB and DE asks how the normalized margin moves long after the training rows are all learned. A stage
is a fit of its own, so it is cached, resumed and shared like any other; momentum starts anew with each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor, nn

from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.samplers import Ensemble
from mixupmp.metrics import normalized_margin
from mixupmp.paper.members import Wanted
from mixupmp.paper.settings import Setting
from mixupmp.paper.study import NothingKept, Study


def first_stage(setting: Setting, method: Method, seed: int) -> Plan:
    """From random weights to 100% training accuracy."""
    plan = setting.plan(method, seed)
    return replace(plan, recipe=replace(plan.recipe, epochs_after_interpolation=0))


def next_stage(plan: Plan, posterior: Posterior, epochs: int) -> Plan:
    """So many further epochs from these members. Weights over the rows are drawn as before: same seed, same member."""
    start = [{name: value.detach().cpu() for name, value in n.state_dict().items()} for n in posterior.networks]
    method = replace(plan.method, sampler=Ensemble(len(start)))
    recipe = replace(plan.recipe, epochs=epochs, epochs_after_interpolation=None)
    return replace(plan, method=method, recipe=recipe, initial=start)


def run_stages(study: Study, plans: Sequence[Plan], further: Sequence[int]) -> Iterator[list[Wanted]]:
    """Train these plans and then so many further epochs in each stage; yields all plans after each stage."""
    current = list(plans)
    for epochs in (None, *further):
        if epochs is not None:
            current = [next_stage(plan, _finished(study, plan), epochs) for plan in current]
        wanted = [Wanted(plan) for plan in current]
        study.train(wanted)
        if not all(study.available(one) for one in wanted):
            raise NothingKept(f"--partial: a stage of {study.name} is not finished, and the next starts from it.")
        yield wanted


def margins(posterior: Posterior, inputs: Tensor, labels: Tensor) -> list[float]:
    """The normalized margin of each member on its training rows."""
    outputs = posterior.member_outputs(inputs)
    found = []
    for network, logits in zip(posterior.networks, outputs, strict=True):
        layers = sum(isinstance(module, nn.Linear | nn.Conv2d) for module in network.modules())
        found.append(normalized_margin(logits, labels, network.parameters(), layers))
    return found


def _finished(study: Study, plan: Plan) -> Posterior:
    posterior = study.cache.posterior(Wanted(plan))
    assert posterior is not None, "every member diverged before it had learned its rows"
    return posterior
