"""The softmax policy over answers of one or several tokens; an answer is right where all its tokens are.

Each of T tokens is a softmax of its own over A / T of the arms: token s has the arms s A/T .. (s+1) A/T - 1. The log-probability and the
score of an answer are the sums of those of its tokens. With one token these are the functions of sim/policy.py, at their speed.
"""

import math

import numpy as np

from shared.jit import jit
from sim import policy


@jit
def softmax(plan, logits, row, probs):
    """Fill probs[row] from logits[row], token by token; returns the sum of the tokens' log-normalisers."""
    if len(plan.token_starts) == 1:
        return policy.softmax(logits, row, probs)
    width, lse = plan.n_arms // len(plan.token_starts), 0.0
    for low in plan.token_starts:
        top, norm = logits[row, low : low + width].max(), 0.0
        for a in range(low, low + width):
            probs[row, a] = math.exp(logits[row, a] - top)
            norm += probs[row, a]
        for a in range(low, low + width):
            probs[row, a] /= norm
        lse += top + math.log(norm)
    return lse


@jit
def cumulate(plan, probs, row, cdf):
    """Fill cdf (columns,) with the cumulative probabilities of each token."""
    if len(plan.token_starts) == 1:
        policy.cumulate(probs, row, cdf)
        return
    width = plan.n_arms // len(plan.token_starts)
    for a in range(plan.n_arms):
        cdf[a] = probs[row, a] + (cdf[a - 1] if a % width > 0 else 0.0)


@jit
def pick(plan, cdf, token, u):
    """Arm of a token, the one whose interval of its cumulative probabilities holds u in [0, 1)."""
    if len(plan.token_starts) == 1:
        return policy.pick(cdf, u)
    width = plan.n_arms // len(plan.token_starts)
    arm = plan.token_starts[token]
    last = arm + width - 1
    while arm < last and cdf[arm] <= u * cdf[last]:
        arm += 1
    return arm


@jit
def correct_probability(plan, logits, row, correct):
    """Probability that the arm of every token is one whose bit is set in `correct`."""
    if len(plan.token_starts) == 1:
        return policy.correct_probability(logits, row, correct)
    width, chance = plan.n_arms // len(plan.token_starts), 1.0
    for low in plan.token_starts:
        top, norm, right = logits[row, low : low + width].max(), 0.0, 0.0
        for a in range(low, low + width):
            e = math.exp(logits[row, a] - top)
            norm += e
            if (correct >> np.uint32(a)) & np.uint32(1):
                right += e
        chance *= right / norm
    return chance
