"""Counter-based randomness and vector functions against published vectors, NumPy and distributions."""

import numpy as np
import pytest
from scipy import stats

from rftlab.shared.plumbing.jit import jit
from rftlab.sim.lanes.random import (
    EVALUATION,
    INTERFERENCE,
    LENGTH,
    MASKING,
    MISMATCH,
    NUISANCE,
    ROLLOUT,
    STYLE,
    normals,
    philox,
    seed_key,
    uniforms,
)
from rftlab.sim.lanes.simd import LANES, load, splat, store
from rftlab.sim.lanes.vectormath import cos_turns, exp, log


@jit
def _philox(key, c0, c1, c2, c3, out):
    later = load(c2, 0) + splat(np.uint32(16))
    first, second = philox(key, c0, (splat(c1), splat(c1)), (load(c2, 0), later), c3)
    for i in range(4):
        store(out, 32 * i, first[i])
        store(out, 32 * i + 16, second[i])


@jit
def _apply(kind, x, out):
    for i in range(0, x.shape[0], 16):
        v = load(x, i)
        if kind == 0:
            v = exp(v)
        elif kind == 1:
            v = log(v)
        else:
            v = cos_turns(v)
        store(out, i, v)


def draw(seed, round_index, contexts, count, stream=ROLLOUT):
    """Uniforms (2, contexts, count)."""
    n = len(contexts) * count
    out = np.full((2, n + 2 * LANES), np.nan, dtype=np.float32)
    uniforms(seed_key(seed), round_index, np.asarray(contexts), count, stream, out)
    return out[:, :n].reshape(2, len(contexts), count)


def noise(seed, round_index, contexts):
    """Normals (contexts, 16)."""
    out = np.full((len(contexts), LANES), np.nan, dtype=np.float32)
    normals(seed_key(seed), round_index, np.asarray(contexts), NUISANCE, out)
    return out


def words(seed, c0, c1, c2, c3):
    """Words (4, 32) of the counters (c0, c1, c2 + lane, c3)."""
    out, third = np.zeros((4, 32), dtype=np.uint32), (np.arange(16) + c2).astype(np.uint32)
    _philox(seed_key(seed), np.uint32(c0), np.uint32(c1), third, np.uint32(c3), out)
    return out


ONES = 0xFFFFFFFF
KNOWN = [
    (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES << 32) | ONES, (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x299F31D0 << 32) | 0xA4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("seed", "counter", "expected"), KNOWN)
def test_philox_gives_the_published_known_answers(seed, counter, expected):
    assert tuple(words(seed, *counter)[:, 0]) == expected


def test_lanes_are_consecutive_counters():
    block = words(7, 1, 2, 32, 3)
    for lane in range(32):
        np.testing.assert_array_equal(block[:, lane], words(7, 1, 2, 32 + lane, 3)[:, 0])


def test_streams_rounds_and_contexts_differ():
    blocks = [
        draw(1, r, [c], 8, s)[0, 0] for r in range(3) for c in range(3) for s in (ROLLOUT, EVALUATION, INTERFERENCE)
    ]
    assert len({tuple(block) for block in blocks}) == 27
    assert len({ROLLOUT, NUISANCE, EVALUATION, STYLE, LENGTH, MISMATCH, MASKING, INTERFERENCE}) == 8


def test_a_draw_depends_on_its_context_round_and_number_alone():
    for count in (1, 3, 16, 20):  # the counters of a context begin as 16 lanes, which the next one's overwrite
        together = draw(3, 7, [5, 9, 2], count)
        for i, context in enumerate((5, 9, 2)):
            np.testing.assert_array_equal(together[:, i], draw(3, 7, [context], count)[:, 0])
            np.testing.assert_array_equal(together[:, i, :3], draw(3, 7, [context], min(count, 3))[:, 0])
    block = noise(3, 7, [5, 9, 2, 11, 4, 4, 4, 4])
    np.testing.assert_array_equal(block[[2, 0]], noise(3, 7, [2, 5, 8, 8, 1, 1, 1, 1])[:2])


def test_the_first_draws_are_the_words_of_philox():
    np.testing.assert_array_equal(
        draw(7, 1, [2], 16)[:, 0], (words(7, 1, 2, 0, 0)[:2, :16] >> 8).astype(np.float32) * np.float32(2**-24)
    )


def test_uniforms_are_uniform_and_below_one():
    found = draw(11, 5, range(4000), 16)
    assert found.min() >= 0 and found.max() < 1
    for i in range(2):
        assert stats.kstest(found[i].ravel(), "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(found[0].ravel(), found[1].ravel())[0, 1]) < 0.02


def test_normals_are_normal_and_independent_across_lanes():
    found = noise(12, 9, range(6000)).astype(np.float64)
    assert stats.kstest(found.ravel(), "norm").pvalue > 1e-4
    correlation = np.corrcoef(found.T) - np.eye(16)
    assert np.abs(correlation).max() < 5 / np.sqrt(6000)
    squares = np.corrcoef((found**2).T) - np.eye(16)
    assert np.abs(squares).max() < 5 / np.sqrt(6000)


@pytest.mark.parametrize(
    ("kind", "x", "reference", "error"),
    [
        (0, np.linspace(-87, 20, 1 << 14), np.exp, lambda y, r: np.abs(y / r - 1).max()),
        (
            1,
            np.exp(np.linspace(-17, 4, 1 << 14)),
            np.log,
            lambda y, r: (np.abs(y - r) / np.maximum(np.abs(r), 1)).max(),
        ),
        (2, np.arange(1 << 14) / (1 << 14), lambda u: np.cos(2 * np.pi * u), lambda y, r: np.abs(y - r).max()),
    ],
)
def test_vector_functions_agree_with_numpy(kind, x, reference, error):
    x = x.astype(np.float32)
    out = np.zeros_like(x)
    _apply(kind, x, out)
    assert error(out, reference(x.astype(np.float64))) < (4e-6 if kind == 2 else 5e-7)


def test_exp_stays_tiny_far_below_its_range():
    x, out = np.full(16, -1e30, dtype=np.float32), np.ones(16, dtype=np.float32)
    _apply(0, x, out)
    assert np.all((out >= 0) & (out < 1e-37))
