"""Limits of forecasts: designs outside of what was measured.

A run held where it kept what it had learned (`run_held`). The law's curve cannot turn down, and a world of the
simulator that fits runs which held seldom does, so both would rank the design that goes furthest first, even where it
fails. Such a design is named in words, gets a wide interval and a low forecast (not where `may_hold` is true), and is
never recommended. The thresholds were set after seeing the public runs that docs/forecast.md scores, so they look
better there than on unseen runs.
"""

from collections.abc import Sequence

import numpy as np

from rftlab.shared.design import Design
from rftlab.studies.forecast.law.curve import KnownRun

FASTER = 1.5
"""Factor on the highest learning rate that held, up to which a rate is within the limits. Qwen2.5-Math-1.5B holds at
5e-5 and fails at 7e-5 and 2e-4 (one seed each, ShibukiZero/assignment5-alignment); OLMo-2-1B holds at 1e-5, and three
seeds of four fail at 2e-5 (Taoger-Xu/assignment5-alignment)."""
UPDATES = 4
"""Number of updates of a round (passes times mini-batches) that usually hold. Of the same 1.5B runs at 4e-5 all with up
to 4 hold, and of five with 8 or 16 two end at 0: those of 8 and 16 passes. Logs seldom tell passes from mini-batches,
so both count. Mini-batches with no fewer prompts than those of a run that held are allowed: OLMo-2-1B holds with 32 of
256 prompts (RachitBansal/verl)."""
FALLEN = 0.5
"""Share of its own highest value, or of the end of a run at a lower rate, below which a run's end counts as failed."""
SURE = 3.0
"""Standard errors by which such an end must also be lower than the value that it is compared with."""
FAILING = (0.1, 0.0, 0.35)
"""Forecast of a design beyond the limits, and bounds of its 80% interval. The upper bound is the forecaster's own where
that is higher, because such a design may fail, or go on as others did. Failed public runs end at 0.00 to 0.21. Where
the rate alone is beyond the limits, and public runs usually hold at it (`may_hold`), the forecast is the law's."""


def beyond(design: Design, learning_rate: float | None, runs: Sequence[KnownRun]) -> str:
    """Return the reason why a design is outside what was measured; "" where it is not. learning_rate: None for that of
    the runs."""
    good = [run for run in runs if run_held(run, runs)]
    if not good:
        return "no known run held what it had learnt"
    if any(_same(design, learning_rate, run) for run in good):
        return ""
    rates = [run.learning_rate for run in good if run.learning_rate is not None]
    most = max(UPDATES, *(round_updates(run.design) for run in good))
    smallest = min(run.design.batch_size / run.design.minibatches for run in good)
    reasons = []
    if learning_rate is not None and rates and learning_rate > FASTER * max(rates) * (1 + 1e-9):
        reasons.append(
            f"a learning rate of {learning_rate:g}, more than {FASTER:g} times {max(rates):g}, the highest that held"
        )
    # Training then maximizes reward / length: of two right responses the shorter one counts more, and no baseline
    # makes up for it. Public runs go from 305 to 14 tokens in ten rounds.
    advantage, aggregation = design.estimator.advantage, design.estimator.aggregation
    if advantage.baseline == "none" and aggregation.kind == "seq_mean_token_mean":
        reasons.append("the raw reward with a mean over responses of token means, which favours short responses")
    # Trainers differ in what a group's advantage of one response is: TRL trains on nothing, verl on the raw reward.
    alone = compares_nothing(design) and design.estimator.advantage.of_group
    if alone and not any(compares_nothing(run.design) for run in good):
        reasons.append("a group's advantage with one rollout and no support or window, so no baseline")
    smaller = design.batch_size / design.minibatches < smallest
    if round_updates(design) > most and (design.epochs > UPDATES or smaller):
        reasons.append(
            f"{round_updates(design)} updates a round, more than the {most} that were measured or usually hold"
        )
    return "; ".join(reasons)


def may_hold(design: Design, learning_rate: float | None, runs: Sequence[KnownRun], edge: float) -> bool:
    """Return whether a design is within all limits but that of the learning rate, and its rate is below `edge`, from
    which public runs of models alike usually fail (nan: not known)."""
    return learning_rate is not None and learning_rate < edge and not beyond(design, None, runs)


def spoils(run: KnownRun, runs: Sequence[KnownRun]) -> bool:
    """Whether a run has a higher learning rate than any that held. A curve that cannot turn down fits better without
    it."""
    rates = [one.learning_rate for one in runs if one.learning_rate is not None and run_held(one, runs)]
    return run.learning_rate is not None and bool(rates) and run.learning_rate > max(rates)


def round_updates(design: Design) -> int:
    """Return the number of updates of a round: passes times mini-batches."""
    return design.epochs * design.minibatches


def run_held(run: KnownRun, runs: Sequence[KnownRun]) -> bool:
    """Whether a run kept what it had learned: it ends near its own highest value and near the runs at lower rates, and
    so do more than half of the runs of its design and rate."""
    repeats = [_ends_well(one, runs) for one in runs if _same(run.design, run.learning_rate, one)]
    return _ends_well(run, runs) and 2 * sum(repeats) > len(repeats)


def _ends_well(run: KnownRun, runs: Sequence[KnownRun]) -> bool:
    tops = [(float(run.values.max()), float(run.errors[np.argmax(run.values)]))]
    if run.learning_rate is not None:
        slower = [one for one in runs if one.learning_rate is not None and one.learning_rate < run.learning_rate]
        tops += [(float(one.values[-1]), float(one.errors[-1])) for one in slower]
    end, error = float(run.values[-1]), float(run.errors[-1])
    return not any(end < FALLEN * top and top - end > SURE * np.hypot(error, its) for top, its in tops)


def _same(design: Design, learning_rate: float | None, run: KnownRun) -> bool:
    """Whether a known run has this design and learning rate."""
    sizes = ("batch_size", "rollouts", "support_rollouts", "replay_window", "epochs", "minibatches")
    alike = all(getattr(design, name) == getattr(run.design, name) for name in sizes)
    return alike and design.estimator == run.design.estimator and learning_rate in (None, run.learning_rate)


def compares_nothing(design: Design) -> bool:
    """Whether a response is compared with no other one: one rollout, no support rollouts and no replay window."""
    return design.rollouts == 1 and design.support_rollouts == 0 and design.replay_window == 0
