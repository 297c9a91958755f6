"""Sums in a fixed order, eight lanes at a time: the same bits on every processor.

A compiler that may choose the order takes as many lanes as its target has, so results would depend on the machine. Lane i adds the terms
i, i + 8, i + 16, ...; then the lanes are joined by halves; then come the up to seven terms that are left.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from shared.numba_parts import cgutils

LANES, BLOCK = 8, 256
_I32, _I64, _F64 = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_POINTER = types.CPointer(types.float64)


def by_halves(builder, vector, join):
    """All lanes joined to one, always in this order: the lower half with the upper one, until one lane is left."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        halves = [builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_I32, lanes), [*range(first, first + lanes)])) for first in (0, lanes)]
        vector = join(*halves)
    return builder.extract_element(vector, _I32(0))


def _add_up(builder, n, term):
    """Sum of term(i, lanes) for i below n: `lanes` of them at once, 8 or 1."""
    whole, value = builder.and_(n, _I64(-LANES)), cgutils.alloca_once_value(builder, _F64(-0.0))
    with builder.if_then(builder.icmp_signed(">", whole, _I64(0))):
        lanes = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(_F64, LANES), [-0.0] * LANES))
        with cgutils.for_range_slice(builder, _I64(0), whole, _I64(LANES), intp=_I64) as (i, _):
            builder.store(builder.fadd(builder.load(lanes), term(i, LANES)), lanes)
        builder.store(by_halves(builder, builder.load(lanes), builder.fadd), value)
    with cgutils.for_range_slice(builder, whole, n, _I64(1), intp=_I64) as (i, _):
        builder.store(builder.fadd(builder.load(value), term(i, 1)), value)
    return builder.load(value)


def _terms(builder, data, kind):
    """Reads of 8 or 1 numbers of float64 or int64 data, as float64."""

    def read(i, lanes):
        element = data.type.pointee
        place = builder.bitcast(builder.gep(data, [i]), (ir.VectorType(element, lanes) if lanes > 1 else element).as_pointer())
        value = builder.load(place)
        value.align = 8
        return value if kind == types.float64 else builder.sitofp(value, ir.VectorType(_F64, lanes) if lanes > 1 else _F64)

    return read


@intrinsic
def total(typingctx, values):
    """Sum of an array (n,) of float64."""

    def code(context, builder, signature, args):
        array = context.make_array(values)(context, builder, args[0])
        return _add_up(builder, builder.extract_value(array.shape, 0), _terms(builder, array.data, values.dtype))

    return types.float64(values), code


@intrinsic
def dot(typingctx, a, b):
    """Sum of the products of two arrays (n,), of float64 or int64."""

    def code(context, builder, signature, args):
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in zip((a, b), args, strict=True)]
        first, second = (_terms(builder, array.data, kind.dtype) for kind, array in zip((a, b), arrays, strict=True))
        return _add_up(builder, builder.extract_value(arrays[0].shape, 0), lambda i, lanes: builder.fmul(first(i, lanes), second(i, lanes)))

    return types.float64(a, b), code


@intrinsic
def block(typingctx):
    """Room for BLOCK float64 on the stack, for terms that `block_total` adds up."""

    def code(context, builder, signature, args):
        place = cgutils.alloca_once(builder, ir.ArrayType(_F64, BLOCK))
        place.align = 64
        return builder.bitcast(place, _F64.as_pointer())

    return _POINTER(), code


@intrinsic
def block_total(typingctx, terms, n):
    """Sum of the first n terms of a block."""
    return types.float64(_POINTER, types.intp), lambda context, builder, signature, args: _add_up(builder, args[1], _terms(builder, args[0], types.float64))
