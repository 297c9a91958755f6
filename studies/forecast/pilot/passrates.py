"""Estimate the distribution of pass rates over questions, without sampling noise, from counts c_i ~ Binomial(m, p_i).

The histogram of c / m is too wide, by E[p (1 - p)] / m in variance. Two fits undo that:

    beta-binomial    p ~ Beta(a, b), perhaps with a point mass at 0 for questions out of reach. Maximum likelihood.
    nonparametric    the mixing distribution of largest likelihood (Laird 1978), on a grid, by EM from a flat start.

m responses determine no more than m moments of p, and the largest likelihood is that of a few spikes. EM ends a little
below it, where the counts favor neither and the distribution is still smooth: mean and variance are the same, and bins
are nearer to the truth.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln, xlog1py, xlogy
from scipy.stats import beta, chi2

from rftlab.shared.plumbing.errors import check

GRID = np.linspace(0.0, 1.0, 201)
"""Rates of the nonparametric fit."""
EDGES = np.array([0.0, 0.03, *np.arange(1, 10) / 10, 1.0])
"""The edges of the bins of a histogram; the first is nearly 0, where a question gives hardly any signal."""
STEPS, GAP = 20_000, 1.0
"""Most steps of EM, and distance of its log-likelihood from the largest one at which it ends (Lindsay 1983)."""
SUPPORTED = 2.706
"""Least gain in twice the log-likelihood for which a point mass is kept: chi-square with one degree, half of it at 0,
at 5% (Self and Liang 1987)."""
MIN = 5.0
"""Least number of expected questions in a cell of a test of fit; neighbours are joined until they have so many."""


class BetaBinomial(NamedTuple):
    """Distribution of pass rates p ~ zero delta_0 + (1 - zero) Beta(a, b)."""

    a: float
    b: float
    zero: float = 0.0
    log_likelihood: float = 0.0
    """Log-likelihood of the counts; 0 where it was fitted to none."""

    @property
    def mean(self) -> float:
        """Expected Pass@1."""
        return (1 - self.zero) * self.a / (self.a + self.b)

    @property
    def variance(self) -> float:
        """Variance of pass rates."""
        inner = self.a / (self.a + self.b)
        square = inner * (self.a + 1) / (self.a + self.b + 1)
        return (1 - self.zero) * square - self.mean**2


class Mixture(NamedTuple):
    """Distribution of pass rates on a grid."""

    rates: np.ndarray
    weights: np.ndarray
    log_likelihood: float = 0.0
    """Log-likelihood of the counts; 0 where it was fitted to none."""

    @property
    def mean(self) -> float:
        """Expected Pass@1."""
        return float(self.weights @ self.rates)

    @property
    def variance(self) -> float:
        """Variance of pass rates."""
        return float(self.weights @ (self.rates - self.mean) ** 2)


class Fit(NamedTuple):
    """Test of the fit of a distribution to counts: Pearson's chi-square over joined cells."""

    statistic: float
    degrees: int
    p_value: float
    """Probability of a larger statistic; nan where no degree of freedom is left."""


def rate_variances(counts: np.ndarray, m: int) -> tuple[float, float]:
    """Return the variance of pass rates over questions, without bias, and that of counts / m, which is E[p (1 - p)] / m
    larger. counts (n,) are of m; n and m are at least 2."""
    check(len(counts) >= 2 and m >= 2, f"{len(counts)} questions with {m} responses; allowed: 2 or more of each")
    rates = counts / m
    naive = float(rates.var(ddof=1))
    return naive - float((rates * (1 - rates)).mean() / (m - 1)), naive


def beta_binomial(counts: np.ndarray, m: int) -> BetaBinomial:
    """Fit a beta-binomial by maximum likelihood, with a point mass at 0 where the counts support one."""
    plain = _fitted(counts, m, with_zero=False)
    inflated = _fitted(counts, m, with_zero=True)
    return inflated if 2 * (inflated.log_likelihood - plain.log_likelihood) > SUPPORTED else plain


def _fitted(counts: np.ndarray, m: int, with_zero: bool) -> BetaBinomial:
    """Fit from several starts, because the likelihood of a mixture may have several maxima."""
    seen = np.bincount(counts, minlength=m + 1)

    def unpacked(x: np.ndarray) -> tuple[float, float, float]:
        mean, size = expit(x[0]), np.exp(x[1])
        return mean * size, (1 - mean) * size, expit(x[2]) if with_zero else 0.0

    def loss(x: np.ndarray) -> float:
        return -_log_likelihood(seen, zero_inflated(m, *unpacked(x)))

    bounds = [(-12.0, 12.0), (-5.0, 10.0), (-12.0, 12.0)][: 3 if with_zero else 2]
    centre = np.clip((counts.mean() / m - 0.5) * 8, -6, 6)
    starts = [
        (centre, size, zero)[: len(bounds)] for size in (0.0, 2.5) for zero in ((-3.0, 0.0) if with_zero else (0.0,))
    ]
    best = min((minimize(loss, start, method="L-BFGS-B", bounds=bounds) for start in starts), key=lambda fit: fit.fun)
    return BetaBinomial(*unpacked(best.x), -float(best.fun))


def zero_inflated(m: int, a: float, b: float, zero: float) -> np.ndarray:
    """Return the probabilities (m+1,) of the counts under zero delta_0 + (1 - zero) Beta(a, b)."""
    c = np.arange(m + 1)
    inner = np.exp(gammaln(m + 1) - gammaln(c + 1) - gammaln(m - c + 1) + betaln(c + a, m - c + b) - betaln(a, b))
    return (1 - zero) * inner + zero * (c == 0)


def _log_likelihood(seen: np.ndarray, probability: np.ndarray) -> float:
    return float(xlogy(seen, np.maximum(probability, 1e-300)).sum())


def binomials(m: int, rates: np.ndarray) -> np.ndarray:
    """Return the probabilities (m+1, k) of each count under each rate (k,)."""
    c = np.arange(m + 1)[:, None]
    return np.exp(gammaln(m + 1) - gammaln(c + 1) - gammaln(m - c + 1) + xlogy(c, rates) + xlog1py(m - c, -rates))


def nonparametric(counts: np.ndarray, m: int) -> Mixture:
    """Fit the mixing distribution of largest likelihood on a grid of rates, by EM."""
    there, seen = np.unique(counts, return_counts=True)
    table, n = binomials(m, GRID)[there], int(seen.sum())
    share, weights = seen / n, np.full(len(GRID), 1 / len(GRID))
    for _ in range(STEPS):
        gain = table.T @ (share / (table @ weights))
        if n * (gain.max() - 1) < GAP:
            break
        weights = weights * gain
    return Mixture(GRID, weights, _log_likelihood(seen, table @ weights))


def histogram(fit: BetaBinomial | Mixture) -> np.ndarray:
    """Return the shares of the questions whose true pass rate lies in each bin [a, b), the last one closed."""
    if isinstance(fit, BetaBinomial):
        shares = (1 - fit.zero) * np.diff(beta.cdf(EDGES, fit.a, fit.b))
        shares[0] += fit.zero
        return shares
    return np.histogram(fit.rates, EDGES, weights=fit.weights)[0]


def naive_histogram(counts: np.ndarray, m: int) -> np.ndarray:
    """Return the shares of the questions whose rate among m responses lies in each bin, sampling noise included."""
    return np.histogram(counts / m, EDGES)[0] / len(counts)


def goodness(fit: BetaBinomial, counts: np.ndarray, m: int) -> Fit:
    """Return Pearson's test of a fit."""
    probability = zero_inflated(m, fit.a, fit.b, fit.zero)
    seen, expected = _joined(np.bincount(counts, minlength=m + 1), len(counts) * probability)
    statistic = float(((seen - expected) ** 2 / expected).sum())
    degrees = max(0, len(seen) - 1 - 2 - (fit.zero > 0))
    return Fit(statistic, degrees, float(chi2.sf(statistic, degrees)) if degrees else float("nan"))


def _joined(seen: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join neighbouring cells from 0 on until each is expected to hold MIN; the rest goes to the last one."""
    label, held = np.zeros(len(seen), dtype=np.int64), 0.0
    for i in range(1, len(seen)):
        held += expected[i - 1]
        label[i] = label[i - 1] + (held >= MIN)
        held = 0.0 if held >= MIN else held
    if expected[label == label[-1]].sum() < MIN:
        label[label == label[-1]] = max(0, label[-1] - 1)
    return np.bincount(label, weights=seen), np.bincount(label, weights=expected)
