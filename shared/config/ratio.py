"""Configuration of the ratio that a surrogate reads: that of a token, or of a whole response."""

from typing import Literal, NamedTuple, get_args

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_choice, code_for

RatioLevel = Literal["token", "sequence", "sequence_token", "product"]
TOKEN = code_for(RatioLevel, "token")
SEQUENCE = code_for(RatioLevel, "sequence")
SEQUENCE_TOKEN = code_for(RatioLevel, "sequence_token")
PRODUCT = code_for(RatioLevel, "product")
TOKEN_LIMIT = 20.0


@config
class Ratio:
    """Which log-ratio x stands in a surrogate; x_t = logp_t - old_logp_t."""

    level: RatioLevel = "token"
    """Level of the log-ratio x. token: x_t. sequence: mean of x over the response (GSPO, 2507.18071). sequence_token:
    the same value, the derivative through the own token alone (GSPO-token). product: sum of x over the response, each
    x_t held within +-20."""
    floor: float = -20.0
    """The log-ratio is held at this value or more; beyond it the derivative is 0."""
    cap: float = 20.0
    """The log-ratio is held at this value or less."""

    def __post_init__(self):
        check_choice("ratio.level", self.level, get_args(RatioLevel))
        check(
            self.floor < 0 < self.cap,
            f"ratio.floor, cap = {self.floor!r}, {self.cap!r}; allowed: less than 0, more than 0",
        )


class RatioRule(NamedTuple):
    """The numbers of a `Ratio` that kernels take."""

    level: int
    floor: float
    cap: float


def ratio_rule(spec: Ratio) -> RatioRule:
    """Return the numbers of a ratio's configuration that kernels take."""
    return RatioRule(code_for(RatioLevel, spec.level), float(spec.floor), float(spec.cap))
