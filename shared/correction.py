"""Importance correction: the sampler was not quite the policy that the trainer holds (other kernels, other
precision, stale weights)."""

import math

import numpy as np

from rftlab.shared.aggregation import check_starts
from rftlab.shared.config.correction import GEOMETRIC, LOG_LIMIT, MASK, TOKEN, TRUNCATE, Correction, correction_rule
from rftlab.shared.errors import check
from rftlab.shared.jit import jit


@jit
def correction_into(rule, starts, old_logp, sampler_logp, out):
    """Fill out (T,) with the weights of tokens; log-weights are held within +-20."""
    for row in range(starts.shape[0] - 1):
        total = 0.0
        for t in range(starts[row], starts[row + 1]):
            total += old_logp[t] - sampler_logp[t]
        if rule.level == GEOMETRIC:
            total /= max(1, starts[row + 1] - starts[row])
        for t in range(starts[row], starts[row + 1]):
            log_weight = old_logp[t] - sampler_logp[t] if rule.level == TOKEN else total
            weight = math.exp(min(max(log_weight, -LOG_LIMIT), LOG_LIMIT))
            if rule.kind == TRUNCATE:
                out[t] = min(weight, rule.high)
            elif rule.kind == MASK:
                out[t] = weight if rule.low <= weight <= rule.high else 0.0
            else:
                out[t] = 1.0


def corrections(spec: Correction, starts: np.ndarray, old_logp: np.ndarray, sampler_logp: np.ndarray) -> np.ndarray:
    """Importance weights (T,) from the log-probabilities (T,) of the same tokens under the trainer's and the
    sampler's policy."""
    starts = np.asarray(starts, dtype=np.int64)
    check_starts(starts)
    old_logp, sampler_logp = (
        np.ascontiguousarray(old_logp, dtype=np.float64),
        np.ascontiguousarray(sampler_logp, dtype=np.float64),
    )
    shapes = {"old_logp": old_logp, "sampler_logp": sampler_logp}
    for name, column in shapes.items():
        check(
            column.shape == (starts[-1],), f"{name} {column.shape} must have one entry per token {(int(starts[-1]),)}"
        )
    out = np.empty_like(old_logp)
    correction_into(correction_rule(spec), starts, old_logp, sampler_logp, out)
    return out
