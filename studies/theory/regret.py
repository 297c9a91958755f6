"""T26 to T30: what a limited number of batches costs, and what regularisation changes about it. D28 to D30 are derived here."""

import numpy as np

from shared.kl import K1, kl_penalty
from studies.theory.bandits import (
    drawn_regret,
    eliminated_regret,
    equal_grid,
    exploited_regret,
    exponent,
    gaps_of,
    geometric_grid,
    guessed_regret,
    minimax_grid,
    missed,
    worst_regret,
)
from studies.theory.check import Check, Comparison, exact, positive, rate, sampled, slope_of

HORIZONS = np.logspace(4, 12, 9)
DIMENSIONS = 5


def worst_of(samples: np.ndarray) -> np.ndarray:
    """Samples (n/2,) at the worst case: half the runs of samples (n, G) find it, the other half measure it."""
    half = len(samples) // 2
    return samples[half:, samples[:half].mean(axis=0).argmax()]


def _worst_regrets(grid, horizons, batches, power: int = 1, runs: int = 400) -> np.ndarray:
    """gap^(power-1) regret (runs/2, T) of successive elimination at the worst of 60 gaps."""
    rng = np.random.default_rng(26)
    gaps = [gaps_of(horizon, 60) for horizon in horizons]
    many = np.broadcast_to(batches, (len(horizons),))
    pairs = zip(gaps, horizons, many, strict=True)
    return np.column_stack([worst_of(g ** (power - 1) * eliminated_regret(g, grid(horizon, m), runs, rng)) for g, horizon, m in pairs])


def _minimax(mutant: bool) -> list[Comparison]:
    grid, found = equal_grid if mutant else minimax_grid, []
    for batches in (2, 3, 4, 5):
        log = 1.0 if batches == 2 else np.sqrt(np.log(2 * HORIZONS))
        samples = _worst_regrets(grid, HORIZONS, batches) / log
        found.append(rate(f"exponent, M = {batches}", exponent(batches), *slope_of(HORIZONS, samples)))
    return found


def _geometric(mutant: bool) -> list[Comparison]:
    grid, found = minimax_grid if mutant else geometric_grid, []
    for batches in (3, 4):
        samples = _worst_regrets(grid, HORIZONS, batches, power=2) / np.log(2 * HORIZONS)
        found.append(rate(f"exponent, M = {batches}", 1 / batches, *slope_of(HORIZONS, samples)))
    return found


def _few_batches(mutant: bool) -> list[Comparison]:
    horizon, found, rng = 1e12, [], np.random.default_rng(28)
    for batches in (2, 3, 4, 5, 6):
        ends = minimax_grid(horizon, batches)
        worst, gap = worst_regret(ends)
        regret = eliminated_regret(np.array([gap]), ends, 6000, rng, counted=2.0 if mutant else 1.0)
        found.append(sampled(f"worst R/√T, M = {batches}, T = 1e12", worst / horizon**0.5, regret / horizon**0.5, slack=1e-9))
    enough = np.ceil(np.log2(1 + np.log2(HORIZONS) / 2)).astype(int)
    samples = _worst_regrets(minimax_grid, HORIZONS, enough) / np.sqrt(np.log(2 * HORIZONS))
    found.append(rate("exponent, M = ⌈log₂(1 + ½ log₂ T)⌉ = 3 to 5", 0.5, *slope_of(HORIZONS, samples)))
    for batches in (4, 16):
        gaps = gaps_of(horizon, 60)
        regret = eliminated_regret(gaps, equal_grid(horizon, batches), 100, rng)
        found.append(exact(f"smallest R/(gap T/2M) of a run, equal batches, M = {batches}", 1.0, (regret / gaps).min() * 2 * batches / horizon))
    equal = _worst_regrets(equal_grid, HORIZONS, 4)
    return [*found, rate("exponent, 4 equal batches", 1.0, *slope_of(HORIZONS, equal))]


def _contextual(mutant: bool) -> list[Comparison]:
    horizons, rng, found = np.logspace(4, 9, 6), np.random.default_rng(29), []
    for batches in (1, 2, 3, 4, 5):
        columns = []
        for horizon in horizons:
            norms = np.geomspace(horizon**-0.6, horizon**-0.25 if mutant else 1.0, 40)
            columns.append(worst_of(guessed_regret(norms, minimax_grid(horizon, batches), DIMENSIONS, 600, rng)))
        found.append(rate(f"exponent, M = {batches}", exponent(batches), *slope_of(horizons, np.column_stack(columns))))
    ends, norm = np.array([100.0, 300.0]), 0.3
    expected = exploited_regret(np.array([norm]), ends, DIMENSIONS, lost=DIMENSIONS + 1)[0]
    drawn = drawn_regret(norm, ends, DIMENSIONS, 3000, rng)
    return [*found, sampled("regret with every context drawn, |θ| = 0.3, batches to 100 and 300", expected, drawn)]


def tilted(reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """The best policy (..., A) of reward less beta KL to the reference, for rewards (..., A)."""
    odds = reference * np.exp((rewards - rewards.max(axis=-1, keepdims=True)) / beta)
    return odds / odds.sum(axis=-1, keepdims=True)


def objective(policy: np.ndarray, reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """Expected reward less beta KL(policy || reference), of policies (..., A)."""
    return (policy * (rewards - beta * np.log(policy / reference))).sum(axis=-1)


def limit_gap(best: np.ndarray, sampler: np.ndarray, rewards: np.ndarray, beta: float) -> float:
    """n times the gap of the plug-in policy from n Bernoulli rewards of arms drawn by `sampler`, as n grows."""
    return float((best * (1 - best) * rewards * (1 - rewards) / sampler).sum() / (2 * beta))


def fitted(reference: np.ndarray, rewards: np.ndarray, beta: float, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Plug-in policies (runs, A) from Bernoulli rewards of counts (runs, A) pulls; an arm without pulls gets 1/2."""
    wins = rng.binomial(counts, rewards)
    return tilted(reference, np.where(counts > 0, wins / np.maximum(counts, 1), 0.5), beta)


REFERENCE, REWARDS, BETA = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.8, 0.5, 0.3, 0.1]), 0.3


def _regularised(mutant: bool) -> list[Comparison]:
    rng, base = np.random.default_rng(30), np.full(4, 0.25) if mutant else REFERENCE
    best, other = tilted(base, REWARDS, BETA), rng.dirichlet(np.ones(4))
    gap = sum(p * r for p, r in zip(best - other, REWARDS, strict=True))
    for policy, sign in ((best, -1), (other, 1)):
        gap += sign * BETA * sum(p * kl_penalty(K1, False, np.log(p), np.log(o))[0] for p, o in zip(policy, REFERENCE, strict=True))
    found = [exact("J(π*) − J(π) of a random π", BETA * float((other * np.log(other / best)).sum()), float(gap))]
    top, sizes, gaps = objective(tilted(REFERENCE, REWARDS, BETA), REFERENCE, REWARDS, BETA), np.logspace(3, 6, 4), []
    for n in sizes.astype(int):
        policy = fitted(base, REWARDS, BETA, rng.multinomial(n, REFERENCE, size=12000), rng)
        gaps.append(top - objective(policy, REFERENCE, REWARDS, BETA))
    found.append(rate("exponent of n, regularised", -1.0, *slope_of(sizes, np.column_stack(gaps))))
    found.append(sampled("n gap, n = 1e6", limit_gap(best, REFERENCE, REWARDS, BETA), sizes[-1] * gaps[-1]))
    arms = np.geomspace(1e-4, 1, 100)
    wrong = [worst_of(arms * (arms + np.sqrt(2 / n) * rng.standard_normal((2000, 100)) < 0)) for n in sizes]
    return [*found, rate("exponent of n, worst case without KL", -0.5, *slope_of(sizes, np.column_stack(wrong)))]


def _constant_batch(mutant: bool) -> list[Comparison]:
    horizon, rng, regrets = 1e4, np.random.default_rng(31), {}
    for size in (10, 100, 300, 1000, 2500):
        ends = (minimax_grid if mutant else equal_grid)(horizon, int(horizon / size))
        regrets[size] = worst_of(eliminated_regret(gaps_of(horizon, 40), ends, 1200, rng))
    free = regrets[10]
    found = [sampled(f"worst R, b = {size}", size / 2, regrets[size], slack=1e-9) for size in (1000, 2500)]
    for size in (100, 300):
        error = np.hypot(regrets[size].std(), 1.25 * free.std()) / np.sqrt(free.size)
        found.append(positive(f"1.25 (worst R at b = 10) − (worst R at b = {size})", 1.25 * free.mean() - regrets[size].mean(), error))
    error = np.hypot(regrets[1000].std(), 2 * free.std()) / np.sqrt(free.size)
    return [*found, positive("(worst R at b = 1000) − 2 (worst R at b = 10)", regrets[1000].mean() - 2 * free.mean(), error)]


def _price_of_batches(mutant: bool) -> list[Comparison]:
    horizon, norm, found = 2000.0, np.array([0.4]), []
    samples = {b: guessed_regret(norm, equal_grid(horizon, int(horizon / b)), DIMENSIONS, 4000, np.random.default_rng(32))[:, 0] for b in (1, 20, 400)}
    top = norm[0] / np.sqrt(np.pi) * (1 - missed(norm * np.sqrt(horizon), DIMENSIONS)[0])
    for b in (20, 400):
        price = (samples[b] - samples[1]) / ((b - 1) * top * (4 if mutant else 1))
        error = price.std() / np.sqrt(price.size)
        found += [positive(f"price of b = {b} over b = 1, in (b−1) c |θ|/√π, less 1/2", price.mean() - 0.5 + 1e-2, error)]
        found += [positive(f"1 less the same price, b = {b}", 1 - price.mean(), error)]
    return found


def _sampler(mutant: bool) -> list[Comparison]:
    reference, rewards, beta, n = np.array([0.01, 0.19, 0.3, 0.5]), np.array([0.9, 0.5, 0.3, 0.1]), 0.15, 400_000
    rng, best = np.random.default_rng(33), tilted(reference, rewards, beta)
    top = objective(best, reference, rewards, beta)
    first = rng.multinomial(n // 2, reference, size=12000)
    wins = rng.binomial(first, rewards)
    policy = np.broadcast_to(reference, first.shape) if mutant else tilted(reference, wins / np.maximum(first, 1), beta)
    second = rng.multinomial(n // 2, policy)
    means = (wins + rng.binomial(second, rewards)) / (first + second)
    gap = n * (top - objective(tilted(reference, means, beta), reference, rewards, beta))
    bound = (best.size - 1) / (4 * beta)
    return [
        sampled("n gap, half from π_ref, half from the policy fitted to it", limit_gap(best, (reference + best) / 2, rewards, beta), gap),
        positive("(A−1)/4β less n gap", bound - gap.mean(), gap.std() / np.sqrt(gap.size)),
    ]
