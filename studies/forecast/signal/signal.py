"""How many groups of a round teach anything, from the distribution of pass rates over questions.

A group of K responses to a question of pass rate p has zero variance where all are right or all are wrong: p^K +
(1-p)^K. Its advantages are 0 then. Over questions with p ~ Beta(a, b) that is

    E[p^K + q^K] = (B(a+K, b) + B(a, b+K)) / B(a, b)

From c right of m responses to a question, C(c, K)/C(m, K) + C(m-c, K)/C(m, K) has that expectation for K <= m,
whatever the distribution (a U-statistic, as in pass@k): no fit is needed there
(studies/forecast/pilot/headroom.py).
"""

from math import inf

import numpy as np
from scipy.stats import binom, nbinom

from rftlab.shared.plumbing.errors import check
from rftlab.studies.forecast.pilot.passrates import BetaBinomial, Mixture, binomials, zero_inflated

Rates = BetaBinomial | Mixture
"""A distribution of pass rates over questions."""
LIKELY = 0.95
"""Chance with which dynamic sampling is to find all its groups."""
HOPELESS = 1e-6
"""Share of groups with signal below which no number of tries is worth printing."""

ALIKE = 1e-7
"""Part of the largest spread below which questions count as all alike."""


def match_beta(mean: float, spread: float) -> Rates:
    """The Beta distribution of that mean and standard deviation; all questions alike where the spread is 0.

    Raises UserError where there is none: the spread must be below sqrt(mean (1 - mean)).
    """
    check(0 < mean < 1, f"p = {mean:g}; allowed: more than 0, less than 1")
    most = (mean * (1 - mean)) ** 0.5
    check(0 <= spread < most, f"spread = {spread:g}; allowed: 0 to below sqrt(p (1 - p)) = {most:.3g}")
    if spread <= ALIKE * most:
        return exactly(np.array([mean]))
    size = (most / spread) ** 2 - 1
    return BetaBinomial(mean * size, (1 - mean) * size, 0.0, 0.0)


def exactly(rates: np.ndarray) -> Mixture:
    """The distribution of pass rates (n,) that are known, each as likely as the others."""
    return Mixture(rates, np.full(len(rates), 1 / len(rates)), 0.0, 0.0)


def zero_variance_share(rates: Rates, rollouts: int) -> float:
    """E[p^K + q^K]: the expected share of groups of K responses that are all right or all wrong."""
    k = rollouts
    if isinstance(rates, Mixture):
        return float(rates.weights @ (rates.rates**k + (1 - rates.rates) ** k))
    inner = _rising(rates.a, rates.a + rates.b, k) + _rising(rates.b, rates.a + rates.b, k)
    return float(rates.zero + (1 - rates.zero) * min(1.0, inner))


def _rising(part: float, whole: float, k: int) -> float:
    """B(a + k, b) / B(a, b) as the product of (a + j) / (a + b + j): differences of logarithms of B would lose all
    digits where a is large."""
    j = np.arange(k)
    return float(np.exp(np.log((part + j) / (whole + j)).sum()))


def expected_tries(batch_size: int, silent: float) -> tuple[float, float]:
    """Batches of B prompts, drawn independently, until B groups have signal: their expected number, and the number
    that suffices with chance LIKELY. inf where hardly any group has signal.

    The groups drawn before the B-th with signal are negative binomial; a batch more is drawn while they are not
    all there: E = sum_t P(Binomial(t B, 1 - silent) < B).
    """
    signal = 1 - silent
    if signal < HOPELESS:
        return inf, inf
    if silent <= 0:
        return 1.0, 1.0
    last = int(nbinom.isf(1e-12, batch_size, signal)) // batch_size + 2
    batches = np.arange(1, last + 1)
    missing = binom.cdf(batch_size - 1, batches * batch_size, signal)
    return float(1 + missing.sum()), float(batches[np.argmax(missing <= 1 - LIKELY)])


def posterior(rates: Rates, m: int, right: int) -> Rates:
    """The distribution of the pass rate of a question after `right` of m (Bayes). Its log-likelihood is that of
    this count."""
    if isinstance(rates, Mixture):
        weights = rates.weights * binomials(m, rates.rates)[right]
        chance = float(weights.sum())
        return Mixture(rates.rates, weights / chance, float(np.log(chance)), 0.0)
    chance = zero_inflated(m, rates.a, rates.b, rates.zero)[right]
    at_zero = rates.zero / chance if right == 0 else 0.0
    return BetaBinomial(rates.a + right, rates.b + m - right, float(at_zero), float(np.log(chance)))
