"""An exponential that compilers can vectorise: loops of nothing but arithmetic, eight at a time where the machine
can."""

import math

import numpy as np

from rftlab.shared.plumbing.jit import jit

_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOWEST, HIGHEST = -708.0, 709.0


@jit
def exp(x):
    """e^x to 2e-16 relative, exactly 1 at 0; x is held within -708 .. 709.

    x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 13, 2^n through the exponent's bits.
    """
    x = min(max(x, LOWEST), HIGHEST)
    n = math.floor(x * _LOG2_E + 0.5)
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
    p = p * r * r + r + 1.0
    return p * np.int64((np.int64(n) + 1023) << 52).view(np.float64)
