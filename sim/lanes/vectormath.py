"""Compute elementary functions of 16 float32 lanes, to about two units in the last place: exp, log, cos(2 pi x)."""

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.simd import (
    absolute,
    arithmetic_shift,
    as_bits,
    as_floats,
    floor,
    fma,
    maximum,
    splat,
    to_floats,
    to_ints,
)

F = np.float32
U = np.uint32
_LOWEST_EXPONENT = F(-87.0)
_LOG2_E, _LN2_HIGH, _LN2_LOW = F(1.44269504), F(0.693359375), F(-2.12194440e-4)


@kernel
def exp(x):
    """Return e^x of each lane, by a Taylor-like polynomial on |r| <= ln 2 / 2; below -87 as at -87, about 1e-38."""
    x = maximum(x, splat(_LOWEST_EXPONENT))
    # x = n ln 2 + r with the nearest n, so that |r| <= ln 2 / 2.
    n = floor(fma(x, splat(_LOG2_E), splat(F(0.5))))
    # ln 2 in two parts: n times the first is exact in float32.
    r = fma(n, splat(F(-_LN2_LOW)), fma(n, splat(F(-_LN2_HIGH)), x))
    p = splat(F(1.98412698e-4))
    p = fma(p, r, splat(F(1.38888889e-3)))
    p = fma(p, r, splat(F(8.33333333e-3)))
    p = fma(p, r, splat(F(4.16666667e-2)))
    p = fma(p, r, splat(F(1.66666667e-1)))
    p = fma(p, r, splat(F(0.5)))
    p = fma(p, r, splat(F(1.0)))
    p = fma(p, r, splat(F(1.0)))
    # 2^n is computed by adding n to the exponent bits, which is exact.
    return p * as_floats((to_ints(n) + splat(U(127))) << splat(U(23)))


@kernel
def log(x):
    """Return the natural logarithm of positive normal lanes: x = m 2^e, m in [0.75, 1.5), log m = 2
    artanh((m-1)/(m+1))."""
    bits = as_bits(x)
    # 0x3F400000 are the bits of 0.75: the difference has the exponent of x / 0.75 in its upper bits.
    exponent = arithmetic_shift(bits - splat(U(0x3F400000)), U(23))
    m = as_floats(bits - (exponent << splat(U(23))))
    z = (m - splat(F(1.0))) / (m + splat(F(1.0)))
    z2 = z * z
    p = splat(F(2.0 / 9.0))
    p = fma(p, z2, splat(F(2.0 / 7.0)))
    p = fma(p, z2, splat(F(2.0 / 5.0)))
    p = fma(p, z2, splat(F(2.0 / 3.0)))
    p = fma(p, z2, splat(F(2.0)))
    return fma(to_floats(exponent), splat(F(0.69314718)), p * z)


@kernel
def cos_turns(u):
    """Return cos(2 pi u) for u in [0, 1), as sin(2 pi s) with s = |u - 1/2| - 1/4, which lies within a quarter turn."""
    x = (absolute(u - splat(F(0.5))) - splat(F(0.25))) * splat(F(6.28318531))
    x2 = x * x
    p = splat(F(2.75573192e-6))
    p = fma(p, x2, splat(F(-1.98412698e-4)))
    p = fma(p, x2, splat(F(8.33333333e-3)))
    p = fma(p, x2, splat(F(-1.66666667e-1)))
    p = fma(p, x2, splat(F(1.0)))
    return p * x
