"""The split of N = B K rollouts, T13 to T15 and D1: how many contexts, and how many rollouts of each, give the least
noisy gradient.

One-logit contexts have unit features that share a part rho of their squared norm; V is the total variance of the batch
gradient.
"""

from itertools import combinations, product

import numpy as np

from rftlab.shared.estimator import Estimator
from rftlab.sim.run import batches
from rftlab.studies.theory.check import Claims, exact, sampled, theory_check
from rftlab.studies.theory.models import MEAN, RLOO, PassRates, beta_rates, by_count, logit_moments, weights


def total_variance(
    advantage: Estimator, size: int, rates: PassRates, rho: float, nuisance: float, between: bool = True
) -> float:
    """N V with i.i.d. contexts: K times E|g|^2 - |E g|^2 of a context's gradient g, `nuisance` the squared norm of
    its style score. Without `between`, the noise between contexts is left out."""
    mean, second, style = logit_moments(by_count(advantage, size), rates.values)
    common = rho * (rates.chances @ mean) ** 2 if between else rates.chances @ mean**2
    return size * float(rates.chances @ (second + nuisance * style) - common)


def budget_terms(rates: PassRates, rho: float, nuisance: float) -> tuple[float, float, float, float]:
    """N V = slope K + level + bend/(K-1) with RLOO, K >= 2, and `single` with the raw reward, K = 1."""
    u = rates.mean(lambda p, q: p * q)
    square = rates.mean(lambda p, q: (p * q) ** 2)
    slope, noise = square - rho * u**2, nuisance * u
    single = slope + rates.mean(lambda p, q: p * q**3) + nuisance * rates.mean(lambda p, q: p)
    return slope, u - 4 * square + noise, 2 * square + noise, single


def predicted(size: int, terms: tuple[float, float, float, float]) -> float:
    """N V of `budget_terms` at K = size."""
    slope, level, bend, single = terms
    return slope * size + level + bend / (size - 1) if size > 1 else single


def best_size(measured: dict[int, float]) -> float:
    """K* from three measured values: the least point of slope K + level + bend/(K-1)."""
    slope, _, bend = np.linalg.solve(
        [[size, 1, 1 / (size - 1)] for size in (2, 4, 8)], [measured[size] for size in (2, 4, 8)]
    )
    return 1 + float(np.sqrt(bend / slope)) if bend * slope > 0 else float("nan")


SIZES = (1, 2, 4, 8, 16)


def split_claims(mutant: int, cases: dict[str, tuple[PassRates, float, float]], drawn: tuple[int, ...]) -> Claims:
    """T13 and T14: every case (pass rates, rho, nuisance) exactly, the last one also in drawn batches of N = 48 at
    the K of `drawn`."""
    advantage, between = MEAN if mutant == 1 else RLOO, mutant != 2
    for name, case in cases.items():
        terms = budget_terms(*case)
        measured = {size: total_variance(advantage, size, *case, between) for size in SIZES}
        for size, value in measured.items():
            yield exact(f"N V, {name}, K={size}", predicted(size, terms), value)
        yield exact(f"K*, {name}", 1 + np.sqrt(terms[2] / terms[0]), best_size(measured))
    rates, _, style = case
    for size in drawn:
        yield sampled(
            f"N V in batches of 48, {name}, K={size}",
            predicted(size, terms),
            drawn_deviations(advantage, size, rates, style, between=between),
        )


def drawn_deviations(
    advantage: Estimator,
    size: int,
    rates: PassRates,
    nuisance: float,
    n: int = 28_000,
    budget: int = 48,
    between: bool = True,
) -> np.ndarray:
    """N |g - E g|^2 of n batches of `budget` rollouts on i.i.d. contexts with one feature: the parts along the logit
    and along the style. Without `between`, E g is that of the contexts drawn."""
    rng = np.random.default_rng(size)
    p = rng.choice(rates.values, p=rates.chances, size=(n * budget // size, 1))
    rewards = (rng.random((p.size, size)) < p).astype(np.float64)
    weight = weights(advantage, rewards)
    along = (weight * (rewards - p)).sum(axis=1).reshape(n, -1).mean(axis=1)
    style = np.sqrt(nuisance * (weight**2).sum(axis=1)) * rng.standard_normal(p.size) if nuisance else np.zeros(p.size)
    expected = rates.mean(lambda p, q: p * q) if between else (p * (1 - p)).reshape(n, -1).mean(axis=1)
    return budget * ((along - expected) ** 2 + style.reshape(n, -1).mean(axis=1) ** 2)


@theory_check("T13")
def budget(mutant: int) -> Claims:
    """T13."""
    some, uniform = beta_rates(8, 24), beta_rates(1, 1)
    yield from split_claims(
        mutant,
        {
            "Beta(8, 24), ρ=1": (some, 1.0, 0.0),
            "uniform, ρ=0": (uniform, 0.0, 0.0),
            "uniform, ρ=1": (uniform, 1.0, 0.0),
        },
        (1, 4),
    )


@theory_check("T14")
def nuisance(mutant: int) -> Claims:
    """T14. The best and the worst K of the statement, of Beta(1, 3) and of the histograms of D1, by enumeration."""
    rates, advantage, between = beta_rates(1, 3), MEAN if mutant == 1 else RLOO, mutant != 2
    yield from split_claims(
        mutant, {"Beta(1, 3), ρ=1, ν²=4": (rates, 1.0, 4.0), "Beta(1, 3), ρ=1, ν²=1": (rates, 1.0, 1.0)}, (2, 8)
    )
    for name, levels in EXTREMES.items():
        rates = HISTOGRAMS.get(name, rates)
        for style, (best, worst) in levels.items():
            level = 0.0 if mutant == 3 else style
            measured = {k: total_variance(advantage, k, rates, 1.0, level, between) for k in range(1, 65)}
            yield exact(f"best K, {name}, ν²={style:g}", best, min(measured, key=measured.__getitem__))
            yield exact(f"worst K of five, {name}, ν²={style:g}", worst, max(SIZES, key=measured.__getitem__))


EXTREMES = {
    "Beta(1, 3)": {1.0: (7, 2), 4.0: (11, 2)},
    "weak base": {1.0: (1, 16), 4.0: (8, 2)},
    "bimodal": {1.0: (4, 1), 4.0: (7, 1)},
    "medium": {1.0: (8, 1), 4.0: (14, 1)},
    "strong": {1.0: (5, 1), 4.0: (8, 1)},
}
"""T14: by distribution of pass rates and nuisance, the best K of 1 to 64 and the worst of 1, 2, 4, 8, 16."""


POPULATION = np.array([0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.6])


@theory_check("T15")
def without_replacement(mutant: int) -> Claims:
    """T15. All batches of seven contexts, and the order in which the simulator visits them. The mutant draws
    contexts anew each time."""
    n = POPULATION.size
    mean, second, _ = logit_moments(by_count(RLOO, 4), POPULATION)
    within, between = second - mean**2, mean.var()
    for size in (2, 3, 6):
        chosen = np.array(list(product(range(n), repeat=size) if mutant else combinations(range(n), size)))
        measured = mean[chosen].mean(axis=1).var() + within[chosen].sum(axis=1).mean() / size**2
        yield exact(
            f"V, B={size} of {n}", between / size * (n - size) / (n - 1) + within.mean() / size, float(measured)
        )
    size, rounds = 4, 20_000
    visited = np.random.default_rng(0).integers(0, n, (rounds, size)) if mutant else batches(n, size, 0, 0, rounds)
    deviations = (mean[visited].mean(axis=1) - mean.mean()) ** 2
    yield sampled(
        f"between-context part in the simulator's order, B={size} of {n}",
        between / size * (n - size) / (n - 1),
        deviations,
    )


def integer_best(terms: tuple[float, float, float, float]) -> int:
    """The K >= 2 of least variance, RLOO, at a fixed budget: the first with K(K-1) >= bend/slope."""
    return max(2, int(np.ceil(0.5 + np.sqrt(0.25 + terms[2] / terms[0]) - 1e-9)))


HISTOGRAMS = {
    "weak base": PassRates(np.array([0.0, 0.05, 0.2, 0.5]), np.array([0.5, 0.3, 0.15, 0.05])),
    "bimodal": PassRates(np.array([0.0, 0.1, 0.5, 0.9, 1.0]), np.array([0.45, 0.1, 0.1, 0.1, 0.25])),
    "medium": PassRates(np.array([0.1, 0.3, 0.5, 0.7, 0.9]), np.full(5, 0.2)),
    "strong": PassRates(np.array([0.5, 0.8, 0.95, 1.0]), np.array([0.1, 0.2, 0.3, 0.4])),
}


@theory_check("D1")
def best_group_size(mutant: int) -> Claims:
    """D1. Every K from 1 to 64 by enumeration, for four histograms of pass rates and three levels of nuisance."""
    sizes = range(2, 65)
    for name, rates in HISTOGRAMS.items():
        for style in (0.0, 1.0, 4.0):
            terms, case = budget_terms(rates, 1.0, style), f"{name}, ν²={style:g}"
            between, advantage = mutant != 2, MEAN if mutant == 1 else RLOO
            measured = [total_variance(advantage, size, rates, 1.0, style, between) for size in sizes]
            yield exact(f"best K ≥ 2, {case}", integer_best(terms), sizes[int(np.argmin(measured))])
            lead = (
                style * rates.mean(lambda p, q: p * p)
                + rates.mean(lambda p, q: p * p * q * (2 - 3 * p))
                - 2 * np.sqrt(terms[0] * terms[2])
            )
            single = total_variance(RLOO, 1, rates, 1.0, style, between)
            gap = single - (2 * np.sqrt(terms[0] * terms[2]) + terms[0] + terms[1])
            yield exact(f"N V of raw K=1 less that of RLOO at K*, {case}", lead, gap, 1e-9)
