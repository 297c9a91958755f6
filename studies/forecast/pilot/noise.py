"""Estimate the signal and noise of gradients at a policy from products of gradients, and the noise ratios r and phi of
the law of the effective batch (shared/effective_batch.py).

Signal and noise come from a balanced one-way random-effects analysis of variance, for vectors. There are G contexts and
two groups of n rollouts each. The gradient of a group is g_ih = G + b_i + e_ih, and g_i is the mean of a context's two.
The context's own part b has covariance B, and the rollouts' part e has covariance W_n given the context:

    E |g_i1 - g_i2|^2 / 2                  = tr W_n
    E sum_i |g_i - mean g|^2 / (G - 1)     = tr B + tr W_n / 2
    E |mean g|^2                           = |G|^2 + (tr B + tr W_n / 2) / G

Each left side is read off the products, which gives unbiased estimates of all three. Raw rewards have W_n = W_1 / n
exactly. Centred ones have it up to a part that falls like 1 / n^2. Contexts count as drawn from a large set. Errors are
those of the jackknife that leaves out a block of contexts at a time. They are not too small on average (Efron and Stein
1981), and 1.4 times too large for a signal that is lost in noise, which is a mean of products of pairs.

r is a ratio of two noisy numbers, and raw and centred rewards are of the same responses, so errors are not propagated.
The whole estimate is made again without each question, and its spread is the error. With g_i1, g_i2 as above:

    tr B   = mean_i g_i1 . g_i2 - U        U = mean over pairs i != j of g_i . g_j, the signal
    tr W   = n/2 mean_i |g_i1 - g_i2|^2

which are the same estimates written as means over questions. Products of single questions with all others are not kept,
only with blocks of questions: a question's part in U is taken to be its block's mean. That leaves out a spread of U
that is small beside that of the products where the signal is below the noise of one question.
"""

import math
from typing import NamedTuple

import numpy as np

from rftlab.llm.probe_config import GradientProducts
from rftlab.shared.plumbing.errors import check
from rftlab.studies.data.results.stats import t_errors

LEVEL = 0.95
"""Level of the intervals of r and phi."""
ENOUGH = (256, 8)
"""Fewest questions, and fewest responses to each, from which r is worth believing."""


class Gradient(NamedTuple):
    """Gradient signal and noise at a policy, as traces of covariances.

    The gradient of a group of K rollouts, the mean of A grad log pi over them, varies around G with variance between +
    within / K; that of a batch of B groups with 1/B of it. Estimates are unbiased, so a part that is small beside its
    error may come out below 0.
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
        """Return the trace of the covariance of the gradient of a group of `rollouts` rollouts."""
        return self.between + self.within / rollouts

    def noise_scale(self, rollouts: int) -> float:
        """Return the number of contexts in a batch, with so many rollouts each, at which signal and noise are level:
        tr(Sigma) / |G|^2, B_simple of 1812.06162.

        inf where the signal is lost in its own error.
        """
        return self.variance(rollouts) / self.signal if self.signal > 0 else math.inf


class RatioEstimate(NamedTuple):
    """Ratio with its standard error and an interval of LEVEL."""

    value: float
    error: float
    low: float
    high: float


class GradientRatios(NamedTuple):
    """Noise ratios r and phi of a policy."""

    between: RatioEstimate
    """r: noise between questions over that of one response within its question."""
    gain: RatioEstimate
    """phi: noise of a response with a centred reward over that with a raw one, the price of the baseline taken out."""
    questions: int
    responses: int
    """Number of responses to each question."""

    @property
    def few(self) -> bool:
        """Whether there were fewer questions or responses than ENOUGH."""
        return self.questions < ENOUGH[0] or self.responses < ENOUGH[1]


def jackknife_error(left: np.ndarray) -> np.ndarray:
    """Return the standard error of an estimate from its values (n, ...) without each of n parts."""
    return np.sqrt((len(left) - 1) / len(left) * ((left - left.mean(axis=0)) ** 2).sum(axis=0))


def analyse(products: GradientProducts) -> Gradient:
    """Return signal, noise between contexts and noise within them, with errors."""
    blocks = np.unique(products.block)
    errors = jackknife_error(np.array([estimate_parts(products, blocks[blocks != out]) for out in blocks]))
    return Gradient(len(products.squares), products.group, *estimate_parts(products, blocks), *map(float, errors))


def estimate_parts(products: GradientProducts, blocks: np.ndarray) -> tuple[float, float, float]:
    """Return signal, noise between contexts and noise of one rollout within its own, from contexts of some blocks."""
    mine_G = np.isin(products.block, blocks)
    contexts = int(mine_G.sum())
    of_mean = products.gram[np.ix_(blocks, blocks)].sum() / contexts**2
    sampling = products.differences[mine_G].mean() / 2
    spread = (products.squares[mine_G].sum() - contexts * of_mean) / (contexts - 1)
    return float(of_mean - spread / contexts), float(spread - sampling / 2), float(products.group * sampling)


def measure_ratios(raw: GradientProducts, centred: GradientProducts) -> GradientRatios | None:
    """Return r and phi from the same responses with raw and with centred rewards; None where groups have one response
    or there is no noise within a question.

    In theory both have the same noise between questions, so their mean by inverse variances is taken. The weights are
    held fixed when a question is left out.
    """
    G, n = len(raw.squares), raw.group
    check(len(centred.squares) == G and centred.group == n, "raw and centred gradients of other questions or groups")
    weights = inverse_weights(analyse(raw).between_error, analyse(centred).between_error)
    (between_raw, within_raw), (between_centred, within_centred) = (_left_out(products) for products in (raw, centred))
    if n < 2 or within_raw.min() <= 0 or within_centred[-1] <= 0:
        return None
    r = (weights[0] * between_raw + weights[1] * between_centred) / within_raw
    phi = within_centred / within_raw * (n - 1) / n
    return GradientRatios(_estimate(r), _estimate(phi), G, 2 * n)


def inverse_weights(*errors: float) -> list[float]:
    """Return weights of estimates by inverse variances, which sum to 1; those without an error share all of it."""
    exact = [error <= 0 for error in errors]
    weights = [float(one) for one in exact] if any(exact) else [1 / error**2 for error in errors]
    return [weight / sum(weights) for weight in weights]


def _left_out(products: GradientProducts) -> tuple[np.ndarray, np.ndarray]:
    """Return tr B and tr W (G + 1,): without each question, and last with all of them."""
    G, block = len(products.squares), products.block
    own = np.bincount(block, weights=products.squares, minlength=len(products.gram))
    sizes = np.maximum(1, np.bincount(block, minlength=len(products.gram)))
    with_others = ((products.gram.sum(axis=1) - own) / (G - 1) / sizes)[block]
    signal = float(with_others.mean())
    product = products.squares - products.differences / 4
    between = _means(product) - np.append((G * signal - 2 * with_others) / (G - 2), signal)
    return between, products.group / 2 * _means(products.differences)


def _means(values: np.ndarray) -> np.ndarray:
    """Return means (G + 1,): without each value, and last of all."""
    return np.append((values.sum() - values) / (len(values) - 1), values.mean())


def _estimate(values: np.ndarray) -> RatioEstimate:
    """Return a ratio with its interval, from its values without each question, and last with all of them."""
    value, error = float(values[-1]), float(jackknife_error(values[:-1]))
    wide = float(t_errors(len(values) - 2, LEVEL)) * error
    return RatioEstimate(value, error, value - wide, value + wide)
