"""Configuration of the KL penalty, which is estimated from the log-probability of one sampled token."""

import math
from typing import Literal, NamedTuple, get_args

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_choice, check_finite, code_for

KLKind = Literal["none", "k1", "k2", "k3", "abs"]
KLPlace = Literal["loss", "reward"]
KLAnchor = Literal["base", "old"]
NONE = code_for(KLKind, "none")
K1 = code_for(KLKind, "k1")
K2 = code_for(KLKind, "k2")
K3 = code_for(KLKind, "k3")
ABS = code_for(KLKind, "abs")
LOG_RATIO_LIMIT, K3_LIMIT = 20.0, 10.0


@config
class KL:
    """Penalty that keeps the policy near the base policy, estimated from the sampled tokens
    (joschu.net/blog/kl-approx.html)."""

    kind: KLKind = "none"
    """With d = logp - ref_logp. k1: d. k2: d^2/2. k3: exp(-d) + d - 1. abs: |d|."""
    coef: float = 0.001
    """Weight of the penalty for leaving the reference policy."""
    place: KLPlace = "loss"
    """loss: subtracted from the objective per token. reward: the sampled value is subtracted from the reward."""
    anchor: KLAnchor = "base"
    """The policy that the penalty compares with: the base policy, or the old policy that started the round."""
    straight_through: bool = False
    """Take the value of `kind` and the gradient of k2, that of the reverse KL."""
    weighted: bool = False
    """Multiply the penalty by the ratio, through which it is differentiated too: unbiased off policy (2512.02556; TRL's
    `use_bias_correction_kl`)."""
    bounded: bool = True
    """Hold k3 at 10 or less, and its -d within +-20."""

    def __post_init__(self):
        check_choice("kl.kind", self.kind, get_args(KLKind))
        check_choice("kl.place", self.place, get_args(KLPlace))
        check_choice("kl.anchor", self.anchor, get_args(KLAnchor))
        check_finite("kl.coef", self.coef, 0)
        lost = self.place == "reward" and (self.straight_through or self.weighted or self.anchor == "old")
        check(
            not lost,
            "kl.place = 'reward' takes the value at sampling: straight_through, weighted and anchor old have "
            "no meaning there; allowed: their defaults",
        )

    @property
    def against_base(self) -> bool:
        """Whether there is a penalty that needs log-probabilities under the base policy."""
        return self.kind != "none" and self.anchor == "base"


class KLRule(NamedTuple):
    """The numbers of a `KL` that kernels take."""

    kind: int
    straight_through: bool
    weighted: bool
    from_old: bool
    limit: float
    value_limit: float
    in_loss: float
    in_reward: float


def kl_rule(spec: KL) -> KLRule:
    """Return the numbers of a KL penalty's configuration that kernels take."""
    check_choice("kl.place", spec.place, ("loss", "reward"))
    check_choice("kl.anchor", spec.anchor, ("base", "old"))
    limits = (LOG_RATIO_LIMIT, K3_LIMIT) if spec.bounded else (math.inf, math.inf)
    in_loss, in_reward = (float(spec.coef) if spec.place == place else 0.0 for place in ("loss", "reward"))
    return KLRule(
        code_for(KLKind, spec.kind),
        spec.straight_through,
        spec.weighted,
        spec.anchor == "old",
        *limits,
        in_loss,
        in_reward,
    )
