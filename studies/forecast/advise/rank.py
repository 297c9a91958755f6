"""Designs in an order, and the runs to make first."""

from math import log2, nan
from typing import NamedTuple

from rftlab.shared.design import Design
from rftlab.studies.forecast.advise.evidence import AdviceEvidence, DesignScore, key_of
from rftlab.studies.forecast.advise.fleet import FleetPlan
from rftlab.studies.forecast.signal.signal import silent_share

FIRST = 3
"""Runs that are proposed."""
FAR = 4
"""Doublings of B and K between the first design and the one that it is compared with: four times B, a quarter of
K. Farther ones, as one prompt a round, are seldom wanted."""
LIKE = 1.5
"""Two designs cost alike if neither costs more than so many times the other."""


class Option(NamedTuple):
    """A design with its cost and what is known of it."""

    label: str
    design: Design
    plan: FleetPlan
    score: DesignScore | None
    """Measured; None where nobody ran it."""
    groups: float | None
    """With signal in a round, expected of the base model; None without pass rates, and where baselines do not come
    from the group alone."""

    @property
    def rate(self) -> float | None:
        """Groups with signal for a GPU-hour."""
        rounds = self.plan.run.design.rounds
        return None if self.groups is None else self.groups * rounds / self.plan.gpu_hours


def option_of(label: str, design: Design, plan: FleetPlan, evidence: AdviceEvidence) -> Option:
    """A design as a row."""
    alone = design.support_rollouts == 0 and design.replay_window == 0 and design.rollouts > 1
    rates = evidence.rates if alone else None
    groups = None if rates is None else design.batch_size * (1 - silent_share(rates, design.rollouts))
    return Option(label, design, plan, evidence.scores.get(key_of(design)), groups)


def ranked(options: list[Option]) -> list[Option]:
    """Those that fit first; of them measured ones, the best first; then the cheapest first. Costs are no gains: the
    order of designs that nobody ran says nothing of their Pass@1."""

    def place(option: Option) -> tuple:
        measured = option.score is not None
        return not option.plan.fits, not measured, -_value(option) if measured else option.plan.gpu_hours

    return sorted(options, key=place)


class ProposedRun(NamedTuple):
    """A run, and why."""

    option: Option
    why: str


def first_runs(options: list[Option], budget: float) -> list[ProposedRun]:
    """Up to FIRST runs that fit, within the GPU-hours of all together."""
    able = [option for option in options if option.plan.fits and option.plan.gpu_hours <= budget]
    measured = [option for option in able if option.score is not None]
    wanted = _after(able, measured) if measured else _blank(able, budget)
    kept, left = [], budget
    for proposal in wanted[:FIRST]:
        if proposal.option.plan.gpu_hours <= left:
            kept.append(proposal)
            left -= proposal.option.plan.gpu_hours
    return kept


def _blank(able: list[Option], budget: float) -> list[ProposedRun]:
    """Nothing was run: a design in the middle, the same responses split otherwise, and the middle one again."""
    plain = [option for option in able if option.design.rollouts > 1 and not option.design.replay_window] or able
    for middle in sorted(plain, key=lambda option: (abs(_split(option) - _median(plain)), option.plan.gpu_hours)):
        others = [option for option in plain if _alike(option, middle) and 0 < _distance(option, middle) <= FAR]
        cost = 2 * middle.plan.gpu_hours
        others = [option for option in others if option.plan.gpu_hours + cost <= budget]
        if cost > budget:
            continue
        found = [ProposedRun(middle, "in the middle of what can be paid: what others are compared with")]
        if others:
            far = max(others, key=lambda option: (_distance(option, middle), -option.plan.gpu_hours))
            found.append(ProposedRun(far, "as dear, but split otherwise between B and K: which of them counts here"))
        return [*found, ProposedRun(middle, "again with another seed: without the spread no difference means anything")]
    cheapest = sorted(able, key=lambda option: option.plan.gpu_hours)[:1]
    return [ProposedRun(option, "the only kind of run that can be paid") for option in cheapest]


def _after(able: list[Option], measured: list[Option]) -> list[ProposedRun]:
    """Some were run: the best again where it was run once, its nearest neighbour that was not, and the farthest."""
    best = max(measured, key=_value)
    fresh = [option for option in able if option.score is None and option.design.rollouts > 1]
    again = "the best so far, again with another seed: picked among several it looks better than it is"
    found = [ProposedRun(best, again)]
    if fresh:
        near = min(fresh, key=lambda option: (_distance(option, best), option.plan.gpu_hours))
        found.append(ProposedRun(near, "nearest to the best of those that nobody ran"))
        rest = [option for option in fresh if option is not near]
        if rest:
            far = max(rest, key=lambda option: (min(_distance(option, one) for one in measured),
                                                -option.plan.gpu_hours))  # fmt: skip
            found.append(ProposedRun(far, "farthest from all that was run: what else there may be"))
    return found


def _value(option: Option) -> float:
    """Measured Pass@1; nan where nobody ran it."""
    return nan if option.score is None else option.score.value


def _split(option: Option) -> float:
    """log2 (B / K)."""
    return log2(option.design.batch_size / option.design.rollouts)


def _median(options: list[Option]) -> float:
    values = sorted(map(_split, options))
    return values[len(values) // 2]


def _alike(a: Option, b: Option) -> bool:
    costs = sorted((a.plan.gpu_hours, b.plan.gpu_hours))
    return costs[1] <= LIKE * costs[0]


def _distance(a: Option, b: Option) -> float:
    """In doublings of B and of K; other baselines count as one each."""
    first, second = a.design, b.design
    doublings = abs(log2(first.batch_size / second.batch_size)) + abs(log2(first.rollouts / second.rollouts))
    others = (first.support_rollouts != second.support_rollouts) + (first.replay_window != second.replay_window)
    return doublings + others
