"""Products of 32-bit words: integer vectors as 8 lanes of 64 bits."""

from llvmlite import ir
from numba.extending import intrinsic

from rftlab.sim.lanes.simd import INTS, LANES, PAIRS, ints

_LOWER, _WORD = ir.Constant(PAIRS, [2**32 - 1] * (LANES // 2)), ir.Constant(PAIRS, [32] * (LANES // 2))


def _on_pairs(build):
    """Intrinsic of integer vectors as 8 lanes of 64 bits: `build(builder, lanes)`."""

    def code(context, builder, signature, args):
        return builder.bitcast(build(builder, [builder.bitcast(lanes, PAIRS) for lanes in args]), INTS)

    return code


@intrinsic
def wide_product(typingctx, a, b):
    """64-bit products of the even lanes: their lower and upper words in even and odd lanes."""
    return ints(ints, ints), _on_pairs(
        lambda builder, lanes: builder.mul(*(builder.and_(part, _LOWER) for part in lanes))
    )


@intrinsic
def upper_words(typingctx, a):
    """Odd lanes, moved to the even ones before them."""
    return ints(ints), _on_pairs(lambda builder, lanes: builder.lshr(lanes[0], _WORD))


@intrinsic
def merge_words(typingctx, a, b):
    """Even lanes of a, and those of b in the odd lanes behind them."""
    return ints(ints, ints), _on_pairs(
        lambda builder, lanes: builder.or_(builder.and_(lanes[0], _LOWER), builder.shl(lanes[1], _WORD))
    )
