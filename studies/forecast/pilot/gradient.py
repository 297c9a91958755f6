"""How noisy gradients are at a policy: what is measured, and the two ratios that rank designs."""

import math
from typing import NamedTuple

LEVEL = 0.95
"""Of the intervals."""
ENOUGH = (256, 8)
"""Questions and responses to each from which r is worth believing."""


class Gradient(NamedTuple):
    """Gradient signal and noise at a policy: a one-way random-effects analysis of variance over contexts, traces
    of covariances.

    The gradient of a group of K rollouts, the mean of A grad log pi over them, varies around G with variance between +
    within / K; that of a batch of B groups with 1/B of it. Estimates are unbiased, so a part that is small beside its
    error may come out below 0. Errors are those of a jackknife.
    """

    contexts: int
    group: int
    """Rollouts of the groups that were compared: each context's responses, in two halves."""
    signal: float
    """|G|^2, the squared norm of the mean gradient."""
    between: float
    """Trace of the covariance of the contexts' mean gradients."""
    within: float
    """Trace of the covariance of a rollout's gradient within its context: `group` times that of a group of this
    size."""
    signal_error: float
    between_error: float
    within_error: float

    def variance(self, rollouts: int) -> float:
        """Trace of the covariance of a group's gradient."""
        return self.between + self.within / rollouts

    def noise_scale(self, rollouts: int) -> float:
        """Contexts of a batch, with so many rollouts each, at which signal and noise are level: tr(Sigma) / |G|^2,
        B_simple of 1812.06162.

        inf where the signal is lost in its own error.
        """
        return self.variance(rollouts) / self.signal if self.signal > 0 else math.inf

    def norm(self, contexts: int, rollouts: int) -> float:
        """Root mean square norm of the gradient of a batch: what `Curve.grad_norm` is made of."""
        return math.sqrt(max(0.0, self.signal + self.variance(rollouts) / contexts))


class RatioEstimate(NamedTuple):
    """A ratio with its standard error and an interval of LEVEL."""

    value: float
    error: float
    low: float
    high: float


class GradientRatios(NamedTuple):
    """r and phi of a policy."""

    between: RatioEstimate
    """r: noise between questions over that of one response within its question."""
    gain: RatioEstimate
    """phi: noise of a response with a centred reward over that with a raw one, the price of the baseline taken out."""
    questions: int
    responses: int
    """To each question."""

    @property
    def few(self) -> bool:
        """Whether there were fewer questions or responses than ENOUGH."""
        return self.questions < ENOUGH[0] or self.responses < ENOUGH[1]
