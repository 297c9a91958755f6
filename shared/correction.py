"""Compute importance corrections for a sampler that differs from the trainer's policy (other kernels, other precision,
stale weights)."""

import math

import numpy as np

from rftlab.shared.aggregation import check_starts
from rftlab.shared.config.correction import (
    GEOMETRIC,
    LOG_LIMIT,
    MASK,
    NONE,
    RATIO,
    SEQUENCE,
    TOKEN,
    TRUNCATE,
    Correction,
    correction_rule,
)
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.jit import inner, jit


@inner
def importance_weight(rule, log_weight):
    """Return the importance weight of a token from the log-weight of its level, which is clipped to +-20."""
    if rule.level != TOKEN and rule.level != SEQUENCE and rule.level != GEOMETRIC:
        raise UserError("correction.level has a name that no kernel computes")
    if rule.kind == NONE or rule.kind == RATIO:
        return 1.0
    weight = math.exp(min(max(log_weight, -LOG_LIMIT), LOG_LIMIT))
    if rule.kind == TRUNCATE:
        return min(weight, rule.high)
    if rule.kind != MASK:
        raise UserError("correction.kind has a name that no kernel computes")
    return weight if rule.low <= weight <= rule.high else 0.0


@jit
def correction_into(rule, starts, old_logp, sampler_logp, out):
    """Fill out (T,) with the importance weights of the tokens."""
    for row in range(starts.shape[0] - 1):
        total = 0.0
        for t in range(starts[row], starts[row + 1]):
            total += old_logp[t] - sampler_logp[t]
        if rule.level == GEOMETRIC:
            total /= max(1, starts[row + 1] - starts[row])
        for t in range(starts[row], starts[row + 1]):
            out[t] = importance_weight(rule, old_logp[t] - sampler_logp[t] if rule.level == TOKEN else total)


def corrections(spec: Correction, starts: np.ndarray, old_logp: np.ndarray, sampler_logp: np.ndarray) -> np.ndarray:
    """Return importance weights (T,) from the log-probabilities (T,) of the same tokens under the trainer's and the
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
