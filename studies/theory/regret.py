"""T26 to T30: what a limited number of batches costs, and what regularisation changes about it. D28 to D30 are
derived here."""

import numpy as np

from rftlab.shared.config.kl import KL, kl_rule
from rftlab.shared.kl import kl_penalty
from rftlab.studies.theory.bandits import (
    drawn_regret,
    eliminated_regret,
    equal_grid,
    exploited_regret,
    exponent,
    geometric_grid,
    guessed_regret,
    minimax_grid,
    spaced_gaps,
    worst_regret,
)
from rftlab.studies.theory.check import Claims, Mutant, exact, log_log_slope, rate, sampled, theory_check

HORIZONS = np.logspace(4, 12, 9)
DIMENSIONS = 5
GRID_PAPER = "Gao et al. 2019, arXiv 1904.01763; Perchet et al. 2015, arXiv 1505.00369"


def worst_case(samples: np.ndarray) -> np.ndarray:
    """Samples (n/2,) at the worst case: half the runs of samples (n, G) find it, the other half measure it."""
    half = len(samples) // 2
    return samples[half:, samples[:half].mean(axis=0).argmax()]


def _worst_regrets(grid, horizons, batches, power: int = 1, runs: int = 800) -> np.ndarray:
    """gap^(power-1) regret (runs/2, T) of successive elimination at the worst of 60 gaps."""
    rng = np.random.default_rng(26)
    gaps = [spaced_gaps(horizon, 60) for horizon in horizons]
    many = np.broadcast_to(batches, (len(horizons),))
    pairs = zip(gaps, horizons, many, strict=True)
    return np.column_stack(
        [worst_case(g ** (power - 1) * eliminated_regret(g, grid(horizon, m), runs, rng)) for g, horizon, m in pairs]
    )


@theory_check(
    "T26",
    statement="Two arms, M batches on the minimax grid: the worst regret over all gaps grows as T^(1/(2 − 2^(1−M))), "
    "times √log 2T from M = 3 on. With M = 2 no arm can be dropped early, so there is no logarithm.",
    formula="max_Δ R ~ T^(1/(2−2^(1−M))) √(log 2T)",
    source=GRID_PAPER,
    kind="rate",
    mutants=(Mutant("batches of equal size"),),
)
def _minimax(mutant: int) -> Claims:
    grid = equal_grid if mutant else minimax_grid
    for batches in (2, 3, 4, 5):
        log = 1.0 if batches == 2 else np.sqrt(np.log(2 * HORIZONS))
        samples = _worst_regrets(grid, HORIZONS, batches) / log
        yield rate(f"exponent, M = {batches}", exponent(batches), *log_log_slope(HORIZONS, samples))


@theory_check(
    "T27",
    statement="On the geometric grid the worst gap-weighted regret of M batches grows as T^(1/M) log T.",
    formula="max_Δ Δ R ~ T^(1/M) log 2T",
    source=GRID_PAPER,
    kind="rate",
    mutants=(Mutant("the minimax grid instead"),),
)
def _geometric(mutant: int) -> Claims:
    grid = minimax_grid if mutant else geometric_grid
    for batches in (3, 4):
        samples = _worst_regrets(grid, HORIZONS, batches, power=2) / np.log(2 * HORIZONS)
        yield rate(f"exponent, M = {batches}", 1 / batches, *log_log_slope(HORIZONS, samples))


@theory_check(
    "T28",
    statement="About log log T batches of growing size reach √T: at T = 1e12 the worst R/√T is 50, 26.3, 9.2, 5.9 and "
    "4.9 with 2 to 6 batches. Equal batches do not: the first alone costs ΔT/2M, so the exponent stays 1. A constant "
    "batch size is the equal grid.",
    formula="⌈log₂(1 + ½ log₂ T)⌉ batches: R ~ √(T log T); M equal batches: R ≥ ΔT/(2M)",
    source=f"{GRID_PAPER}; the numbers by an exact recursion over batches, derived here",
    kind="sampled",
    mutants=(
        Mutant("the threshold counts the pulls of both arms", r"M = [3-6], T"),
        Mutant("growing and equal grids exchanged"),
    ),
)
def _few_batches(mutant: int) -> Claims:
    horizon, rng = 1e12, np.random.default_rng(28)
    growing, same = (equal_grid, minimax_grid) if mutant == 2 else (minimax_grid, equal_grid)
    for batches in (2, 3, 4, 5, 6):
        worst, gap = worst_regret(minimax_grid(horizon, batches))
        ends = growing(horizon, batches)
        regret = eliminated_regret(np.array([gap]), ends, 6000, rng, counted=2.0 if mutant == 1 else 1.0)
        yield sampled(f"worst R/√T, M = {batches}, T = 1e12", worst / horizon**0.5, regret / horizon**0.5, slack=1e-9)
    enough = np.ceil(np.log2(1 + np.log2(HORIZONS) / 2)).astype(int)
    samples = _worst_regrets(growing, HORIZONS, enough) / np.sqrt(np.log(2 * HORIZONS))
    yield rate("exponent, M = ⌈log₂(1 + ½ log₂ T)⌉ = 3 to 5", 0.5, *log_log_slope(HORIZONS, samples))
    for batches in (4, 16):
        gaps = spaced_gaps(horizon, 60)
        regret = eliminated_regret(gaps, same(horizon, batches), 100, rng)
        yield exact(
            f"smallest R/(gap T/2M) of a run, equal batches, M = {batches}",
            1.0,
            (regret / gaps).min() * 2 * batches / horizon,
        )
    equal = _worst_regrets(same, HORIZONS, 4)
    yield rate("exponent, 4 equal batches", 1.0, *log_log_slope(HORIZONS, equal))


@theory_check(
    "T29",
    statement="Linear contextual bandit with random contexts, two arms, pure exploitation: the same exponents without "
    "any exploration, because contexts explore. The estimate is N(θ, I/n) and a step costs |θ|(1 − cos φ)/√π, φ its "
    "angle to θ, so no context need be drawn.",
    formula="max_{|θ|≤1} R ~ T^(1/(2−2^(1−M))); step: |θ|(1 − cos φ)/√π",
    source="Han et al. 2020, arXiv 2004.06321; the cost of a step is derived here",
    kind="rate",
    mutants=(
        Mutant("the worst case looked for among |θ| ≤ T^(−1/4) only", r"M = 1"),
        Mutant("batches of equal size", r"M = [2-5]|drawn"),
    ),
)
def _contextual(mutant: int) -> Claims:
    horizons, rng = np.logspace(4, 9, 6), np.random.default_rng(29)
    grid = equal_grid if mutant == 2 else minimax_grid
    for batches in (1, 2, 3, 4, 5):
        columns = []
        for horizon in horizons:
            norms = np.geomspace(horizon**-0.5, horizon**-0.25 if mutant == 1 else 1.0, 24)
            columns.append(worst_case(guessed_regret(norms, grid(horizon, batches), DIMENSIONS, 1200, rng)))
        yield rate(f"exponent, M = {batches}", exponent(batches), *log_log_slope(horizons, np.column_stack(columns)))
    ends, norm = np.array([100.0, 300.0]), 0.3
    expected = exploited_regret(np.array([norm]), ends, DIMENSIONS, lost=DIMENSIONS + 1)[0]
    drawn = drawn_regret(norm, equal_grid(300.0, 2) if mutant == 2 else ends, DIMENSIONS, 2600, rng)
    yield sampled("regret with every context drawn, |θ| = 0.3, batches to 100 and 300", expected, drawn)


def tilted(reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """The best policy (..., A) of reward less beta KL to the reference, for rewards (..., A)."""
    odds = reference * np.exp((rewards - rewards.max(axis=-1, keepdims=True)) / beta)
    return odds / odds.sum(axis=-1, keepdims=True)


def regularised_objective(policy: np.ndarray, reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """Expected reward less beta KL(policy || reference), of policies (..., A)."""
    return (policy * (rewards - beta * np.log(policy / reference))).sum(axis=-1)


def limit_gap(best: np.ndarray, sampler: np.ndarray, rewards: np.ndarray, beta: float) -> float:
    """n times the gap of the plug-in policy from n Bernoulli rewards of arms drawn by `sampler`, as n grows."""
    return float((best * (1 - best) * rewards * (1 - rewards) / sampler).sum() / (2 * beta))


def fitted_policy(
    reference: np.ndarray, rewards: np.ndarray, beta: float, counts: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Plug-in policies (runs, A) from Bernoulli rewards of counts (runs, A) pulls; an arm without pulls gets 1/2."""
    wins = rng.binomial(counts, rewards)
    return tilted(reference, np.where(counts > 0, wins / np.maximum(counts, 1), 0.5), beta)


REFERENCE, REWARDS, BETA = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.8, 0.5, 0.3, 0.1]), 0.3


@theory_check(
    "T30",
    statement="With a KL penalty a suboptimal policy loses exactly β KL(π‖π*), so the plug-in policy from n samples "
    "loses of order 1/n; without the penalty the worst case is n^(−1/2).",
    formula="J(π*) − J(π) = β KL(π‖π*); n gap → (1/2β) Σ π*(1−π*) r(1−r)/π_ref",
    source="the rate: Zhao et al. 2024, arXiv 2411.04625; the constant is derived here",
    kind="rate",
    mutants=(
        Mutant("the policy exp(r/β) without π_ref", r"random|regularised|n gap"),
        Mutant("the worst case looked for among gaps up to 10⁻⁴ only", r"without KL"),
    ),
)
def _regularised(mutant: int) -> Claims:
    rng, base = np.random.default_rng(30), np.full(4, 0.25) if mutant == 1 else REFERENCE
    best, other = tilted(base, REWARDS, BETA), rng.dirichlet(np.ones(4))
    gap = sum(p * r for p, r in zip(best - other, REWARDS, strict=True))
    for policy, sign in ((best, -1), (other, 1)):
        gap += (
            sign
            * BETA
            * sum(
                p * kl_penalty(kl_rule(KL("k1")), np.log(p), np.log(o))[0]
                for p, o in zip(policy, REFERENCE, strict=True)
            )
        )
    yield exact("J(π*) − J(π) of a random π", BETA * float((other * np.log(other / best)).sum()), float(gap))
    top, sizes, gaps = (
        regularised_objective(tilted(REFERENCE, REWARDS, BETA), REFERENCE, REWARDS, BETA),
        np.logspace(3, 6, 4),
        [],
    )
    for n in sizes.astype(int):
        policy = fitted_policy(base, REWARDS, BETA, rng.multinomial(n, REFERENCE, size=12000), rng)
        gaps.append(top - regularised_objective(policy, REFERENCE, REWARDS, BETA))
    yield rate("exponent of n, regularised", -1.0, *log_log_slope(sizes, np.column_stack(gaps)))
    yield sampled("n gap, n = 1e6", limit_gap(best, REFERENCE, REWARDS, BETA), sizes[-1] * gaps[-1])
    arms = np.geomspace(1e-4, 1e-4 if mutant == 2 else 1, 32)
    wrong = [worst_case(arms * (arms + np.sqrt(2 / n) * rng.standard_normal((12000, 32)) < 0)) for n in sizes]
    yield rate("exponent of n, worst case without KL", -0.5, *log_log_slope(sizes, np.column_stack(wrong)))
