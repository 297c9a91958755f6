"""The surrogate objective of one token and its derivative, from one function."""

import math

from shared.jit import jit

REINFORCE, CLIP = range(2)
LOG_RATIO_LIMIT = 20.0


@jit
def surrogate(kind, low, high, dual, advantage, logp, old_logp):
    """Objective j of a token, dj/dlogp, and whether the clip and the dual clip are active.

    reinforce  j = A logp                                                      Williams 1992
    clip       j = min(A r, A clip(r, 1-low, 1+high)), r = exp(logp - old_logp)      PPO, 1707.06347, eq. 7
               and, for A < 0, j = max(j, dual A)                                dual clip, 1912.09729
    The log-ratio is held within +-20; outside the derivative is 0. Choices between values, not branches: advantages have random signs.
    """
    if kind == REINFORCE:
        return advantage * logp, advantage, False, False
    log_ratio = logp - old_logp
    bounded = min(max(log_ratio, -LOG_RATIO_LIMIT), LOG_RATIO_LIMIT)
    ratio = 1.0 if log_ratio == 0.0 else math.exp(bounded)
    plain = advantage * ratio
    clipped = advantage * min(max(ratio, 1.0 - low), 1.0 + high)
    is_clipped = clipped < plain
    value = min(plain, clipped)
    is_dual = (advantage < 0.0) & (value < advantage * dual)
    is_flat = is_clipped | is_dual | (abs(log_ratio) > LOG_RATIO_LIMIT)
    return advantage * dual if is_dual else value, 0.0 if is_flat else plain, is_clipped, is_dual
