"""Counter-based randomness: Philox 4x32-10 (Salmon et al. 2011), keyed by the seed, indexed by what is drawn.

A number depends on (seed, round, context, rollout or lane, stream) alone. So results do not depend on the number of threads or on
how seeds are grouped, a draw can be made again instead of stored, and two designs with one seed share their random numbers.
"""

from typing import NamedTuple

import numpy as np

from shared.jit import jit
from sim.simd import fma, high_product, lanes, splat, sqrt, store, to_floats
from sim.vectormath import F, U, cos_turns, log

ROLLOUT, NUISANCE, EVALUATION = U(0), U(1), U(2)
_MULTIPLY_0, _MULTIPLY_1 = U(0xD2511F53), U(0xCD9E8D57)
_WEYL_0, _WEYL_1 = U(0x9E3779B9), U(0xBB67AE85)
_UNIT = F(2.0**-24)


class Key(NamedTuple):
    """The two words of a seed."""

    low: np.uint32
    high: np.uint32


def key_of(seed: int) -> Key:
    """Key of a seed 0 .. 2^64 - 1."""
    return Key(U(seed & 0xFFFFFFFF), U(seed >> 32))


@jit
def _turn(c0, c1, c2, c3, k0, k1):
    m0, m1 = splat(_MULTIPLY_0), splat(_MULTIPLY_1)
    return high_product(m1, c2) ^ c1 ^ splat(k0), m1 * c2, high_product(m0, c0) ^ c3 ^ splat(k1), m0 * c0


@jit
def philox(key, c0, c1, c2, c3):
    """Four vectors of 16 random words: lane l has the counter (c0, c1, c2 + l, c3)."""
    x0, x1, x2, x3 = splat(c0), splat(c1), splat(c2) + lanes(), splat(c3)
    k0, k1 = key.low, key.high
    for _ in range(10):
        x0, x1, x2, x3 = _turn(x0, x1, x2, x3, k0, k1)
        k0, k1 = U(k0 + _WEYL_0), U(k1 + _WEYL_1)
    return x0, x1, x2, x3


@jit
def _unit(words):
    """Uniforms in [0, 1) with 24 bits."""
    return to_floats(words >> splat(U(8))) * splat(_UNIT)


@jit
def uniforms(key, round_index, context, first, stream, out):
    """Two uniforms in [0, 1) for each of 16 rollouts first .. first+15: out (2, LANES) float32."""
    w0, w1, _, _ = philox(key, U(round_index), U(context), U(first), stream)
    store(out, 0, _unit(w0))
    store(out, 16, _unit(w1))


@jit
def normals(key, round_index, context):
    """16 standard normals for a context's nuisance score, by Box and Muller's transform."""
    w0, w1, _, _ = philox(key, U(round_index), U(context), U(0), NUISANCE)
    radius = fma(to_floats(w0 >> splat(U(8))), splat(_UNIT), splat(F(0.5 * _UNIT)))
    return sqrt(splat(F(-2.0)) * log(radius)) * cos_turns(_unit(w1))


@jit
def normals_into(key, round_index, context, out):
    """`normals` written to out (LANES,) float32."""
    store(out, 0, normals(key, round_index, context))
