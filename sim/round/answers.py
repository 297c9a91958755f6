"""Draw and score an answer with its format, and compute its log-probability and virtual length. It counts as one token,
however many tokens spell it. Two more steps of both rounds are here: the baseline set and the metrics of a context.

Arms are stored answer by answer, T for each. Places are unsigned, because a signed index costs two instructions more at
each array.

Virtual lengths let a response of one token count as longer or shorter, by the style of its answer.

The length relative to the mean is 1 + b side, with b `Linear.length_by_style` and side the mean of its tokens' styles,
from -1 (the first) to 1 (the last). A mean over the tokens of a response divides its weight by that, a mean over all
tokens divides by the length of the batch, and the variance of its nuisance is in proportion to its length. This
approximates many style tokens, whose sums are normal, without their cost; ratios, masks and KL penalties depend on the
answer alone.
"""

import numpy as np

from rftlab.shared.aggregation import response_share
from rftlab.shared.memory import window_into
from rftlab.shared.plumbing.arithmetic import total
from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.policy.spelling import pick
from rftlab.sim.policy.style import mean_side
from rftlab.sim.state import TOTAL

N = np.uintp


@kernel(forceinline=True)
def draw_answer(plan, correct, formed, cdf, uniform, draw, at, arms):
    """Draw an answer: fill arms[at : at + T], and return its format and reward.

    correct: bits of the right arms; formed: probability of a well-formed answer; cdf: running total of the
    probabilities; draw: the first of its T uniforms.
    """
    form, right = uniform[0, draw] < formed, np.uint32(1)
    for s in range(len(plan.token_starts)):
        arm = N(pick(plan, cdf, s, uniform[1, draw + N(s)]))
        arms[at + N(s)] = arm
        right &= correct >> np.uint32(arm)
    return form, right & np.uint32(form)


@kernel(forceinline=True)
def add_logits(plan, logits, row, arms, at, logp):
    """Add the logits of the answer arms[at : at + T] to logp, one after the other, and return the sum."""
    for s in range(len(plan.token_starts)):
        logp += logits[row, N(arms[at + N(s)])]
    return logp


@kernel(forceinline=True)
def answer_logp(plan, view, row, arms, at, form):
    """Return the log-probability of the answer arms[at : at + T] with its format under a policy (`Work` or `View`), the
    sum over its tokens."""
    return add_logits(plan, view.logits, row, arms, at, -view.lse[row]) + view.format_logp[form, row]


@kernel(forceinline=True)
def base_answer_logp(plan, contexts, context, arms, at, form):
    """Return `answer_logp` under the base policy."""
    return (
        add_logits(plan, contexts.base_logits, context, arms, at, -contexts.base_lse[context])
        + contexts.base_format_logp[context, form]
    )


@kernel
def relative_length(plan, arms, at):
    """Return the length of the response with the answer arms[at : at + T], relative to the mean."""
    return 1.0 + plan.length_by_style * mean_side(plan, len(plan.token_starts), arms, at)


@kernel
def total_length(plan, arms, first, last):
    """Return the sum of the relative lengths of the responses first .. last-1."""
    total, tokens = 0.0, len(plan.token_starts)
    for i in range(first, last):
        total += relative_length(plan, arms, i * tokens)
    return total


@kernel
def shares_by_length(plan, rule, arms, first, n, out):
    """Fill out[:n] with the shares (`rftlab.shared.aggregation`) of responses first .. first+n-1 in an optimiser batch
    of out.shape[0] responses. n must be all of them, unless shares do not depend on other responses."""
    total, tokens = total_length(plan, arms, first, first + n), len(plan.token_starts)
    for row in range(n):
        low = first + row - row % rule.micro_batch
        near = total_length(plan, arms, low, min(low + rule.micro_batch, first + n))
        length = relative_length(plan, arms, (first + row) * tokens)
        out[row] = response_share(rule, length, near, total, float(out.shape[0]))


@kernel(forceinline=True)
def copy_into(values, out, start):
    """Copy values to out[start:]; return the end of the copy."""
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
    """Add a context's rewards to the totals, and count it if all its advantages are 0. Advantages of replayed responses
    may follow those of new ones; their rewards are not counted again."""
    silent = True
    for k in range(advantages.shape[0]):
        silent = silent & (advantages[k] == 0.0)
    totals[TOTAL.reward] += total(rewards)
    totals[TOTAL.zero_signal] += silent
    totals[TOTAL.contexts] += 1
    totals[TOTAL.rollouts] += rewards.shape[0]
