"""Configuration of penalties that are subtracted from a response's reward before advantages are computed: a KL penalty
and a penalty on length."""

from typing import NamedTuple

from rftlab.shared.config.checked import config
from rftlab.shared.config.kl import NONE
from rftlab.shared.plumbing.errors import check, check_finite


@config
class Length:
    """Soft penalty on long responses: reward - coef clip((|o| - (limit - buffer)) / buffer, 0, 1)  (DAPO,
    2503.14476, eq. 13)."""

    coef: float = 0.0
    """Largest penalty; 0 turns it off."""
    limit: float = 1024
    """Length (tokens) from which the penalty is whole."""
    buffer: float = 256
    """Tokens before the limit over which the penalty grows from 0."""

    def __post_init__(self):
        check_finite("length.coef", self.coef, 0)
        check_finite("length.limit", self.limit, above=0)
        check(
            0 < self.buffer <= self.limit,
            f"length.buffer = {self.buffer!r}; allowed: more than 0, at most length.limit = {self.limit!r}",
        )


class ShapingRule(NamedTuple):
    """The numbers of `Length` that kernels take, and whether any penalty is subtracted from rewards."""

    active: bool
    coef: float
    limit: float
    buffer: float


def shaping_rule(length: Length, kl) -> ShapingRule:
    """Return the numbers of the length penalty that kernels take; `kl` is the estimator's `KLRule`."""
    active = length.coef > 0 or (kl.kind != NONE and kl.in_reward > 0)
    return ShapingRule(active, float(length.coef), float(length.limit), float(length.buffer))
