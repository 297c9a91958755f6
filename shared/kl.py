"""Estimators of KL(pi || base) from the log-probability of one sampled token, and their derivatives."""

import math

import numpy as np

from shared.jit import jit

NONE, K1, K2, K3, ABS = range(5)
LOG_RATIO_LIMIT, K3_LIMIT = 20.0, 10.0


@jit
def kl_penalty(kind, straight_through, logp, ref_logp):
    """Value and derivative with respect to logp; d = logp - ref_logp.

    k1 = d, k2 = d^2/2, k3 = exp(-d) + d - 1, abs = |d|. k3 is held at 10 or less and -d within +-20; there its derivative is 0.
    straight_through keeps the value and takes the derivative of k2, which is d.
    """
    d = logp - ref_logp
    if kind == K1:
        value, slope = d, 1.0
    elif kind == K2:
        value, slope = 0.5 * d * d, d
    elif kind == K3:
        bounded = min(max(-d, -LOG_RATIO_LIMIT), LOG_RATIO_LIMIT)
        ratio = math.exp(bounded)
        value = ratio - 1.0 - bounded
        slope = 0.0 if (abs(d) > LOG_RATIO_LIMIT) | (value > K3_LIMIT) else 1.0 - ratio
        value = min(value, K3_LIMIT)
    elif kind == ABS:
        value, slope = abs(d), float(np.sign(d))
    else:
        return 0.0, 0.0
    return value, d if straight_through else slope
