"""An estimator: a value for each of the independent choices of how rewards become weights on tokens."""

from dataclasses import field
from typing import Any, NamedTuple

from rftlab.shared.config.advantage import Advantage, AdvantageRule, advantage_rule
from rftlab.shared.config.aggregation import Aggregation, AggregationRule, aggregation_rule
from rftlab.shared.config.checked import config
from rftlab.shared.config.correction import Correction, CorrectionRule, correction_rule
from rftlab.shared.config.kl import KL, KLRule, kl_rule
from rftlab.shared.config.mask import ClipCov, KLCov, Mask, Unmasked, mask_rule
from rftlab.shared.config.ratio import Ratio, RatioRule, ratio_rule
from rftlab.shared.config.shaping import Length, ShapingRule, shaping_rule
from rftlab.shared.config.surrogate import (
    Cispo,
    Clip,
    CustomSurrogate,
    GeometricMean,
    Sapo,
    Surrogate,
    Topr,
    Vespo,
    surrogate_rule,
)
from rftlab.shared.plumbing.errors import check, check_finite
from rftlab.shared.plumbing.notebook import changed_table


@config
class Estimator:
    """One estimator: a value for each of the independent choices."""

    advantage: Advantage = field(default_factory=lambda: Advantage("group_mean", "group_std"))
    """The map from rewards to advantages."""
    surrogate: Surrogate = field(default_factory=Clip)
    """The objective of a token."""
    kl: KL = field(default_factory=KL)
    """Penalty that keeps the policy near the base policy."""
    aggregation: Aggregation = field(default_factory=Aggregation)
    """The map from tokens to a batch."""
    ratio: Ratio = field(default_factory=Ratio)
    """The ratio that the surrogate looks at."""
    mask: Mask = field(default_factory=Unmasked)
    """Tokens that take no part in an update."""
    correction: Correction = field(default_factory=Correction)
    """Importance weights where the sampler is not the trainer."""
    length: Length = field(default_factory=Length)
    """Penalty on long responses."""
    entropy: float = 0.0
    """Coefficient of the entropy bonus: J grows by entropy x the mean entropy of the next-token distribution, with
    the aggregation's shares."""
    entropy_target: float = 0.0
    """Mean entropy of a token, in nats, up to which the bonus acts. Its coefficient begins at `entropy` and grows by
    `entropy_step` after an update at or below the target, and falls by as much after one above it, between 0 and 1. 0:
    no target, and the coefficient stays."""
    entropy_step: float = 0.005
    """Amount by which an update moves the coefficient of a bonus with a target."""

    def __post_init__(self):
        kind = type(self.surrogate).__name__
        for name in ("entropy", "entropy_target", "entropy_step"):
            check_finite(name, getattr(self, name), 0)
        check(
            self.entropy_target == 0 or self.entropy <= 1,
            f"entropy = {self.entropy} with a target; allowed: 0 to 1, between which it moves",
        )
        levels: dict[type, tuple[str, ...] | None] = dict.fromkeys((Clip, Cispo, Sapo, Topr), None) | {
            Vespo: ("product",)
        }
        level = levels.get(type(self.surrogate), ("token",))
        check(
            level is None or self.ratio.level in level,
            f"ratio.level = {self.ratio.level!r}; allowed with surrogate {kind}: {', '.join(level or ())}",
        )
        if isinstance(self.mask, KLCov):
            check(self.kl.kind != "none" and self.kl.place == "loss", "mask KLCov needs a KL penalty in the loss")
        if isinstance(self.mask, ClipCov):
            by_token = self.ratio.level == "token" and not isinstance(self.surrogate, GeometricMean | CustomSurrogate)
            check(
                by_token,
                "mask ClipCov asks whether a token is clipped; allowed with ratio.level token and a surrogate "
                "other than GeometricMean and your own",
            )
        check(
            not (self.kl.weighted and isinstance(self.surrogate, GeometricMean)),
            "kl.weighted = True; allowed with surrogate GeometricMean: False",
        )
        shaped = self.length.coef > 0 or (self.kl.kind != "none" and self.kl.place == "reward")
        check(
            not (shaped and self.advantage.credit == "pass_at_k"),
            "advantage.credit pass_at_k needs 0/1 rewards; allowed: no KL in the reward, length.coef 0",
        )
        check(
            not (shaped and self.advantage.combine == "advantages"),
            "advantage.combine advantages with a penalty on the reward; allowed: no KL in the reward, length.coef 0",
        )

    @property
    def has_bonus(self) -> bool:
        """Whether an entropy bonus acts, or may act later."""
        return self.entropy > 0 or self.entropy_target > 0

    def _repr_html_(self) -> str:
        return changed_table("Estimator: what differs from the defaults", self)


class Rule(NamedTuple):
    """An `Estimator` as plain numbers, for compiled kernels: closed dispatch on integer codes."""

    advantage: AdvantageRule
    surrogate: Any
    ratio: RatioRule
    mask: Any
    kl: KLRule
    aggregation: AggregationRule
    correction: CorrectionRule
    shaping: ShapingRule
    entropy: float
    entropy_target: float
    entropy_step: float


def as_rule(estimator: Estimator) -> Rule:
    """Return the numbers of an `Estimator` that kernels take."""
    kl = kl_rule(estimator.kl)
    return Rule(
        advantage_rule(estimator.advantage),
        surrogate_rule(estimator.surrogate),
        ratio_rule(estimator.ratio),
        mask_rule(estimator.mask),
        kl,
        aggregation_rule(estimator.aggregation),
        correction_rule(estimator.correction),
        shaping_rule(estimator.length, kl),
        float(estimator.entropy),
        float(estimator.entropy_target),
        float(estimator.entropy_step),
    )
