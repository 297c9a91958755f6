"""Float lanes that change places."""

from llvmlite import ir
from numba.extending import intrinsic

from rftlab.sim.lanes.simd import INTS, LANES, emit, floats


def _pick(builder, a, b, lanes):
    """Lanes of a (0 .. 15) and b (16 .. 31), in the order given."""
    return builder.shuffle_vector(a, b, ir.Constant(INTS, [*lanes]))


@intrinsic
def sums_of_pairs(typingctx, a, b):
    """Lanes 2i and 2i+1 added, for a and then for b."""

    def build(builder, args):
        return builder.fadd(
            _pick(builder, *args, range(0, 2 * LANES, 2)), _pick(builder, *args, range(1, 2 * LANES, 2))
        )

    return emit(floats, (floats, floats), build)


def _quarter(c):
    """Intrinsic that collects lanes 4c .. 4c+3 of four vectors."""

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
