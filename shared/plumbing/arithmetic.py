"""Compute sums in a fixed order, eight lanes at a time, and a vectorisable exponential, with the same bits on every
processor.

A compiler that may choose the order uses as many lanes as its target has, so results would depend on the machine. Lane
i adds the terms i, i + 8, i + 16, ...; then the lanes are joined by halves; then come the up to seven terms that are
left.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rftlab.shared.plumbing.jit import jit
from rftlab.shared.plumbing.numba_parts import cgutils

LANES, BLOCK = 8, 256
_I32, _I64, _F64 = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_POINTER = types.CPointer(types.float64)


def by_halves(builder, vector, join):
    """Reduce all lanes of a vector to one in a fixed order: the lower half is joined with the upper one until one is
    left."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        halves = [
            builder.shuffle_vector(
                vector, vector, ir.Constant(ir.VectorType(_I32, lanes), [*range(first, first + lanes)])
            )
            for first in (0, lanes)
        ]
        vector = join(*halves)
    return builder.extract_element(vector, _I32(0))


def _add_up(builder, n, count, terms):
    """Emit sums of the `count` numbers that terms(i, lanes) lists, over i below n, with 8 lanes or 1 at a time."""
    # n rounded down to a multiple of 8, a power of two.
    whole = builder.and_(n, _I64(-LANES))
    # -0.0 is the neutral element of addition: 0.0 would turn a sum of -0.0 into 0.0.
    values = [cgutils.alloca_once_value(builder, _F64(-0.0)) for _ in range(count)]
    with builder.if_then(builder.icmp_signed(">", whole, _I64(0))):
        vectors = [
            cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(_F64, LANES), [-0.0] * LANES)) for _ in values
        ]
        with cgutils.for_range_slice(builder, _I64(0), whole, _I64(LANES), intp=_I64) as (i, _):
            _add_each(builder, terms(i, LANES), vectors)
        for value, vector in zip(values, vectors, strict=True):
            builder.store(by_halves(builder, builder.load(vector), builder.fadd), value)
    with cgutils.for_range_slice(builder, whole, n, _I64(1), intp=_I64) as (i, _):
        _add_each(builder, terms(i, 1), values)
    return [builder.load(value) for value in values]


def _add_each(builder, terms, sums):
    for term, place in zip(terms, sums, strict=True):
        builder.store(builder.fadd(builder.load(place), term), place)


def _reader(builder, data):
    """Return a reader of 8 or 1 numbers of float64 or int64 data, as float64."""

    def read(i, lanes):
        kinds = [ir.VectorType(kind, lanes) if lanes > 1 else kind for kind in (data.type.pointee, _F64)]
        value = builder.load(builder.bitcast(builder.gep(data, [i]), kinds[0].as_pointer()))
        # Slices of arrays begin anywhere, so vectors are read without alignment.
        value.align = 8
        return value if kinds[0] == kinds[1] else builder.sitofp(value, kinds[1])

    return read


def _sum_intrinsic(count, terms, *arrays):
    """Return the code of an intrinsic that sums over arrays (n,) the terms that terms(builder, numbers of each array)
    lists."""

    def code(context, builder, signature, args):
        made = [context.make_array(kind)(context, builder, value) for kind, value in zip(arrays, args, strict=True)]
        readers = [_reader(builder, array.data) for array in made]
        sums = _add_up(
            builder,
            builder.extract_value(made[0].shape, 0),
            count,
            lambda i, lanes: terms(builder, *(read(i, lanes) for read in readers)),
        )
        return sums[0] if count == 1 else context.make_tuple(builder, signature.return_type, sums)

    return code


@intrinsic
def total(typingctx, values):
    """Return the sum of an array (n,) of float64."""
    return types.float64(values), _sum_intrinsic(1, lambda builder, x: [x], values)


@intrinsic
def total_of_squares(typingctx, values):
    """Return the sum of the squares of an array (n,) of float64."""
    return types.float64(values), _sum_intrinsic(1, lambda builder, x: [builder.fmul(x, x)], values)


@intrinsic
def weight_totals(typingctx, weights, marks):
    """Return sum_k w_k, sum_k w_k^2 and sum_k w_k m_k of two arrays (K,), float64 and int64."""
    code = _sum_intrinsic(3, lambda builder, w, m: [w, builder.fmul(w, w), builder.fmul(w, m)], weights, marks)
    return types.UniTuple(types.float64, 3)(weights, marks), code


@intrinsic
def block(typingctx):
    """Allocate BLOCK float64 on the stack, for terms that `block_total` adds up."""

    def code(context, builder, signature, args):
        place = cgutils.alloca_once(builder, ir.ArrayType(_F64, BLOCK))
        place.align = 64
        return builder.bitcast(place, _F64.as_pointer())

    return _POINTER(), code


@intrinsic
def block_total(typingctx, terms, n):
    """Return the sum of the first n terms of a block."""

    def code(context, builder, signature, args):
        read = _reader(builder, args[0])
        return _add_up(builder, args[1], 1, lambda i, lanes: [read(i, lanes)])[0]

    return types.float64(_POINTER, types.intp), code


_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOWEST, HIGHEST = -708.0, 709.0


@jit
def exp(x):
    """Return e^x to 2e-16 relative, exactly 1 at 0; x is clipped to -708 .. 709.

    x = n ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor polynomial of degree 13, and 2^n is set in the exponent's
    bits.
    """
    x = min(max(x, LOWEST), HIGHEST)
    n = math.floor(x * _LOG2_E + 0.5)
    # ln 2 in two parts: n times the first has no rounding error, so r keeps its last bits (Cody and Waite).
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    # The terms 1 and r come last and have no rounded coefficient, so that the result is exactly 1 at r = 0.
    p = p * r * r + r + 1.0
    # The number whose exponent bits are n + 1023 is 2^n.
    return p * np.int64((np.int64(n) + 1023) << 52).view(np.float64)
