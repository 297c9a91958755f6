"""The softmax policy of one context: probabilities, arms, scores.

Every function comes in two versions, chosen by the environment's number type when it is compiled: float32 with 16 lanes
(linear) and float64 (tabular).
"""

import math

import numpy as np
from numba import types
from numba.extending import overload

from rftlab.shared.jit import kernel
from rftlab.shared.sums import weight_totals
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

F = np.float32


@kernel
def largest_of(values, row, low, high):
    """Largest of values[row, low .. high - 1]. An array's own method would make arrays, which kernels cannot."""
    top = values[row, low]
    for a in range(low + 1, high):
        top = max(top, values[row, a])
    return top


def is_linear(array_type) -> bool:
    """Whether arrays of that type are of the linear environment."""
    return array_type.dtype == types.float32


def softmax(logits, row, probs):
    """Fill probs[row] from logits[row]; return the largest logit, and the sum of exp(logit - largest)."""
    raise NotImplementedError("compiled code only")


@overload(softmax, jit_options={"error_model": "numpy"})
def _softmax(logits, row, probs):
    return _softmax_lanes if is_linear(logits) else _softmax_scalar


def _softmax_lanes(logits, row, probs):
    z = load(logits, row * LANES)
    top = largest(z)
    e = exp(z - splat(top))
    norm = total(e)
    store(probs, row * LANES, e / splat(norm))
    return top, norm


def _softmax_scalar(logits, row, probs):
    top = largest_of(logits, row, 0, logits.shape[1])
    norm = 0.0
    for a in range(logits.shape[1]):
        probs[row, a] = math.exp(logits[row, a] - top)
        norm += probs[row, a]
    for a in range(logits.shape[1]):
        probs[row, a] /= norm
    return top, norm


def cumulate(probs, row, cdf):
    """Fill cdf (columns,) with the cumulative probabilities of probs[row]."""
    raise NotImplementedError("compiled code only")


@overload(cumulate, jit_options={"error_model": "numpy"})
def _cumulate(probs, row, cdf):
    return _cumulate_lanes if is_linear(probs) else _cumulate_scalar


def _cumulate_lanes(probs, row, cdf):
    store(cdf, 0, running_total(load(probs, row * LANES)))


def _cumulate_scalar(probs, row, cdf):
    running = 0.0
    for a in range(cdf.shape[0]):
        running += probs[row, a]
        cdf[a] = running


def pick(cdf, u):
    """Arm whose interval of the cumulative probabilities cdf (columns,) holds u in [0, 1)."""
    raise NotImplementedError("compiled code only")


@overload(pick, jit_options={"error_model": "numpy"})
def _pick(cdf, u):
    return _pick_lanes if is_linear(cdf) else _pick_scalar


def _pick_lanes(cdf, u):
    return count_at_most(load(cdf, 0), F(u * cdf[LANES - 1]))


def _pick_scalar(cdf, u):
    arm = 0
    while cdf[arm] <= u * cdf[-1]:
        arm += 1
    return arm


def correct_probability(logits, row, correct):
    """Probability under softmax(logits[row]) of the arms whose bit is set in `correct`."""
    raise NotImplementedError("compiled code only")


@overload(correct_probability, jit_options={"error_model": "numpy"})
def _correct_probability(logits, row, correct):
    return _correct_lanes if is_linear(logits) else _correct_scalar


def _correct_lanes(logits, row, correct):
    z = load(logits, row * LANES)
    e = exp(z - splat(largest(z)))
    return total(keep_bits(e, correct)) / total(e)


def _correct_scalar(logits, row, correct):
    top = largest_of(logits, row, 0, logits.shape[1])
    norm = chance = 0.0
    for a in range(logits.shape[1]):
        e = math.exp(logits[row, a] - top)
        norm += e
        if (correct >> np.uint32(a)) & np.uint32(1):
            chance += e
    return chance / norm


def start_score(probs, row, weight, spread, noise, n_arms, scores):
    """scores[row] = spread noise[row] - weight probs[row]; noise (rows, LANES) float32, used where spread > 0."""
    raise NotImplementedError("compiled code only")


@overload(start_score, jit_options={"error_model": "numpy"})
def _start_score(probs, row, weight, spread, noise, n_arms, scores):
    return _start_score_lanes if is_linear(probs) else _start_score_scalar


def _start_score_lanes(probs, row, weight, spread, noise, n_arms, scores):
    score = load(probs, row * LANES) * splat(F(-weight))
    if spread > 0.0:
        score = fma(keep_bits(load(noise, row * LANES), np.uint32((1 << n_arms) - 1)), splat(F(spread)), score)
    store(scores, row * LANES, score)


def _start_score_scalar(probs, row, weight, spread, noise, n_arms, scores):
    for a in range(n_arms):
        scores[row, a] = spread * noise[row, a] - weight * probs[row, a]


@kernel
def weight_sums(weights, forms):
    """sum_k w_k, sum_k w_k^2 and sum_k w_k f_k over a context's responses; f_k is 1 where well formed."""
    if weights.shape[0] == 1:  # the same, without a loop
        return weights[0], weights[0] * weights[0], weights[0] * forms[0]
    return weight_totals(weights, forms)


def add_arms(weights, arms, tokens, row, scores):
    """scores[row] += sum_k w_k e_{a_k}: weights (K,) of responses, arms (K tokens,) of theirs."""
    raise NotImplementedError("compiled code only")


@overload(add_arms, jit_options={"error_model": "numpy"})
def _add_arms(weights, arms, tokens, row, scores):
    return _add_arms_lanes if is_linear(scores) else _add_arms_scalar


def _add_arms_lanes(weights, arms, tokens, row, scores):
    score = load(scores, row * LANES)
    for k in range(weights.shape[0]):
        weight = splat(F(weights[k]))
        for t in range(k * tokens, (k + 1) * tokens):
            score = score + keep_bits(weight, np.uint32(1) << np.uint32(arms[t]))
    store(scores, row * LANES, score)


def _add_arms_scalar(weights, arms, tokens, row, scores):
    for k in range(weights.shape[0]):
        for t in range(k * tokens, (k + 1) * tokens):
            scores[row, arms[t]] += weights[k]
