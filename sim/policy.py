"""The softmax policy: logits of a block of contexts, probabilities, and the gradient of the parameters.

Every function comes in two versions, chosen by the environment's number type when it is compiled: float32 with 16 lanes
(linear: logits = base + features W) and float64 (tabular: logits = base + a table). theta and grad are flat and contiguous:
the matrix (d, LANES) or (N, A), then the format parameter. Rows come in blocks of 8, which the caller fills up.

The two products of the linear version are written for registers: a block of 8 contexts keeps its 8 rows of logits (or scores) in
registers while the matrix, 28 KB that stay in the first-level cache, streams by once.
"""

import math

import numpy as np
from numba import types
from numba.extending import overload

from shared.jit import kernel
from sim.simd import LANES, broadcast, count_at_most, fma, keep_bits, largest, load, prefetch, running_total, splat, store, total
from sim.vectormath import exp

F = np.float32
BLOCK = 8


@kernel
def whole_blocks(n):
    """Rows that n contexts take, filled up to whole blocks."""
    return (n + BLOCK - 1) // BLOCK * BLOCK


@kernel
def largest_of(values, row, low, high):
    """Largest of values[row, low .. high - 1]. An array's own method would make arrays, which kernels cannot."""
    top = values[row, low]
    for a in range(low + 1, high):
        top = max(top, values[row, a])
    return top


def is_linear(array_type) -> bool:
    return array_type.dtype == types.float32


def forward(contexts, theta, rows, kept, logits):
    """Fill logits (n, columns) of the contexts rows (n,) at theta: what is kept of the base policy's, and what was learnt."""
    raise NotImplementedError("compiled code only")


@overload(forward, jit_options={"error_model": "numpy"})
def _forward(contexts, theta, rows, kept, logits):
    return _forward_linear if is_linear(theta) else _forward_tabular


def _forward_linear(contexts, theta, rows, kept, logits):
    x, d = contexts.features, contexts.features.shape[1]
    for r in range(0, rows.shape[0], BLOCK):
        a, b, c, e = rows[r] * d, rows[r + 1] * d, rows[r + 2] * d, rows[r + 3] * d
        f, g, h, i = rows[r + 4] * d, rows[r + 5] * d, rows[r + 6] * d, rows[r + 7] * d
        za = zb = zc = ze = zf = zg = zh = zi = splat(F(0.0))
        ahead = min(r + BLOCK, rows.shape[0] - BLOCK)  # the next block's features are asked for meanwhile
        for line in range(0, d, LANES):
            for lane in range(BLOCK):
                prefetch(x, rows[ahead + lane] * d + line)
            for k in range(line, line + LANES):
                w = load(theta, k * LANES)
                za, zb = fma(broadcast(x, a + k), w, za), fma(broadcast(x, b + k), w, zb)
                zc, ze = fma(broadcast(x, c + k), w, zc), fma(broadcast(x, e + k), w, ze)
                zf, zg = fma(broadcast(x, f + k), w, zf), fma(broadcast(x, g + k), w, zg)
                zh, zi = fma(broadcast(x, h + k), w, zh), fma(broadcast(x, i + k), w, zi)
        for lane, z in enumerate((za, zb, zc, ze, zf, zg, zh, zi)):
            store(logits, (r + lane) * LANES, z + splat(F(kept)) * load(contexts.base_logits, rows[r + lane] * LANES))


def _forward_tabular(contexts, theta, rows, kept, logits):
    n_arms = logits.shape[1]
    for r in range(rows.shape[0]):
        for a in range(n_arms):
            logits[r, a] = kept * contexts.base_logits[rows[r], a] + theta[rows[r] * n_arms + a]


def backward(contexts, rows, scores, grad):
    """Add to grad the outer products of the scores (n, columns) with the contexts rows (n,)."""
    raise NotImplementedError("compiled code only")


@overload(backward, jit_options={"error_model": "numpy"})
def _backward(contexts, rows, scores, grad):
    return _backward_linear if is_linear(grad) else _backward_tabular


def _backward_linear(contexts, rows, scores, grad):
    x, d = contexts.features, contexts.features.shape[1]
    for r in range(0, rows.shape[0], BLOCK):
        a, b, c, e = rows[r] * d, rows[r + 1] * d, rows[r + 2] * d, rows[r + 3] * d
        f, g, h, i = rows[r + 4] * d, rows[r + 5] * d, rows[r + 6] * d, rows[r + 7] * d
        s = r * LANES
        sa, sb, sc, se = load(scores, s), load(scores, s + LANES), load(scores, s + 2 * LANES), load(scores, s + 3 * LANES)
        sf, sg, sh, si = load(scores, s + 4 * LANES), load(scores, s + 5 * LANES), load(scores, s + 6 * LANES), load(scores, s + 7 * LANES)
        for k in range(d):
            y = fma(broadcast(x, b + k), sb, fma(broadcast(x, a + k), sa, load(grad, k * LANES)))
            y = fma(broadcast(x, e + k), se, fma(broadcast(x, c + k), sc, y))
            y = fma(broadcast(x, g + k), sg, fma(broadcast(x, f + k), sf, y))
            store(grad, k * LANES, fma(broadcast(x, i + k), si, fma(broadcast(x, h + k), sh, y)))


def _backward_tabular(contexts, rows, scores, grad):
    n_arms = scores.shape[1]
    for r in range(rows.shape[0]):
        for a in range(n_arms):
            grad[rows[r] * n_arms + a] += scores[r, a]


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


@kernel(fastmath={"reassoc"})
def weight_sums(weights, forms):
    """sum_k w_k, sum_k w_k^2 and sum_k w_k f_k over a context's responses; f_k is 1 where well formed. In any order: 8 at a time."""
    weight, squares, formed = 0.0, 0.0, 0.0
    for k in range(weights.shape[0]):
        weight += weights[k]
        squares += weights[k] * weights[k]
        formed += weights[k] * forms[k]
    return weight, squares, formed


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
