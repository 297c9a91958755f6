"""Configuration of the importance correction, for a sampler that differs from the trainer's policy (other kernels,
other precision, stale weights)."""

from typing import Literal, NamedTuple, get_args

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_choice, check_finite, code_for

CorrectionKind = Literal["none", "truncate", "mask", "ratio"]
CorrectionLevel = Literal["token", "sequence", "geometric"]
NONE = code_for(CorrectionKind, "none")
TRUNCATE = code_for(CorrectionKind, "truncate")
MASK = code_for(CorrectionKind, "mask")
RATIO = code_for(CorrectionKind, "ratio")
TOKEN = code_for(CorrectionLevel, "token")
SEQUENCE = code_for(CorrectionLevel, "sequence")
GEOMETRIC = code_for(CorrectionLevel, "geometric")
LOG_LIMIT = 20.0


@config
class Correction:
    """Weights w = pi_old / pi_sampler on the surrogate, where pi_old is the trainer's policy at the start of the
    round."""

    kind: CorrectionKind = "none"
    """Weights w. none: as if the sampler were the trainer. truncate: min(w, high) (truncated importance sampling).
    mask: w within low .. high, else 0. ratio: no weights; the surrogate's ratio is taken to the sampler instead."""
    level: CorrectionLevel = "token"
    """Weight w of the token, of the whole response (product over its tokens), or their geometric mean over it."""
    low: float = 0.5
    """Smallest weight that mask keeps."""
    high: float = 2.0
    """Largest weight that truncate and mask allow."""

    def __post_init__(self):
        check_choice("correction.kind", self.kind, get_args(CorrectionKind))
        check_choice("correction.level", self.level, get_args(CorrectionLevel))
        check_finite("correction.low", self.low, 0)
        check(self.low <= self.high, f"correction.low, high = {self.low!r}, {self.high!r}; allowed: 0 <= low <= high")


class CorrectionRule(NamedTuple):
    """The numbers of a `Correction` that kernels take."""

    kind: int
    level: int
    low: float
    high: float


def correction_rule(spec: Correction) -> CorrectionRule:
    """Return the numbers of a correction's configuration that kernels take."""
    return CorrectionRule(
        code_for(CorrectionKind, spec.kind),
        code_for(CorrectionLevel, spec.level),
        float(spec.low),
        float(spec.high),
    )
