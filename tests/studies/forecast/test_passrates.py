"""Pass rates from counts: planted distributions come back, and sampling noise is undone."""

import numpy as np
import pytest
from scipy import stats

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.forecast.pilot import passrates
from rftlab.studies.forecast.pilot.passrates import (
    EDGES,
    beta_binomial,
    goodness,
    histogram,
    nonparametric,
    rate_variances,
)
from rftlab.studies.forecast.pilot.passrates import zero_inflated as counts_of

M = 16
PLANTED = {
    "low": lambda rng, n: rng.beta(0.6, 5.0, n),
    "wide": lambda rng, n: rng.beta(0.4, 0.4, n),
    "two kinds": lambda rng, n: np.where(rng.random(n) < 0.7, 0.05, 0.6),
}


def drawn(name, seed, n, m=M):
    rng = np.random.default_rng(seed)
    rates = PLANTED[name](rng, n)
    return rates, rng.binomial(m, rates)


def test_probabilities_of_counts_are_those_of_scipy():
    c = np.arange(M + 1)
    np.testing.assert_allclose(counts_of(M, 0.7, 3.1, 0.0), stats.betabinom.pmf(c, M, 0.7, 3.1), rtol=1e-10)
    inflated = 0.8 * stats.betabinom.pmf(c, M, 0.7, 3.1) + 0.2 * (c == 0)
    np.testing.assert_allclose(counts_of(M, 0.7, 3.1, 0.2), inflated, rtol=1e-10)
    rates = np.array([0.0, 0.3, 1.0])
    np.testing.assert_allclose(passrates.binomials(M, rates), stats.binom.pmf(c[:, None], M, rates), atol=1e-12)


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("m", [4, 16])
def test_the_variance_is_unbiased_and_that_of_counts_is_not(name, m):
    result = [(rate_variances(counts, m), rates) for rates, counts in (drawn(name, seed, 60, m) for seed in range(800))]
    errors = np.array([told for told, _ in result]) - [[rates.var(ddof=1)] for _, rates in result]
    z = errors.mean(axis=0) / errors.std(axis=0) * np.sqrt(len(errors))
    assert abs(z[0]) < 4 and z[1] > 10
    left = errors[:, 1] - [(rates * (1 - rates)).mean() / m for _, rates in result]
    assert abs(left.mean()) / left.std() * np.sqrt(len(left)) < 4


@pytest.mark.parametrize(("a", "b"), [(0.6, 5.0), (2.0, 2.0), (0.1, 0.3)])
def test_a_planted_beta_comes_back(a, b):
    rng = np.random.default_rng(1)
    counts = rng.binomial(M, rng.beta(a, b, 20_000))
    fit = beta_binomial(counts, M)
    assert fit.zero == 0 and fit.a == pytest.approx(a, rel=0.06) and fit.b == pytest.approx(b, rel=0.06)
    assert fit.mean == pytest.approx(a / (a + b), abs=0.005)
    assert fit.variance == pytest.approx(stats.beta.var(a, b), rel=0.03)
    assert goodness(fit, counts, M).p_value > 0.001


def test_a_planted_mass_at_zero_comes_back_and_where_there_is_none_hardly_any():
    rng = np.random.default_rng(2)
    rates = rng.beta(3, 4, 3000)
    rates[:900] = 0
    fit = beta_binomial(rng.binomial(M, rates), M)
    assert fit.zero == pytest.approx(0.3, abs=0.03) and fit.mean == pytest.approx(rates.mean(), abs=0.01)
    assert fit.variance == pytest.approx(rates.var(), rel=0.05)
    plain = [beta_binomial(rng.binomial(M, rng.beta(3, 4, 300)), M).zero for _ in range(15)]
    assert np.mean(np.array(plain) > 0) < 0.2


@pytest.mark.parametrize("name", PLANTED)
def test_the_fit_without_a_form_has_the_planted_mean_and_variance(name):
    rates, counts = drawn(name, 3, 4000)
    fit, (_, naive) = nonparametric(counts, M), rate_variances(counts, M)
    assert fit.weights.sum() == pytest.approx(1) and fit.weights.min() >= 0
    assert fit.mean == pytest.approx(rates.mean(), abs=0.01) and fit.mean == pytest.approx(counts.mean() / M, abs=0.002)
    assert fit.variance == pytest.approx(rates.var(), rel=0.05) and naive > 1.02 * rates.var()


def test_no_distribution_is_more_than_the_gap_better():
    rates, counts = drawn("two kinds", 4, 500)
    fit, seen = nonparametric(counts, M), np.bincount(counts, minlength=M + 1)
    rng = np.random.default_rng(0)
    table = passrates.binomials(M, fit.rates)

    def likelihood(weights):
        return float((seen[seen > 0] * np.log((table @ weights)[seen > 0])).sum())

    assert fit.log_likelihood == pytest.approx(likelihood(fit.weights))
    truth = np.histogram(rates, np.append(fit.rates - 0.0025, 1.0025))[0] / len(rates)
    others = [truth, *rng.dirichlet(np.full(len(fit.rates), 0.1), 50)]
    others += [0.5 * fit.weights + 0.5 * other for other in others]
    assert max(map(likelihood, others)) <= fit.log_likelihood + passrates.GAP
    assert fit.log_likelihood + passrates.GAP >= beta_binomial(counts, M).log_likelihood


def test_histograms():
    rates, counts = drawn("two kinds", 5, 5000)
    fit = nonparametric(counts, M)
    truth = np.histogram(rates, EDGES)[0] / len(rates)
    naive, undone = passrates.naive_histogram(counts, M), histogram(fit)
    inflated = histogram(passrates.BetaBinomial(2.0, 3.0, 0.4, 0.0))
    for shares in (naive, undone, inflated, histogram(beta_binomial(counts, M))):
        assert shares.sum() == pytest.approx(1) and shares.min() >= 0
    assert np.abs(undone - truth).sum() < 0.5 * np.abs(naive - truth).sum()
    below = stats.beta.cdf(EDGES, 2, 3)
    assert inflated[[0, 5]].tolist() == pytest.approx([0.4 + 0.6 * below[1], 0.6 * (below[6] - below[5])])


def test_the_test_of_fit_holds_its_level_and_sees_a_wrong_form():
    rng = np.random.default_rng(6)
    samples = [rng.binomial(M, rng.beta(1.0, 4.0, 500)) for _ in range(40)]
    levels = [goodness(beta_binomial(counts, M), counts, M).p_value for counts in samples]
    assert np.mean(np.array(levels) < 0.05) < 0.2 and 0.3 < np.mean(levels) < 0.7
    counts = drawn("two kinds", 7, 1000)[1]
    assert goodness(beta_binomial(counts, M), counts, M).p_value < 1e-6


@pytest.mark.parametrize("value", [0, 3, M])
def test_equal_counts_are_no_trouble(value):
    counts = np.full(40, value)
    (variance, _), fit, free = rate_variances(counts, M), beta_binomial(counts, M), nonparametric(counts, M)
    assert variance <= 0
    assert fit.mean == pytest.approx(value / M, abs=1e-3) and free.mean == pytest.approx(value / M, abs=0.03)
    assert goodness(fit, counts, M).statistic < 40 * M and histogram(fit).sum() == pytest.approx(1)


def test_too_little_is_named():
    for counts, m in (([3], 16), ([0, 1], 1)):
        with pytest.raises(UserError, match=f"{len(counts)} questions with {m} responses; allowed: 2 or more of each"):
            rate_variances(np.array(counts), m)
