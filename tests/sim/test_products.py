"""The gradient's product: contexts that teach nothing leave no bit in it. The slow twin holds the rest."""

import numpy as np
import pytest

from rftlab.shared.plumbing.jit import jit
from rftlab.sim.environments import build
from rftlab.sim.lanes.simd import LANES, aligned_zeros
from rftlab.sim.policy.products import BLOCK, backward, places
from tests.support.worlds.simulations import SMALL

CONTEXTS = build(SMALL).train


@jit
def _backward(contexts, rows, scores, grad):
    backward(contexts, rows, scores, grad)


def gradient(rows, scores):
    """What `backward` adds to zeros, (d LANES + 1,): rows (n,), scores (n, LANES), filled up to whole blocks."""
    n, width = len(rows), CONTEXTS.features.shape[1]
    whole = -(-n // BLOCK) * BLOCK
    padded, taught = aligned_zeros(whole, np.int64), aligned_zeros((whole, LANES), np.float32)
    padded[:n], taught[:n] = rows, scores
    grad = aligned_zeros(width * LANES + 1, np.float32)
    _backward(CONTEXTS, padded, taught, grad)
    return grad


def drawn(n, silent, seed=5):
    """Rows and scores of n contexts, of which this share teaches nothing."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(CONTEXTS.features), n)
    scores = rng.standard_normal((n, LANES)).astype(np.float32)
    scores[rng.random(n) < silent] = 0.0
    return rows, scores


@pytest.mark.parametrize("n", [8, 31, 128, 300])
def test_contexts_that_teach_nothing_leave_no_bit(n):
    rows, scores = drawn(n, 0.5)
    teaching = scores.any(axis=1)
    assert 0 < teaching.sum() < n
    np.testing.assert_array_equal(gradient(rows, scores), gradient(rows[teaching], scores[teaching]))


def test_a_score_in_one_lane_alone_and_one_that_is_no_number_are_not_left_out():
    rows, scores = drawn(16, 1.0)
    scores[3, 15], scores[9, 0] = 2.0, np.nan
    found = gradient(rows, scores)[places(CONTEXTS.features.shape[1])]
    np.testing.assert_allclose(found[:, 15], 2.0 * CONTEXTS.features[rows[3]], rtol=1e-6)
    assert np.isnan(found[:, 0]).all() and not found[:, 1:15].any()
