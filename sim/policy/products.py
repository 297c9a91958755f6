"""The two products of the policy: logits of contexts, and the gradient of the parameters.

Linear: logits = base + features W, float32; tabular: logits = base + a table, float64. theta and grad are flat and
contiguous: the matrix, then the format parameter. The table is (N, A). W lies in pairs of features, (d / 2, 2 halves of
the arms, LANES / 2 arms, 2 features), as `places` says: so one load, of two features into all lanes, serves two
multiplications, and what they wait for is the multipliers instead of memory.

What a tile adds up stays in registers, as many as the target has (`sim/lanes/tiles.py`): the logits of some contexts
while the matrix, 28 KB that stay in the first-level cache, streams by, or the gradient of some features while contexts
do. Rows come in whole blocks, which the caller fills up.
"""

import numpy as np
from numba.extending import overload

from rftlab.shared.jit import kernel
from rftlab.sim.lanes.shuffles import sums_of_pairs
from rftlab.sim.lanes.simd import LANES, fma, load, prefetch, splat, store
from rftlab.sim.lanes.tiles import (
    CONTEXTS,
    HALVES,
    PAIRS,
    STRIP,
    add_context,
    add_features,
    double_into,
    load_tile,
    new_strip,
    starts_of,
    store_tile,
    zeros,
)
from rftlab.sim.policy.policy import F, is_linear

N = np.uintp
BLOCK = 8
"""Contexts that random numbers are drawn for at once, and at least as many as a tile has."""


def places(n_features: int) -> np.ndarray:
    """(d, LANES) where theta and grad of the linear environment hold the weight of each feature for each arm."""
    pairs = np.arange(n_features * LANES).reshape(-1, 2, LANES // 2, 2)
    return pairs.transpose(0, 3, 1, 2).reshape(n_features, LANES)


@kernel
def whole_blocks(n):
    """Rows that n contexts take, filled up to whole blocks."""
    return (n + BLOCK - 1) // BLOCK * BLOCK


def forward(contexts, theta, rows, scale, logits):
    """Fill logits (n, columns) of the contexts rows (n,) at theta: what is left of the base policy's, and what was
    learnt."""
    raise NotImplementedError("compiled code only")


@overload(forward, jit_options={"error_model": "numpy"})
def _forward(contexts, theta, rows, scale, logits):
    return _forward_linear if is_linear(theta) else _forward_tabular


def _forward_linear(contexts, theta, rows, scale, logits):
    x, d, last = contexts.features, contexts.features.shape[1], rows.shape[0] - CONTEXTS
    for tile in range(0, rows.shape[0], CONTEXTS):
        r = min(tile, last)  # so the last tile may find some logits once more
        starts, ahead = starts_of(rows, r, d), starts_of(rows, min(r + CONTEXTS, last), d)
        first = _sums(x, starts, theta, 0, ahead)
        second = first if HALVES == 2 else _sums(x, starts, theta, 1, ahead)
        for i in range(CONTEXTS):
            low, high = (first[2 * i], first[2 * i + 1]) if HALVES == 2 else (first[i], second[i])
            base = load(contexts.base_logits, rows[r + i] * LANES)
            store(logits, (r + i) * LANES, fma(splat(F(scale)), base, sums_of_pairs(low, high)))


@kernel(forceinline=True)
def _sums(x, starts, theta, half, ahead):
    """Features of a tile's contexts times their weights, from `half` of the arms on; those of the next tile are
    asked for meanwhile."""
    sums = zeros()
    for line in range(0, x.shape[1], LANES):
        if half == 0:
            for start in ahead:
                prefetch(x, start + line)
        for k in range(line, line + LANES, 2):
            sums = add_features(sums, x, starts, k, theta, half)
    return sums


def _forward_tabular(contexts, theta, rows, scale, logits):
    n_arms = logits.shape[1]
    for r in range(rows.shape[0]):
        for a in range(n_arms):
            logits[r, a] = scale * contexts.base_logits[rows[r], a] + theta[rows[r] * n_arms + a]


def backward(contexts, rows, scores, grad):
    """Add to grad the outer products of the scores (n, columns) with the contexts rows (n,)."""
    raise NotImplementedError("compiled code only")


@overload(backward, jit_options={"error_model": "numpy"})
def _backward(contexts, rows, scores, grad):
    return _backward_linear if is_linear(grad) else _backward_tabular


def _backward_linear(contexts, rows, scores, grad):
    x, d, n = contexts.features, contexts.features.shape[1], rows.shape[0]
    strip = new_strip()
    for first in range(0, n, STRIP):
        last = min(first + STRIP, n)
        for r in range(first, last):
            double_into(strip, r - first, load(scores, r * LANES))
        for k in range(0, d, 2 * PAIRS):
            sums = load_tile(grad, k * LANES)
            for block in range(first, last, BLOCK):
                for r in range(block, block + BLOCK):
                    start = rows[N(r)] * d + k  # an index that may be below 0 would cost two instructions more
                    prefetch(x, start + LANES)
                    sums = add_context(sums, x, start, strip, r - first)
            store_tile(grad, k * LANES, sums)


def _backward_tabular(contexts, rows, scores, grad):
    n_arms = scores.shape[1]
    for r in range(rows.shape[0]):
        for a in range(n_arms):
            grad[rows[r] * n_arms + a] += scores[r, a]
