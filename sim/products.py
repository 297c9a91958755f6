"""The two products of the policy: logits of contexts, and the gradient of the parameters.

Linear: logits = base + features W, float32; tabular: logits = base + a table, float64. theta and grad are flat and contiguous: the
matrix, then the format parameter. The table is (N, A). W lies in pairs of features, (d / 2, 2 halves of the arms, LANES / 2 arms,
2 features), as `places` says: so one load, of two features into all lanes, serves two multiplications, and what they wait for is the
multipliers instead of memory.

A block of 8 contexts keeps its logits (or scores) in 16 registers, while the matrix, 28 KB that stay in the first-level cache, streams
by once. Rows come in whole blocks, which the caller fills up.
"""

import numpy as np
from numba.extending import overload

from shared.jit import kernel
from sim.policy import F, is_linear
from sim.shuffles import high_twice, low_twice, sums_of_pairs
from sim.simd import LANES, broadcast_pair, fma, load, prefetch, splat, store

BLOCK = 8


def places(n_features: int) -> np.ndarray:
    """(d, LANES) where theta and grad of the linear environment hold the weight of each feature for each arm."""
    pairs = np.arange(n_features * LANES).reshape(-1, 2, LANES // 2, 2)
    return pairs.transpose(0, 3, 1, 2).reshape(n_features, LANES)


@kernel
def whole_blocks(n):
    """Rows that n contexts take, filled up to whole blocks."""
    return (n + BLOCK - 1) // BLOCK * BLOCK


def forward(contexts, theta, rows, kept, logits):
    """Fill logits (n, columns) of the contexts rows (n,) at theta: what is kept of the base policy's, and what was learnt."""
    raise NotImplementedError("compiled code only")


@overload(forward, jit_options={"error_model": "numpy"})
def _forward(contexts, theta, rows, kept, logits):
    return _forward_linear if is_linear(theta) else _forward_tabular


@kernel
def _fma_pair(pair, low, high, sums):
    """sums of both halves of the arms + a pair of features x their weights."""
    return fma(pair, low, sums[0]), fma(pair, high, sums[1])


def _forward_linear(contexts, theta, rows, kept, logits):
    x, d = contexts.features, contexts.features.shape[1]
    for r in range(0, rows.shape[0], BLOCK):
        a, b, c, e = rows[r] * d, rows[r + 1] * d, rows[r + 2] * d, rows[r + 3] * d
        f, g, h, i = rows[r + 4] * d, rows[r + 5] * d, rows[r + 6] * d, rows[r + 7] * d
        za = zb = zc = ze = zf = zg = zh = zi = splat(F(0.0)), splat(F(0.0))
        ahead = min(r + BLOCK, rows.shape[0] - BLOCK)  # the next block's features are asked for meanwhile
        for line in range(0, d, LANES):
            for lane in range(BLOCK):
                prefetch(x, rows[ahead + lane] * d + line)
            for k in range(line, line + LANES, 2):
                low, high = load(theta, k * LANES), load(theta, (k + 1) * LANES)
                za, zb = _fma_pair(broadcast_pair(x, a + k), low, high, za), _fma_pair(broadcast_pair(x, b + k), low, high, zb)
                zc, ze = _fma_pair(broadcast_pair(x, c + k), low, high, zc), _fma_pair(broadcast_pair(x, e + k), low, high, ze)
                zf, zg = _fma_pair(broadcast_pair(x, f + k), low, high, zf), _fma_pair(broadcast_pair(x, g + k), low, high, zg)
                zh, zi = _fma_pair(broadcast_pair(x, h + k), low, high, zh), _fma_pair(broadcast_pair(x, i + k), low, high, zi)
        for lane, z in enumerate((za, zb, zc, ze, zf, zg, zh, zi)):
            store(logits, (r + lane) * LANES, fma(splat(F(kept)), load(contexts.base_logits, rows[r + lane] * LANES), sums_of_pairs(z[0], z[1])))


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


@kernel
def _twice(scores, row):
    """A context's scores with every lane doubled: the lower and the upper half of the arms."""
    score = load(scores, row * LANES)
    return low_twice(score), high_twice(score)


def _backward_linear(contexts, rows, scores, grad):
    x, d = contexts.features, contexts.features.shape[1]
    for r in range(0, rows.shape[0], BLOCK):
        a, b, c, e = rows[r] * d, rows[r + 1] * d, rows[r + 2] * d, rows[r + 3] * d
        f, g, h, i = rows[r + 4] * d, rows[r + 5] * d, rows[r + 6] * d, rows[r + 7] * d
        sa, sb, sc, se = _twice(scores, r), _twice(scores, r + 1), _twice(scores, r + 2), _twice(scores, r + 3)
        sf, sg, sh, si = _twice(scores, r + 4), _twice(scores, r + 5), _twice(scores, r + 6), _twice(scores, r + 7)
        for k in range(0, d, 2):
            y = load(grad, k * LANES), load(grad, (k + 1) * LANES)
            y = _fma_pair(broadcast_pair(x, a + k), sa[0], sa[1], y)
            y = _fma_pair(broadcast_pair(x, b + k), sb[0], sb[1], y)
            y = _fma_pair(broadcast_pair(x, c + k), sc[0], sc[1], y)
            y = _fma_pair(broadcast_pair(x, e + k), se[0], se[1], y)
            y = _fma_pair(broadcast_pair(x, f + k), sf[0], sf[1], y)
            y = _fma_pair(broadcast_pair(x, g + k), sg[0], sg[1], y)
            y = _fma_pair(broadcast_pair(x, h + k), sh[0], sh[1], y)
            y = _fma_pair(broadcast_pair(x, i + k), si[0], si[1], y)
            store(grad, k * LANES, y[0])
            store(grad, (k + 1) * LANES, y[1])


def _backward_tabular(contexts, rows, scores, grad):
    n_arms = scores.shape[1]
    for r in range(rows.shape[0]):
        for a in range(n_arms):
            grad[rows[r] * n_arms + a] += scores[r, a]
