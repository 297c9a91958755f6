"""Compute the two matrix products of the policy: logits of contexts, and the gradient of the parameters.

Linear: logits = base + features W, float32; tabular: logits = base + a table, float64. theta and grad are flat and
contiguous: the matrix, then the format parameter. The table is (N, A). W is stored in pairs of features, (d / 2, 2
halves of the arms, LANES / 2 arms, 2 features), as `places` returns it. So one load, of two features into all lanes,
serves two multiplications, and the multipliers are the limit instead of memory.

The sums of a tile stay in registers, and its size depends on the target (`sim/lanes/tiles.py`). A tile holds the logits
of some contexts while the matrix is read, 28 KB that stay in the first-level cache, or the gradient of some features
while contexts are read. Rows come in whole blocks, which the caller pads.
"""

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.simd import LANES, any_nonzero, fma, load, prefetch, splat, store, sums_of_pairs
from rftlab.sim.lanes.tiles import (
    CONTEXTS,
    HALVES,
    PAIRS,
    STRIP,
    add_context,
    add_features,
    context_starts,
    double_into,
    load_tile,
    new_strip,
    store_tile,
    zeros,
)
from rftlab.sim.policy.policy import F
from rftlab.sim.policy.versions import for_linear

N = np.uintp
BLOCK = 8
"""Number of contexts for which random numbers are drawn at once, at least as many as in a tile."""


def places(n_features: int) -> np.ndarray:
    """Return the places (d, LANES) in theta and grad of each feature's weight for each arm, in the linear
    environment."""
    pairs = np.arange(n_features * LANES).reshape(-1, 2, LANES // 2, 2)
    return pairs.transpose(0, 3, 1, 2).reshape(n_features, LANES)


@kernel
def whole_blocks(n):
    """Return the number of rows of n contexts, padded to whole blocks."""
    return (n + BLOCK - 1) // BLOCK * BLOCK


@for_linear
def forward(contexts, theta, rows, scale, logits):
    """Fill logits (n, columns) of the contexts rows (n,) at theta: the base policy's logits times `scale`, plus
    features W."""
    x, d, last = contexts.features, contexts.features.shape[1], rows.shape[0] - CONTEXTS
    for tile in range(0, rows.shape[0], CONTEXTS):
        r = min(tile, last)  # the last tile may compute some logits a second time
        starts, ahead = context_starts(rows, r, d), context_starts(rows, min(r + CONTEXTS, last), d)
        first = _sums(x, starts, theta, 0, ahead)
        second = first if HALVES == 2 else _sums(x, starts, theta, 1, ahead)
        for i in range(CONTEXTS):
            low, high = (first[2 * i], first[2 * i + 1]) if HALVES == 2 else (first[i], second[i])
            base = load(contexts.base_logits, rows[r + i] * LANES)
            store(logits, (r + i) * LANES, fma(splat(F(scale)), base, sums_of_pairs(low, high)))


@kernel(forceinline=True)
def _sums(x, starts, theta, half, ahead):
    """Return the features of a tile's contexts times their weights, with arms from `half` on; the next tile's features
    are prefetched."""
    sums = zeros()
    for line in range(0, x.shape[1], LANES):
        if half == 0:
            for start in ahead:
                prefetch(x, start + line)
        for k in range(line, line + LANES, 2):
            sums = add_features(sums, x, starts, k, theta, half)
    return sums


@forward.for_tabular
def _(contexts, theta, rows, scale, logits):
    n_arms = logits.shape[1]
    for r in range(rows.shape[0]):
        for a in range(n_arms):
            logits[r, a] = scale * contexts.base_logits[rows[r], a] + theta[rows[r] * n_arms + a]


@for_linear
def backward(contexts, rows, scores, grad):
    """Add the outer products of the scores (n, columns) with the contexts rows (n,) to grad; `rows` is overwritten.

    Contexts with scores of 0, half of them in a long run, are left out, which does not change a bit of the sums.
    """
    x, d, n = contexts.features, contexts.features.shape[1], rows.shape[0]
    strip = new_strip()
    for first in range(0, n, STRIP):
        count = _teaching(rows, scores, first, min(first + STRIP, n), strip)
        for k in range(0, d, 2 * PAIRS):
            # The tile is read and written once for all contexts of a strip.
            sums = load_tile(grad, k * LANES)
            for block in range(0, count, BLOCK):
                for i in range(block, block + BLOCK):
                    start = rows[N(first + i)] * d + k  # a signed index would cost two instructions more
                    prefetch(x, start + LANES)
                    sums = add_context(sums, x, start, strip, i)
            store_tile(grad, k * LANES, sums)


@kernel(forceinline=True)
def _teaching(rows, scores, first, last, strip):
    """Move the rows first .. last-1 whose scores are not all 0 to the front, and their scores to the strip. Return
    their number, padded to whole blocks with scores of 0."""
    count = 0
    for r in range(first, last):  # without a branch, which could not be predicted
        score = load(scores, r * LANES)
        double_into(strip, count, score)
        rows[first + count] = rows[r]
        count += any_nonzero(score)
    whole = whole_blocks(count)
    for i in range(count, whole):
        double_into(strip, i, splat(F(0.0)))
    return whole


@backward.for_tabular
def _(contexts, rows, scores, grad):
    n_arms = scores.shape[1]
    for r in range(rows.shape[0]):
        for a in range(n_arms):
            grad[rows[r] * n_arms + a] += scores[r, a]
