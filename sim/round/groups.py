"""Steps of both rounds for the responses of a context: its baseline set, and its part in the metrics."""

from rftlab.shared.memory import window_into
from rftlab.shared.plumbing.arithmetic import total
from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.state import TOTAL


@kernel(forceinline=True)
def copy_into(values, out, start):
    """Copy values to out[start:]; return where they end."""
    copy = out[start : start + values.shape[0]]
    for i in range(values.shape[0]):
        copy[i] = values[i]
    return start + values.shape[0]


@kernel(forceinline=True)
def add_baseline_set(plan, windows, context, own, support, pool, end):
    """Add a context's baseline set to the pool, which ends at `end`: its window or the rewards of its own responses,
    then those of support rollouts."""
    end = window_into(windows, context, pool, end) if plan.replays else copy_into(own, pool, end)
    return copy_into(support, pool, end) if plan.support > 0 else end


@kernel
def count_group(rewards, advantages, totals):
    """Add a context's rewards to the totals, and whether none of its responses teaches. Behind the advantages of new
    responses may be those of replayed ones, whose rewards are no longer counted."""
    silent = True
    for k in range(advantages.shape[0]):
        silent = silent & (advantages[k] == 0.0)
    totals[TOTAL.reward] += total(rewards)
    totals[TOTAL.zero_signal] += silent
    totals[TOTAL.contexts] += 1
    totals[TOTAL.rollouts] += rewards.shape[0]
