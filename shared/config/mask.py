"""Configurations of masks, which leave tokens out of an update at the current policy. The share of a masked token is 0;
nothing else changes.

`apply_mask` is called once per update, between `prepare` and `objective_and_weights`. Divergence and Drift depend on a
single token or response, so a micro-batch can be masked by itself; the masks in OF_BATCH compare the tokens of the
whole optimiser batch.
"""

from typing import Any, Literal, get_args

from rftlab.shared.config.checked import config, rule_of_numbers
from rftlab.shared.plumbing.errors import check, check_choice, code_for

Measure = Literal["tv", "kl"]


@config
class Unmasked:
    """Every token takes part."""


@config
class Divergence:
    """Drops tokens whose probability has moved too far in the direction of the advantage (DPPO, 2602.04879)."""

    measure: Measure = "tv"
    """tv: |p - p_old| of the sampled token. kl: divergence of the two-outcome distributions (p_old, 1 - p_old) and
    (p, 1 - p)."""
    low: float = 0.2
    """Threshold where A <= 0 and the probability falls."""
    high: float = 0.2
    """Threshold where A > 0 and the probability rises."""

    def __post_init__(self):
        check_choice("mask.measure", self.measure, get_args(Measure))
        check(self.low >= 0 and self.high >= 0, f"mask.low, high = {self.low!r}, {self.high!r}; allowed: 0 or more")


@config
class Drift:
    """Drops responses with A < 0 whose mean of old_logp - logp is above the threshold (off-policy sequence mask,
    DeepSeek-V3.2, 2512.02556)."""

    threshold: float = 0.1
    """Threshold in nats per token."""

    def __post_init__(self):
        check(self.threshold >= 0, f"mask.threshold = {self.threshold!r}; allowed: 0 or more")


@config
class SecondMoment:
    """Of the tokens that moved in the direction of their advantage, drops those with the largest log-ratio until the
    mean square of what is left is at most the threshold (M2PO, 2510.01161, algorithm 1)."""

    threshold: float = 0.04
    """Threshold in nats squared."""

    def __post_init__(self):
        check(self.threshold >= 0, f"mask.threshold = {self.threshold!r}; allowed: 0 or more")


@config
class TopEntropy:
    """Keeps the tokens whose next-token distribution has at least the entropy of the batch's quantile 1 - fraction:
    where a response could go on otherwise (2506.01939; TRL's `top_entropy_quantile`)."""

    fraction: float = 0.2
    """Share of the batch's tokens that are kept."""

    def __post_init__(self):
        _check_fraction(self.fraction)


@config
class ClipCov:
    """Drops a random few of the tokens whose covariance (A - mean)(logp - mean) lies between the bounds (Clip-Cov,
    2505.22617)."""

    fraction: float = 2e-4
    """Share of the batch's tokens that are dropped, at least one; tokens that are clipped anyway are not drawn."""
    low: float = 1.0
    """Covariance above which a token may be drawn."""
    high: float = 5.0
    """Covariance below which a token may be drawn."""

    def __post_init__(self):
        _check_fraction(self.fraction)
        check(self.low <= self.high, f"mask.low, high = {self.low!r}, {self.high!r}; allowed: low <= high")


@config
class KLCov:
    """Leaves the KL penalty only on the tokens with the largest covariance (A - mean)(logp - mean) (KL-Cov,
    2505.22617); drops none."""

    fraction: float = 2e-4
    """Share of the batch's tokens that have the penalty, at least one."""

    def __post_init__(self):
        _check_fraction(self.fraction)


def _check_fraction(fraction: float) -> None:
    check(0 < fraction <= 1, f"mask.fraction = {fraction!r}; allowed: more than 0, at most 1")


Mask = Unmasked | Divergence | Drift | ClipCov | KLCov | SecondMoment | TopEntropy
OF_BATCH = (ClipCov, KLCov, SecondMoment, TopEntropy)
"""Masks that compare the tokens of an optimiser batch."""
UNMASKED = code_for(Mask, Unmasked)
DIVERGENCE = code_for(Mask, Divergence)
DRIFT = code_for(Mask, Drift)
CLIP_COV = code_for(Mask, ClipCov)
KL_COV = code_for(Mask, KLCov)
SECOND_MOMENT = code_for(Mask, SecondMoment)
TOP_ENTROPY = code_for(Mask, TopEntropy)
TV = code_for(Measure, "tv")
OF_KL = code_for(Measure, "kl")


MaskRule = rule_of_numbers("MaskRule", Mask, "measure")
"""Type of a mask for kernels: its kind, and the fields of all kinds by name, 0 where this kind has no such field."""


def mask_rule(spec: Mask) -> Any:
    """Return the numbers of a mask's configuration that kernels take."""
    codes = {"measure": code_for(Measure, spec.measure)} if isinstance(spec, Divergence) else {}
    numbers = {name: float(value) for name, value in vars(spec).items() if name not in codes}
    return MaskRule(code_for(Mask, type(spec)), **codes, **numbers)
