"""The surrogate objective of one token and its derivative, from one function.

Each surrogate is a frozen dataclass of numbers and a compiled formula j(A, logp, r), where r = exp(x) is the ratio to
the sampling policy. "Through the ratio" means that dj/dx is meant; the others hold the ratio fixed and differentiate
logp alone.
"""

import math
from typing import Any, ClassVar

from rftlab.shared.config.checked import config, rule_of_numbers
from rftlab.shared.custom.registry import configured
from rftlab.shared.plumbing.errors import check, check_finite, code_for


@config
class Reinforce:
    """j = A logp (Williams 1992): no ratio, no clip."""


@config
class Clip:
    """j = min(A r, A clip(r, 1-low, 1+high)), through the ratio (PPO, 1707.06347, eq. 7; clip-higher: DAPO,
    2503.14476)."""

    low: float = 0.2
    """Lower clip range, from 0 (nothing may fall) to 1 (no lower clip)."""
    high: float = 0.2
    """Upper clip range; inf means no upper clip."""
    dual: float = math.inf
    """Dual clip c > 1: for A < 0 the objective is at least c A (1912.09729). inf means off."""

    def __post_init__(self):
        _check_range(self)
        check(self.dual > 1, f"surrogate.dual = {self.dual!r}; allowed: more than 1; inf turns it off")


@config
class Cispo:
    """j = clip(r, 1-low, 1+high) A logp with the ratio held fixed (CISPO, 2506.13585): a clipped token still learns."""

    low: float = 1.0
    """Lower clip range; 1 means none."""
    high: float = 4.0
    """Upper clip range; inf means none."""

    def __post_init__(self):
        _check_range(self)


@config
class Sapo:
    """j = A (4/tau) sigmoid(tau (r-1)), through the ratio: a soft gate instead of a clip (SAPO, 2511.20347)."""

    tau_positive: float = 1.0
    """tau where A > 0."""
    tau_negative: float = 1.05
    """tau where A <= 0."""

    def __post_init__(self):
        for name in ("tau_positive", "tau_negative"):
            check_finite(f"surrogate.{name}", getattr(self, name), above=0)


@config
class Dro:
    """j = A logp - beta/2 (logp - old_logp)^2 (DRO, 2405.19107): a quadratic pull towards the sampling policy."""

    beta: float = 0.1
    """Strength of the pull."""

    def __post_init__(self):
        check_finite("surrogate.beta", self.beta, 0)


@config
class GeometricMean:
    """J of a response = A exp(mean_t clipped x_t), through the ratio; x is clipped to -low .. high on the side that
    A allows (GMPO, 2507.20673)."""

    low: float = 0.4
    """Lower clip range of the log-ratio."""
    high: float = 0.4
    """Upper clip range of the log-ratio."""

    def __post_init__(self):
        check(
            self.low >= 0 and self.high >= 0, f"surrogate.low, high = {self.low!r}, {self.high!r}; allowed: 0 or more"
        )


@config
class Vespo:
    """j = phi(r) A logp, phi = exp(lam) r^k exp(-lam r) with the ratio held fixed; it peaks at r = k/lam (VESPO, as
    in TRL)."""

    k_positive: float = 2.0
    """k where A >= 0."""
    lam_positive: float = 3.0
    """lam where A >= 0."""
    k_negative: float = 3.0
    """k where A < 0."""
    lam_negative: float = 2.0
    """lam where A < 0."""

    def __post_init__(self):
        for name in ("lam_positive", "lam_negative"):
            check_finite(f"surrogate.{name}", getattr(self, name), above=0)
        for name in ("k_positive", "k_negative"):
            check_finite(f"surrogate.{name}", getattr(self, name))


@config
class Topr:
    """j = A logp where A >= 0, else min(r, 1) A logp with the ratio held fixed (TOPR, 2503.14286, eq. 8): what worked
    counts in full however old it is, what failed only as far as the policy still does it."""


@config
class CustomSurrogate:
    """j and its derivative as a custom function finds them from a token's advantage, logp and old_logp."""

    kind: ClassVar[str] = "surrogate"
    name: str = ""
    """Name under which the function was registered."""
    source: str = ""
    """Identity of the function."""


Surrogate = Reinforce | Clip | Cispo | Sapo | Dro | GeometricMean | Vespo | Topr | CustomSurrogate
REINFORCE = code_for(Surrogate, Reinforce)
CLIP = code_for(Surrogate, Clip)
CISPO = code_for(Surrogate, Cispo)
SAPO = code_for(Surrogate, Sapo)
DRO = code_for(Surrogate, Dro)
GEOMETRIC_MEAN = code_for(Surrogate, GeometricMean)
VESPO = code_for(Surrogate, Vespo)
TOPR = code_for(Surrogate, Topr)
CUSTOM = code_for(Surrogate, CustomSurrogate)


def _check_range(spec) -> None:
    check(0 <= spec.low <= 1, f"surrogate.low = {spec.low!r}; allowed: 0 to 1")
    check(spec.high >= 0, f"surrogate.high = {spec.high!r}; allowed: 0 or more")


SurrogateRule = rule_of_numbers("SurrogateRule", Surrogate, "custom")
"""Type of a surrogate for kernels: its kind, the address of a custom function, and the numbers of all kinds by name, 0
where this kind has no such number."""


def surrogate_rule(spec: Surrogate) -> Any:
    """Return the numbers of a surrogate's configuration that kernels take."""
    if isinstance(spec, CustomSurrogate):
        return SurrogateRule(CUSTOM, custom=configured(spec).address)
    return SurrogateRule(code_for(Surrogate, type(spec)), **{name: float(value) for name, value in vars(spec).items()})
