"""Draw counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011), with the seed as key and the draw as counter.

A number depends only on (seed, round, context, rollout or lane, stream). So results do not depend on the number of
threads or on how seeds are grouped, a draw can be repeated instead of stored, and two designs with one seed share their
random numbers.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from rftlab.shared.plumbing.jit import entry, kernel
from rftlab.sim.lanes.simd import (
    INTS,
    LANES,
    PAIRS,
    as_bits,
    as_floats,
    floor,
    fma,
    ints,
    keep_bits,
    lane_numbers,
    load,
    quarter_0,
    quarter_1,
    quarter_2,
    quarter_3,
    splat,
    sqrt,
    store,
    to_floats,
)
from rftlab.sim.lanes.vectormath import F, U, cos_turns, log

_LOWER, _WORD = ir.Constant(PAIRS, [2**32 - 1] * (LANES // 2)), ir.Constant(PAIRS, [32] * (LANES // 2))


def _on_pairs(build):
    """Return an intrinsic on integer vectors, seen as 8 lanes of 64 bits; `build(builder, lanes)` emits its code."""

    def code(context, builder, signature, args):
        return builder.bitcast(build(builder, [builder.bitcast(lanes, PAIRS) for lanes in args]), INTS)

    return code


@intrinsic
def wide_product(typingctx, a, b):
    """Multiply the even lanes to 64-bit products, with the lower words in even and the upper words in odd lanes."""
    return ints(ints, ints), _on_pairs(
        lambda builder, lanes: builder.mul(*(builder.and_(part, _LOWER) for part in lanes))
    )


@intrinsic
def upper_words(typingctx, a):
    """Move each odd lane to the even lane before it."""
    return ints(ints), _on_pairs(lambda builder, lanes: builder.lshr(lanes[0], _WORD))


@intrinsic
def merge_words(typingctx, a, b):
    """Merge the even lanes of a with those of b, which go to the odd lanes behind them."""
    return ints(ints, ints), _on_pairs(
        lambda builder, lanes: builder.or_(builder.and_(lanes[0], _LOWER), builder.shl(lanes[1], _WORD))
    )


ROLLOUT, NUISANCE, EVALUATION, STYLE, LENGTH, MISMATCH, MASKING, INTERFERENCE = (U(stream) for stream in range(8))
COMMON, REWARDING = U(8), U(9)
_MULTIPLY_0, _MULTIPLY_1 = U(0xD2511F53), U(0xCD9E8D57)
_WEYL_0, _WEYL_1 = U(0x9E3779B9), U(0xBB67AE85)
_UNIT = F(2.0**-24)


class Key(NamedTuple):
    """The two 32-bit words of a seed."""

    low: np.uint32
    high: np.uint32


def seed_key(seed: int) -> Key:
    """Return the key of a seed from 0 to 2^64 - 1."""
    return Key(U(seed & 0xFFFFFFFF), U(seed >> 32))


@kernel
def _turn(c, k0, k1):
    """Compute one of Philox's ten rounds for the even lanes; the odd lanes hold unused values."""
    low, high = wide_product(c[0], splat(_MULTIPLY_0)), wide_product(c[2], splat(_MULTIPLY_1))
    # Salmon et al., figure 3: each round mixes the words of two products, and the key moves by a Weyl sequence.
    return upper_words(high) ^ c[1] ^ splat(k0), high, upper_words(low) ^ c[3] ^ splat(k1), low


@kernel
def _ten_turns(c, key):
    """Compute all ten rounds of Philox."""
    k0, k1 = key.low, key.high
    for _ in range(10):
        c, k0, k1 = _turn(c, k0, k1), U(k0 + _WEYL_0), U(k1 + _WEYL_1)
    return c


@kernel
def _merge(even, odd):
    return (
        merge_words(even[0], odd[0]),
        merge_words(even[1], odd[1]),
        merge_words(even[2], odd[2]),
        merge_words(even[3], odd[3]),
    )


@kernel
def philox(key, c0, c1, c2, c3):
    """Return two times four vectors of 16 random words. The counters c0 and c3 are common to the lanes; c1 and c2 are
    two vectors each.

    Even and odd lanes are computed apart, for two vectors of counters: four chains of multiplications, one after the
    other. A processor overlaps two of them by itself; interleaved in one loop they would need 32 registers, more than
    most have.
    """
    a = splat(c0), c1[0], c2[0], splat(c3)
    b = splat(c0), upper_words(c1[0]), upper_words(c2[0]), splat(c3)
    c = splat(c0), c1[1], c2[1], splat(c3)
    d = splat(c0), upper_words(c1[1]), upper_words(c2[1]), splat(c3)
    a, b, c, d = _ten_turns(a, key), _ten_turns(b, key), _ten_turns(c, key), _ten_turns(d, key)
    return _merge(a, b), _merge(c, d)


@kernel
def _unit(words):
    """Return uniforms in [0, 1) with 24 bits."""
    return to_floats(words >> splat(U(8))) * splat(_UNIT)


@entry
def uniforms(key, round_index, contexts, count, stream, out):
    """Draw two uniforms in [0, 1) for each of `count` draws of each context, keyed by (round, context, draw).

    contexts (n,); count an np.int64, because a literal number is compiled as another type; out (2, at least n count + 2
    LANES) float32, context by context. out first holds the counters, written 16 at a time; those beyond a context's
    draws are overwritten by the next context's.
    """
    n, width = contexts.shape[0] * count, out.shape[1]
    for row in range(contexts.shape[0]):
        for draw in range(0, count, LANES):
            # Counters are stored as floats without a conversion, because only their bits matter.
            store(out, row * count + draw, as_floats(splat(U(contexts[row]))))
            store(out, width + row * count + draw, as_floats(splat(U(draw)) + lane_numbers()))
    for first in range(0, n, 2 * LANES):
        second = first + LANES
        context = as_bits(load(out, first)), as_bits(load(out, second))
        draw = as_bits(load(out, width + first)), as_bits(load(out, width + second))
        v, w = philox(key, U(round_index), context, draw, stream)
        store(out, first, _unit(v[0]))
        store(out, second, _unit(w[0]))
        store(out, width + first, _unit(v[1]))
        store(out, width + second, _unit(w[1]))


@kernel
def _box_muller(w0, w1):
    """Return two vectors of standard normals from two vectors of random words."""
    # Half a unit is added, so that the logarithm is never of 0.
    radius = sqrt(splat(F(-2.0)) * log(fma(to_floats(w0 >> splat(U(8))), splat(_UNIT), splat(F(0.5 * _UNIT)))))
    turn = _unit(w1)
    # sin(x) = cos(x - quarter turn), and subtracting a quarter turn is adding three quarters.
    quarter = turn + splat(F(0.75))
    return radius * cos_turns(turn), radius * cos_turns(quarter - floor(quarter))


@kernel
def _store_normals(words, out, at):
    """Store the 64 normals of four vectors of random words, those of each of 4 contexts together."""
    a, b = _box_muller(words[0], words[1])
    c, d = _box_muller(words[2], words[3])
    store(out, at, quarter_0(a, b, c, d))
    store(out, at + LANES, quarter_1(a, b, c, d))
    store(out, at + 2 * LANES, quarter_2(a, b, c, d))
    store(out, at + 3 * LANES, quarter_3(a, b, c, d))


@kernel
def _four_times(rows, first):
    """Return a vector with each of 4 rows in 4 lanes."""
    lanes = splat(U(0))
    for i in range(4):
        lanes = lanes | as_bits(keep_bits(as_floats(splat(U(rows[first + i]))), U(15 << 4 * i)))
    return lanes


@entry
def normals(key, round_index, rows, stream, out):
    """Draw 16 standard normals for each context of rows (n,), n a multiple of 8, to out (n, LANES) float32.

    A context's normals come from 4 counters, by Box and Muller's transform; 4 contexts share the 16 lanes.
    """
    draw = lane_numbers() & splat(U(3))
    for first in range(0, rows.shape[0], 8):
        contexts = _four_times(rows, first), _four_times(rows, first + 4)
        v, w = philox(key, U(round_index), contexts, (draw, draw), stream)
        _store_normals(v, out, first * LANES)
        _store_normals(w, out, (first + 4) * LANES)
