"""Explicit 16-lane vectors for numba kernels: float32x16 and uint32x16.

numba leaves vectorisation to LLVM's loop vectoriser, which gives up on the loops that matter here (possible aliasing in
the outer products, wide multiplications in the random numbers). These intrinsics emit LLVM vector instructions
directly: one register with AVX-512, two with AVX2, four with NEON, the same results. Arrays are addressed flat, without
bounds checks.
"""

import math
import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from rftlab.shared.plumbing.arithmetic import by_halves
from rftlab.shared.plumbing.numba_parts import cgutils

LANES = 16
LINE = 64
"""Bytes of a cache line, which holds 16 lanes."""

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, INTS, _BITS = (ir.VectorType(element, LANES) for element in (_F32, _I32, ir.IntType(1)))
PAIRS = ir.VectorType(_I64, LANES // 2)


def aligned_zeros(shape, dtype) -> np.ndarray:
    """Return zeros that begin at a cache line. Vectors across two lines cost an extra load each, which is a seventh of
    the time of a matrix product."""
    size = math.prod(np.atleast_1d(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + LINE, dtype=np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size].view(dtype).reshape(shape)


class _Vector(types.Type):
    def __init__(self, name, llvm):
        self.llvm = llvm
        super().__init__(name)


floats = _Vector("float32x16", FLOATS)
ints = _Vector("uint32x16", INTS)


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, frontend):
        super().__init__(manager, frontend, frontend.llvm)


def emit(result, arguments, build):
    """Return the type and the code of an intrinsic; `build(builder, args)` returns its value."""
    return result(*arguments), lambda context, builder, signature, args: build(builder, args)


def call(builder, name, result, args, **flags):
    """Emit a call of an LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args, **flags)


def _constant(llvm, value):
    return ir.Constant(llvm, [value] * LANES)


def _spread(builder, scalar, llvm):
    one = builder.insert_element(ir.Constant(llvm, ir.Undefined), scalar, _I32(0))
    return builder.shuffle_vector(one, ir.Constant(llvm, ir.Undefined), ir.Constant(INTS, [0] * LANES))


def address(context, builder, array_type, array, index):
    """Return a pointer to an element of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def load(typingctx, array, index):
    """Load the 16 float32 or uint32 that begin at flat position `index` of a contiguous array."""
    vector = floats if array.dtype == types.float32 else ints

    def code(context, builder, signature, args):
        value = builder.load(
            builder.bitcast(address(context, builder, signature.args[0], *args), vector.llvm.as_pointer())
        )
        value.align = 4
        return value

    return vector(array, types.intp), code


@intrinsic
def store(typingctx, array, index, vector):
    """Write 16 lanes to flat positions index .. index+15."""

    def code(context, builder, signature, args):
        pointer = address(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], builder.bitcast(pointer, signature.args[2].llvm.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), code


@intrinsic
def prefetch(typingctx, array, index):
    """Prefetch the cache line of flat position `index`, which will soon be read."""

    def code(context, builder, signature, args):
        pointer = builder.bitcast(address(context, builder, signature.args[0], *args), cgutils.voidptr_t)
        call(builder, "llvm.prefetch", ir.VoidType(), [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), code


@intrinsic
def splat(typingctx, scalar):
    """Copy a scalar, float32 or uint32, to every lane."""
    vector = floats if scalar == types.float32 else ints
    element = types.float32 if scalar == types.float32 else types.uint32
    return emit(vector, (element,), lambda builder, args: _spread(builder, args[0], vector.llvm))


@intrinsic
def lane_numbers(typingctx):
    """Return the vector 0 .. 15."""
    return emit(ints, (), lambda builder, args: ir.Constant(INTS, list(range(LANES))))


@intrinsic
def fma(typingctx, a, b, c):
    """Return a b + c of each lane, rounded once."""
    return emit(floats, (floats, floats, floats), lambda builder, args: call(builder, "llvm.fma.v16f32", FLOATS, args))


@intrinsic
def sqrt(typingctx, a):
    """Return the square root of each lane."""
    return emit(floats, (floats,), lambda builder, args: call(builder, "llvm.sqrt.v16f32", FLOATS, args))


@intrinsic
def absolute(typingctx, a):
    """Return |a| of each lane."""
    return emit(floats, (floats,), lambda builder, args: call(builder, "llvm.fabs.v16f32", FLOATS, args))


@intrinsic
def floor(typingctx, a):
    """Return the largest integer not above each lane, as a float."""
    return emit(floats, (floats,), lambda builder, args: call(builder, "llvm.floor.v16f32", FLOATS, args))


@intrinsic
def maximum(typingctx, a, b):
    """Return the larger of each pair of lanes; nan where a is nan."""

    def build(builder, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[1], args[0])

    return emit(floats, (floats, floats), build)


@intrinsic
def total(typingctx, a):
    """Return the sum of the lanes, by halves. LLVM's own reduction may use another order."""
    return emit(types.float32, (floats,), lambda builder, args: by_halves(builder, args[0], builder.fadd))


@intrinsic
def running_total(typingctx, a):
    """Return the sum of each lane and all lanes before it, by doubling."""

    def build(builder, args):
        value, zero = args[0], _constant(FLOATS, 0.0)
        for shift in (1, 2, 4, 8):
            places = ir.Constant(INTS, [i - shift if i >= shift else LANES for i in range(LANES)])
            value = builder.fadd(value, builder.shuffle_vector(value, zero, places))
        return value

    return emit(floats, (floats,), build)


@intrinsic
def largest(typingctx, a):
    """Return the largest lane, where none is nan, by halves. LLVM's own reduction checks for nan lane by lane."""

    def build(builder, args):
        return by_halves(
            builder, args[0], lambda low, high: builder.select(builder.fcmp_ordered("<", low, high), high, low)
        )

    return emit(types.float32, (floats,), build)


@intrinsic
def count_at_most(typingctx, a, bound):
    """Return the number of lanes with a <= bound."""

    def build(builder, args):
        mask = builder.bitcast(
            builder.fcmp_ordered("<=", args[0], _spread(builder, args[1], FLOATS)), ir.IntType(LANES)
        )
        return builder.zext(call(builder, f"llvm.ctpop.i{LANES}", ir.IntType(LANES), [mask]), _I64)

    return emit(types.int64, (floats, types.float32), build)


@intrinsic
def any_nonzero(typingctx, a):
    """Return 1 where any lane differs from 0, nan included; else 0."""

    def build(builder, args):
        mask = builder.bitcast(builder.fcmp_unordered("!=", args[0], _constant(FLOATS, 0.0)), ir.IntType(LANES))
        return builder.zext(builder.icmp_unsigned("!=", mask, ir.IntType(LANES)(0)), _I64)

    return emit(types.int64, (floats,), build)


@intrinsic
def keep_bits(typingctx, a, mask):
    """Return the lanes of a whose bit in `mask` is set, and 0 elsewhere."""

    def build(builder, args):
        chosen = builder.bitcast(builder.trunc(args[1], ir.IntType(LANES)), _BITS)
        return builder.select(chosen, args[0], _constant(FLOATS, 0.0))

    return emit(floats, (floats, types.uint32), build)


@intrinsic
def to_floats(typingctx, a):
    """Convert signed integer lanes to float32."""
    return emit(floats, (ints,), lambda builder, args: builder.sitofp(args[0], FLOATS))


@intrinsic
def to_ints(typingctx, a):
    """Truncate float lanes to signed integers."""
    return emit(ints, (floats,), lambda builder, args: builder.fptosi(args[0], INTS))


@intrinsic
def as_bits(typingctx, a):
    """Return the bits of float lanes."""
    return emit(ints, (floats,), lambda builder, args: builder.bitcast(args[0], INTS))


@intrinsic
def as_floats(typingctx, a):
    """Return the floats that have these bits."""
    return emit(floats, (ints,), lambda builder, args: builder.bitcast(args[0], FLOATS))


@intrinsic
def arithmetic_shift(typingctx, a, n):
    """Shift lanes right, keeping their sign."""
    return emit(
        ints, (ints, types.uint32), lambda builder, args: builder.ashr(args[0], _spread(builder, args[1], INTS))
    )


def _operator(symbol, vector, method):
    """Define `symbol` (+, *, ^, ...) for two vectors of one type."""

    @type_callable(symbol)
    def choose(context):
        return lambda a, b: vector if a == vector and b == vector else None

    @lower_builtin(symbol, vector, vector)
    def apply(context, builder, signature, args):
        return getattr(builder, method)(*args)


for _symbol, _of_floats, _of_ints in (
    (operator.add, "fadd", "add"),
    (operator.sub, "fsub", "sub"),
    (operator.mul, "fmul", "mul"),
    (operator.truediv, "fdiv", None),
    (operator.xor, None, "xor"),
    (operator.and_, None, "and_"),
    (operator.or_, None, "or_"),
    (operator.lshift, None, "shl"),
    (operator.rshift, None, "lshr"),
):
    if _of_floats:
        _operator(_symbol, floats, _of_floats)
    if _of_ints:
        _operator(_symbol, ints, _of_ints)


def _pick(builder, a, b, lanes):
    """Return lanes of a (0 .. 15) and b (16 .. 31) in the given order."""
    return builder.shuffle_vector(a, b, ir.Constant(INTS, [*lanes]))


@intrinsic
def sums_of_pairs(typingctx, a, b):
    """Add lanes 2i and 2i+1, for a and then for b."""

    def build(builder, args):
        return builder.fadd(
            _pick(builder, *args, range(0, 2 * LANES, 2)), _pick(builder, *args, range(1, 2 * LANES, 2))
        )

    return emit(floats, (floats, floats), build)


def _quarter(c):
    """Return an intrinsic that collects lanes 4c .. 4c+3 of four vectors."""

    @intrinsic
    def collect(typingctx, v0, v1, v2, v3):
        def build(builder, args):
            mine = [4 * c, 4 * c + 1, 4 * c + 2, 4 * c + 3]
            pair = [*mine, *(LANES + lane for lane in mine), *[0] * 8]
            halves = [_pick(builder, args[i], args[i + 1], pair) for i in (0, 2)]
            return _pick(builder, *halves, [*range(8), *range(LANES, LANES + 8)])

        return emit(floats, (floats,) * 4, build)

    return collect


quarter_0, quarter_1, quarter_2, quarter_3 = (_quarter(c) for c in range(4))
