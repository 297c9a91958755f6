"""How compiled code calls an address: the way in of a function of the user's, with the addresses of arrays."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


def _call(context, builder, signature, args, sizes):
    """Call args[0] with whole numbers and the addresses of the other arguments' data."""
    made = [context.make_array(kind)(context, builder, a) for kind, a in zip(signature.args[1:], args[1:], strict=True)]
    numbers = [builder.extract_value(made[place].shape, 0) for place in sizes]
    addresses = [builder.ptrtoint(array.data, _I64) for array in made]
    kind = ir.FunctionType(ir.VoidType(), [_I64] * (len(numbers) + len(addresses)))
    builder.call(builder.inttoptr(args[0], kind.as_pointer()), [*numbers, *addresses])
    return context.get_dummy_value()


@intrinsic
def call_advantage(typingctx, address, rewards, group, pool, pool_starts, out):
    """Hand rewards (n,), group (n,), pool and pool_starts (G+1,) to an address, which fills out (n,); G+1 is said
    too."""

    def code(context, builder, signature, args):
        return _call(context, builder, signature, args, (0, 3))

    return types.none(types.int64, rewards, group, pool, pool_starts, out), code


@intrinsic
def call_surrogate(typingctx, address, advantage, logp, old_logp, value, slope):
    """Hand advantage, logp and old_logp (T,) to an address, which fills value and slope (T,)."""

    def code(context, builder, signature, args):
        return _call(context, builder, signature, args, (0,))

    return types.none(types.int64, advantage, logp, old_logp, value, slope), code
