"""Compute the softmax policy of one context: probabilities, arms, scores.

Functions come in two versions (`rftlab.sim.policy.versions`): float32 with 16 lanes, and float64.
"""

import math

import numpy as np

from rftlab.shared.plumbing.arithmetic import weight_totals
from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.simd import (
    LANES,
    count_at_most,
    fma,
    keep_bits,
    largest,
    load,
    running_total,
    splat,
    store,
    total,
)
from rftlab.sim.lanes.vectormath import exp
from rftlab.sim.policy.versions import for_linear

F = np.float32


@kernel
def largest_logit(values, row, low, high):
    """Return the largest of values[row, low .. high - 1]. An array's own method would allocate arrays, which kernels
    must not."""
    top = values[row, low]
    for a in range(low + 1, high):
        top = max(top, values[row, a])
    return top


@for_linear
def softmax(logits, row, probs):
    """Fill probs[row] from logits[row]; return the largest logit, and the sum of exp(logit - largest)."""
    z = load(logits, row * LANES)
    top = largest(z)
    # The largest logit is subtracted, so that no exponential overflows.
    e = exp(z - splat(top))
    norm = total(e)
    store(probs, row * LANES, e / splat(norm))
    return top, norm


@softmax.for_tabular
def _(logits, row, probs):
    top = largest_logit(logits, row, 0, logits.shape[1])
    norm = 0.0
    for a in range(logits.shape[1]):
        probs[row, a] = math.exp(logits[row, a] - top)
        norm += probs[row, a]
    for a in range(logits.shape[1]):
        probs[row, a] /= norm
    return top, norm


@for_linear
def cumulate(probs, row, cdf):
    """Fill cdf (columns,) with the cumulative probabilities of probs[row]."""
    store(cdf, 0, running_total(load(probs, row * LANES)))


@cumulate.for_tabular
def _(probs, row, cdf):
    running = 0.0
    for a in range(cdf.shape[0]):
        running += probs[row, a]
        cdf[a] = running


@for_linear
def pick(cdf, u):
    """Return the arm whose interval of the cumulative probabilities cdf (columns,) contains u in [0, 1)."""
    return count_at_most(load(cdf, 0), F(u * cdf[LANES - 1]))


@pick.for_tabular
def _(cdf, u):
    arm = 0
    # u is scaled by the last sum, which rounding may leave a little off 1.
    while cdf[arm] <= u * cdf[-1]:
        arm += 1
    return arm


@for_linear
def correct_probability(logits, row, correct):
    """Return the probability under softmax(logits[row]) of the arms whose bit is set in `correct`."""
    z = load(logits, row * LANES)
    e = exp(z - splat(largest(z)))
    return total(keep_bits(e, correct)) / total(e)


@correct_probability.for_tabular
def _(logits, row, correct):
    top = largest_logit(logits, row, 0, logits.shape[1])
    norm = chance = 0.0
    for a in range(logits.shape[1]):
        e = math.exp(logits[row, a] - top)
        norm += e
        if (correct >> np.uint32(a)) & np.uint32(1):
            chance += e
    return chance / norm


@for_linear
def start_score(probs, row, weight, spread, noise, n_arms, scores):
    """Set scores[row] = spread noise[row] - weight probs[row]; noise (rows, LANES) float32 is read where spread > 0."""
    score = load(probs, row * LANES) * splat(F(-weight))
    if spread > 0.0:
        score = fma(keep_bits(load(noise, row * LANES), np.uint32((1 << n_arms) - 1)), splat(F(spread)), score)
    store(scores, row * LANES, score)


@start_score.for_tabular
def _(probs, row, weight, spread, noise, n_arms, scores):
    for a in range(n_arms):
        scores[row, a] = spread * noise[row, a] - weight * probs[row, a]


@kernel
def weight_sums(weights, forms):
    """Return sum_k w_k, sum_k w_k^2 and sum_k w_k f_k over a context's responses; f_k is 1 where well formed."""
    if weights.shape[0] == 1:  # the result of one response needs no loop
        return weights[0], weights[0] * weights[0], weights[0] * forms[0]
    return weight_totals(weights, forms)


@for_linear
def add_arms(weights, arms, tokens, row, scores):
    """Add sum_k w_k e_{a_k} to scores[row]: weights (K,) of responses, arms (K tokens,) of their tokens."""
    score = load(scores, row * LANES)
    for k in range(weights.shape[0]):
        weight = splat(F(weights[k]))
        for t in range(k * tokens, (k + 1) * tokens):
            score = score + keep_bits(weight, np.uint32(1) << np.uint32(arms[t]))
    store(scores, row * LANES, score)


@add_arms.for_tabular
def _(weights, arms, tokens, row, scores):
    for k in range(weights.shape[0]):
        for t in range(k * tokens, (k + 1) * tokens):
            scores[row, arms[t]] += weights[k]
