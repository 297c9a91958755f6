"""Compute the softmax policy over answers of one or several tokens; an answer is right where all its tokens are.

Each of T tokens is a softmax of its own over A / T of the arms: token s has the arms s A/T .. (s+1) A/T - 1. The
log-probability and the score of an answer are the sums of those of its tokens. With one token these are the functions
of sim/policy/policy.py. With several tokens each function has two versions: float32 with all tokens of a context in one
register of 16 lanes, and float64.
"""

import math

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.simd import LANES, count_at_most, keep_bits, largest, load, splat, store, total
from rftlab.sim.lanes.vectormath import exp
from rftlab.sim.policy import policy
from rftlab.sim.policy.policy import F, largest_logit
from rftlab.sim.policy.versions import for_linear

U = np.uint32
_LOWEST = F(-3e38)


@kernel
def _width(plan):
    return plan.n_arms // len(plan.token_starts)


@kernel
def _lanes_by_answer(plan, low):
    """Return the bits of the lanes of the token that starts at arm `low`."""
    return U(((1 << _width(plan)) - 1) << low)


@kernel
def _from_tops(plan, z):
    """Return exp(z - the largest lane of the same token), and the sum of these largest values."""
    tops, sum_of_tops = splat(F(0.0)), 0.0
    for low in plan.token_starts:
        lanes = _lanes_by_answer(plan, low)
        top = largest(keep_bits(z, lanes) + keep_bits(splat(_LOWEST), ~lanes))
        tops = tops + keep_bits(splat(top), lanes)
        sum_of_tops += top
    return exp(z - tops), sum_of_tops


@for_linear
def softmax(plan, logits, row, probs):
    """Fill probs[row] from logits[row], token by token. Return the sum of their largest logits, and the product of
    their sums of exp(logit - largest)."""
    if len(plan.token_starts) == 1:
        return policy.softmax(logits, row, probs)
    e, tops = _from_tops(plan, load(logits, row * LANES))
    norms, product = splat(F(1.0)), F(1.0)
    for low in plan.token_starts:
        lanes = _lanes_by_answer(plan, low)
        norm = total(keep_bits(e, lanes))
        norms = keep_bits(splat(norm), lanes) + keep_bits(norms, ~lanes)
        product *= norm
    store(probs, row * LANES, e / norms)
    return tops, product


@softmax.for_tabular
def _(plan, logits, row, probs):
    width, tops, product = _width(plan), 0.0, 1.0
    for low in plan.token_starts:
        top, norm = largest_logit(logits, row, low, low + width), 0.0
        for a in range(low, low + width):
            probs[row, a] = math.exp(logits[row, a] - top)
            norm += probs[row, a]
        for a in range(low, low + width):
            probs[row, a] /= norm
        tops, product = tops + top, product * norm
    return tops, product


@kernel
def pick(plan, cdf, token, u):
    """Return the arm of a token for u in [0, 1); cdf (columns,): the running total of the probabilities of all tokens,
    as of policy.cumulate."""
    if len(plan.token_starts) == 1:
        return policy.pick(cdf, u)
    first = plan.token_starts[token]
    last = first + _width(plan) - 1
    before = cdf[first - 1] if first > 0 else 0.0
    return min(max(_count_at_most(cdf, before + u * (cdf[last] - before)), first), last)


@kernel
def most_likely(plan, probs, row, low):
    """Return the most likely arm of the token that starts at arm `low`, the first of equal ones."""
    best = low
    for a in range(low + 1, low + _width(plan)):
        if probs[row, a] > probs[row, best]:
            best = a
    return best


@for_linear
def _count_at_most(cdf, bound):
    return count_at_most(load(cdf, 0), F(bound))


@_count_at_most.for_tabular
def _(cdf, bound):
    arms = 0
    while arms < cdf.shape[0] and cdf[arms] <= bound:
        arms += 1
    return arms


@for_linear
def correct_probability(plan, logits, row, correct):
    """Return the probability that every token's arm has its bit set in `correct`."""
    e, _ = _from_tops(plan, load(logits, row * LANES))
    chance = 1.0
    for low in plan.token_starts:
        lanes = _lanes_by_answer(plan, low)
        chance *= total(keep_bits(e, correct & lanes)) / total(keep_bits(e, lanes))
    return chance


@correct_probability.for_one_token
def _(plan, logits, row, correct):
    return policy.correct_probability(logits, row, correct)


@correct_probability.for_tabular
def _(plan, logits, row, correct):
    width, chance = _width(plan), 1.0
    for low in plan.token_starts:
        top, norm, right = largest_logit(logits, row, low, low + width), 0.0, 0.0
        for a in range(low, low + width):
            e = math.exp(logits[row, a] - top)
            norm += e
            if (correct >> U(a)) & U(1):
                right += e
        chance *= right / norm
    return chance


@for_linear
def squared_length(probs, row):
    """Return sum_a probs[row, a]^2 over all tokens."""
    p = load(probs, row * LANES)
    return float(total(p * p))


@squared_length.for_tabular
def _(probs, row):
    length = 0.0
    for a in range(probs.shape[1]):
        length += probs[row, a] ** 2
    return length
