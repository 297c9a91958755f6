"""Importance correction: the sampler was not quite the policy that the trainer holds (other kernels, other precision, stale weights)."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from shared.aggregation import check_starts
from shared.errors import check, check_choice, check_finite, code_of
from shared.jit import jit

CorrectionKind = Literal["none", "truncate", "mask", "ratio"]
CorrectionLevel = Literal["token", "sequence", "geometric"]
NONE, TRUNCATE, MASK, RATIO = range(4)
TOKEN, SEQUENCE, GEOMETRIC = range(3)
LOG_LIMIT = 20.0


@dataclass(frozen=True)
class Correction:
    """Weights w = pi_old / pi_sampler on the surrogate, where pi_old is the trainer's policy at the start of the round."""

    kind: CorrectionKind = "none"
    """none: as if the sampler were the trainer. truncate: min(w, high) (truncated importance sampling). mask: w within low .. high, else 0.
    ratio: no weights; the surrogate's ratio is taken to the sampler instead."""
    level: CorrectionLevel = "token"
    """w of the token, of the whole response (product over its tokens), or their geometric mean over the response."""
    low: float = 0.5
    """Smallest weight that mask keeps."""
    high: float = 2.0
    """Largest weight."""

    def __post_init__(self):
        check_choice("correction.kind", self.kind, get_args(CorrectionKind))
        check_choice("correction.level", self.level, get_args(CorrectionLevel))
        check_finite("correction.low", self.low, 0)
        check(self.low <= self.high, f"correction.low, high = {self.low!r}, {self.high!r}; allowed: 0 <= low <= high")


class CorrectionRule(NamedTuple):
    """A `Correction` for kernels."""

    kind: int
    level: int
    low: float
    high: float


def correction_rule(spec: Correction) -> CorrectionRule:
    """The numbers that kernels take."""
    return CorrectionRule(code_of(CorrectionKind, spec.kind), code_of(CorrectionLevel, spec.level), float(spec.low), float(spec.high))


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
    """Importance weights (T,) from the log-probabilities (T,) of the same tokens under the trainer's and the sampler's policy."""
    starts = np.asarray(starts, dtype=np.int64)
    check_starts(starts)
    old_logp, sampler_logp = np.ascontiguousarray(old_logp, dtype=np.float64), np.ascontiguousarray(sampler_logp, dtype=np.float64)
    shapes = {"old_logp": old_logp, "sampler_logp": sampler_logp}
    for name, column in shapes.items():
        check(column.shape == (starts[-1],), f"{name} {column.shape} must have one entry per token {(int(starts[-1]),)}")
    out = np.empty_like(old_logp)
    correction_into(correction_rule(spec), starts, old_logp, sampler_logp, out)
    return out
