"""Compute tiles of a matrix product, whose sums stay in registers; their number depends on the processor that kernels
are compiled for.

Results have the same bits on all processors (tests/sim/test_targets.py): a target decides which loop is the outer one,
never the order of a sum.

Arms are two vectors, their lower and their upper half, which are multiplied with pairs of features
(`rftlab.sim.policy.products.places`). A tile is the logits of CONTEXTS contexts, to which features are added one pair
after the other, for HALVES of their arms at once; or the gradient of PAIRS pairs of features, to which contexts are
added.
"""

from typing import NamedTuple

from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic

from rftlab.shared.plumbing.numba_parts import cgutils
from rftlab.sim.lanes.simd import FLOATS, INTS, LANES, LINE, address, call, floats


class Target(NamedTuple):
    """A kind of processor that kernels are compiled for."""

    name: str
    feature: str
    """LLVM's name of the instructions that the processor must have."""
    lanes: int
    """Number of float32 in a vector register."""
    registers: int
    """Number of vector registers."""


TARGETS = (
    Target("AVX-512", "+avx512f", lanes=16, registers=32),
    Target("AVX2", "+avx2", lanes=8, registers=16),
    Target("NEON", "+neon", lanes=4, registers=32),
    Target("plain", "", lanes=4, registers=16),
)
"""Known targets. The first whose feature a processor has is used."""


def features() -> str:
    """Return the features for which numba compiles, as LLVM lists them: NUMBA_CPU_FEATURES, or those of this
    machine."""
    if config.CPU_FEATURES is not None:
        return config.CPU_FEATURES
    mine = binding.get_host_cpu_features()
    return ",".join(
        f"+{name}" for name, present in mine.items() if present and (config.ENABLE_AVX or not name.startswith("avx"))
    )


def find_target(features: str) -> Target:
    """Return the target for a list of features with commas."""
    return next(target for target in TARGETS if not target.feature or target.feature in features.split(","))


TARGET = find_target(features())


class Tiles(NamedTuple):
    """Sizes of the tiles that stay in registers."""

    contexts: int
    """Number of contexts whose logits are in a tile."""
    halves: int
    """Halves of the arms in a tile. Two halves reduce the reads of features; one leaves room for more contexts, which
    reduces the reads of weights."""
    pairs: int
    """Number of pairs of features whose gradient is in a tile."""


def tile_sizes(target: Target) -> Tiles:
    """Return the sizes of tiles for a target. Sums take three quarters of the registers, and values that are read take
    the rest. Two multipliers with a latency of four steps need eight registers or more."""
    # A vector of 16 lanes takes several registers where these are narrower.
    vectors = min(16, target.registers * 3 // 4 // (LANES // target.lanes))
    halves = 2 if vectors == 16 else 1
    return Tiles(vectors // halves, halves, max(n for n in (1, 2, 4, 8) if n == 1 or 2 * n <= vectors))


CONTEXTS, HALVES, PAIRS = tile_sizes(TARGET)
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_WIDE = ir.VectorType(_I64, LANES // 2)
STRIP = 128
"""Number of contexts whose scores stay in the first-level cache while all tiles of the gradient are computed."""
logits, gradient = types.UniTuple(floats, CONTEXTS * HALVES), types.UniTuple(floats, 2 * PAIRS)
strip = types.CPointer(types.float32)


def _pair(context, builder, array_type, array, index):
    """Load the two float32 at a flat position into every pair of lanes."""
    # Two float32 are loaded as one 64-bit number: one load and one broadcast serve two multiplications.
    pair = builder.load(builder.bitcast(address(context, builder, array_type, array, index), _I64.as_pointer()))
    pair.align = 4
    first = builder.insert_element(ir.Constant(_WIDE, ir.Undefined), pair, _I32(0))
    everywhere = builder.shuffle_vector(
        first, ir.Constant(_WIDE, ir.Undefined), ir.Constant(ir.VectorType(_I32, LANES // 2), [0] * (LANES // 2))
    )
    return builder.bitcast(everywhere, FLOATS)


def load_vectors(context, builder, array_type, array, index, count):
    """Load `count` vectors from a flat position on."""
    pointer = builder.bitcast(address(context, builder, array_type, array, index), FLOATS.as_pointer())
    vectors = [builder.load(builder.gep(pointer, [_I32(i)])) for i in range(count)]
    for vector in vectors:
        vector.align = 4
    return vectors


def _add(builder, pairs, weights, sums):
    """Add the products of each pair of features with every vector of weights (or scores) to its sums."""
    vectors, n = [], len(weights)
    for i, pair in enumerate(pairs):
        vectors += [
            call(builder, "llvm.fma.v16f32", FLOATS, [pair, *both])
            for both in zip(weights, sums[n * i : n * i + n], strict=True)
        ]
    return vectors


@intrinsic
def zeros(typingctx):
    """Return a tile of zeros."""
    return logits(), lambda context, builder, signature, args: ir.Constant(context.get_value_type(logits), None)


@intrinsic
def context_starts(typingctx, rows, first, width):
    """Return the positions where the features of the contexts rows[first], rows[first + 1], ... begin, CONTEXTS
    numbers."""

    def code(context, builder, signature, args):
        numbers = [
            builder.load(address(context, builder, rows, args[0], builder.add(args[1], _I64(i))))
            for i in range(CONTEXTS)
        ]
        return context.make_tuple(builder, signature.return_type, [builder.mul(number, args[2]) for number in numbers])

    return types.UniTuple(types.intp, CONTEXTS)(rows, types.intp, types.intp), code


@intrinsic
def add_features(typingctx, sums, features, starts, k, theta, half):
    """Add features k, k + 1 times their weights to the sums of CONTEXTS contexts, whose features begin at `starts`; the
    arms begin at `half`."""

    def code(context, builder, signature, args):
        place = builder.mul(builder.add(args[3], args[5]), _I64(LANES))
        weights = load_vectors(context, builder, theta, args[4], place, HALVES)
        pairs = [
            _pair(context, builder, features, args[1], builder.add(at, args[3]))
            for at in cgutils.unpack_tuple(builder, args[2])
        ]
        return context.make_tuple(
            builder, logits, _add(builder, pairs, weights, cgutils.unpack_tuple(builder, args[0]))
        )

    return logits(logits, features, starts, types.intp, theta, types.intp), code


@intrinsic
def new_strip(typingctx):
    """Allocate the stack for the scores of STRIP contexts. Every lane is doubled, for products with pairs of
    features."""

    def code(context, builder, signature, args):
        place = cgutils.alloca_once(builder, ir.ArrayType(FLOATS, 2 * STRIP))
        place.align = LINE
        return builder.bitcast(place, ir.FloatType().as_pointer())

    return strip(), code


@intrinsic
def double_into(typingctx, place, i, score):
    """Store a context's scores as the i-th of a strip."""

    def code(context, builder, signature, args):
        for half, at in enumerate(_halves(builder, *args[:2])):
            # Lane i of the result is score i // 2, by which both features of a pair are multiplied.
            lanes = ir.Constant(INTS, [half * LANES // 2 + lane // 2 for lane in range(LANES)])
            builder.store(builder.shuffle_vector(args[2], args[2], lanes), at)
        return context.get_dummy_value()

    return types.void(strip, types.intp, floats), code


@intrinsic
def add_context(typingctx, sums, features, start, place, i):
    """Add a context, the i-th of a strip, to the sums of PAIRS pairs of features; its features of these pairs begin at
    `start`."""

    def code(context, builder, signature, args):
        scores = [builder.load(at) for at in _halves(builder, *args[3:])]
        pairs = [_pair(context, builder, features, args[1], builder.add(args[2], _I64(2 * i))) for i in range(PAIRS)]
        return context.make_tuple(
            builder, gradient, _add(builder, pairs, scores, cgutils.unpack_tuple(builder, args[0]))
        )

    return gradient(gradient, features, types.intp, strip, types.intp), code


def _halves(builder, place, i):
    """Return pointers to the two vectors of the i-th context of a strip."""
    vectors, first = builder.bitcast(place, FLOATS.as_pointer()), builder.mul(i, _I64(2))
    return builder.gep(vectors, [first]), builder.gep(vectors, [builder.add(first, _I64(1))])


@intrinsic
def load_tile(typingctx, array, index):
    """Load the tile that begins at flat position `index`."""

    def code(context, builder, signature, args):
        return context.make_tuple(builder, gradient, load_vectors(context, builder, array, *args, 2 * PAIRS))

    return gradient(array, types.intp), code


@intrinsic
def store_tile(typingctx, array, index, sums):
    """Write a tile to flat position `index`."""

    def code(context, builder, signature, args):
        pointer = builder.bitcast(address(context, builder, array, *args[:2]), FLOATS.as_pointer())
        for i, part in enumerate(cgutils.unpack_tuple(builder, args[2])):
            builder.store(part, builder.gep(pointer, [_I32(i)])).align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, gradient), code
