"""Check the cost of a limited number of batches, and its change by regularisation (T26 to T30). D28 to D30 are derived
here.

The cost of a simulated bandit does not grow with the horizon T, because a batch of Gaussian rewards is one Gaussian
sum. Two arms have means 0 and -gap and noise of variance 1. `ends` (M,) are the steps at which batches end; the last
one is T. Every policy sees the rewards of a batch only at its end.
"""

import numpy as np
from scipy.special import gammaln, hyp1f1, ndtr

from rftlab.shared.config.kl import KL, kl_rule
from rftlab.shared.kl import kl_penalty
from rftlab.studies.theory.check import Claims, exact, log_log_slope, rate, sampled, theory_check

THRESHOLD = 2.0
"""Factor of elimination: an arm is dropped if its mean is behind by sqrt(THRESHOLD log(2T) / pulls of each arm)."""


def minimax_grid(horizon: float, batches: int) -> np.ndarray:
    """Return the ends a, a sqrt(a), ... of batches up to T: the exponent of a is 1/(2 - 2^(1-M))."""
    powers = 2 - 2.0 ** -np.arange(batches)
    return horizon ** (powers / powers[-1])


def geometric_grid(horizon: float, batches: int) -> np.ndarray:
    """Return the ends T^(1/M), T^(2/M), ..., T of batches."""
    return horizon ** (np.arange(1, batches + 1) / batches)


def equal_grid(horizon: float, batches: int) -> np.ndarray:
    """Return the ends of batches of T/M steps each."""
    return horizon * np.arange(1, batches + 1) / batches


def regret_exponent(batches: int) -> float:
    """Return the power of T in the worst regret on the minimax grid."""
    return 1 / (2 - 2.0 ** (1 - batches))


def spaced_gaps(horizon: float, count: int) -> np.ndarray:
    """Return gaps (count,) from far below what T steps can resolve to the largest, 1."""
    return np.geomspace(horizon**-0.6, 1.0, count)


def elimination_bounds(ends: np.ndarray) -> np.ndarray:
    """Return the largest difference of the arms' sums that keeps both arms, after each batch but the last; 0 where one
    arm must be chosen."""
    bounds = np.sqrt(THRESHOLD * np.log(2 * ends[-1]) * ends[:-1] / 2)
    bounds[-1:] = 0.0
    return bounds


def eliminated_regret(
    gaps: np.ndarray, ends: np.ndarray, runs: int, rng: np.random.Generator, counted: float = 1.0
) -> np.ndarray:
    """Return the regret (runs, G) of successive elimination: equal shares for the remaining arms, one arm in the last
    batch.

    counted: number of pulls that the threshold assumes for each arm, over the true number.
    """
    behind = np.zeros((runs, gaps.size))
    both, worse = np.ones(behind.shape, dtype=bool), np.zeros(behind.shape, dtype=bool)
    regret = np.full(behind.shape, gaps * ends[0] / 2)
    lengths, bounds = np.diff(ends, prepend=0.0), elimination_bounds(ends) / np.sqrt(counted)
    for m in range(ends.size - 1):
        pulls = lengths[m] / 2
        behind += gaps * pulls + np.sqrt(2 * pulls) * rng.standard_normal(behind.shape)
        worse |= both & (behind < -bounds[m])
        both &= np.abs(behind) < bounds[m]
        regret += gaps * lengths[m + 1] * (both / 2 + worse)
    return regret


def expected_regret(gaps: np.ndarray, ends: np.ndarray, nodes: int = 48) -> np.ndarray:
    """Return the exact expected regret (G,) of `eliminated_regret`: the density of the difference of the arms' sums is
    carried from batch to batch."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    lengths, bounds, drift = np.diff(ends, prepend=0.0), elimination_bounds(ends), gaps[:, None]
    regret, worse = gaps * ends[0] / 2, np.zeros(gaps.size)
    places, mass = np.zeros(1), np.ones((gaps.size, 1))
    for m in range(ends.size - 1):
        pulls = lengths[m] / 2
        spread, means = np.sqrt(2 * pulls), places + drift * pulls
        worse = worse + (mass * ndtr((-bounds[m] - means) / spread)).sum(axis=1)
        # only differences within the bound go on: Gauss-Legendre nodes on that interval carry their density
        places = bounds[m] * x
        steps = (places[None, None, :] - means[:, :, None]) / spread
        mass = np.einsum("gx,gxy->gy", mass, np.exp(-(steps**2) / 2)) * w * bounds[m] / (spread * np.sqrt(2 * np.pi))
        regret = regret + gaps * lengths[m + 1] * (mass.sum(axis=1) / 2 + worse)
    return regret


def worst_regret(ends: np.ndarray, count: int = 400) -> tuple[float, float]:
    """Return the exact largest expected regret over gaps up to 1, and the gap that has it."""
    gaps = spaced_gaps(ends[-1], count)
    regret = expected_regret(gaps, ends)
    worst = int(regret.argmax())
    return float(regret[worst]), float(gaps[worst])


def missed(signal: np.ndarray, dimensions: int) -> np.ndarray:
    """Return 1 - E[cos] of the angle between theta and an estimate N(theta, I/n), at signal = |theta| sqrt(n)."""
    signal = np.asarray(signal, dtype=np.float64)
    scale = np.exp(gammaln((dimensions + 1) / 2) - gammaln(dimensions / 2 + 1)) / np.sqrt(2)
    return 1 - signal * scale * hyp1f1(0.5, dimensions / 2 + 1, -(signal**2) / 2)


def exploited_regret(norms: np.ndarray, ends: np.ndarray, dimensions: int, lost: float = 0.0) -> np.ndarray:
    """Return the expected regret (G,) of pure exploitation in the linear contextual bandit with two N(0, I) contexts a
    step, |theta| = norms (G,).

    lost: number of steps by which the estimate is worse than its number of observations; d + 1 for least squares,
    because E[(X'X)^-1] = I/(n-d-1).
    """
    known = np.maximum(np.concatenate([[0.0], ends[:-1] - lost]), 0.0)
    lost_T = np.diff(ends, prepend=0.0) * missed(norms[:, None] * np.sqrt(known), dimensions)
    return norms / np.sqrt(np.pi) * lost_T.sum(axis=1)


def guessed_regret(
    norms: np.ndarray, ends: np.ndarray, dimensions: int, runs: int, rng: np.random.Generator
) -> np.ndarray:
    """Return regret (runs, G) of pure exploitation with estimates from N(theta, I/n); a run uses one draw for all n."""
    along, across = rng.standard_normal((runs, 1)), np.sqrt(rng.chisquare(dimensions - 1, (runs, 1)))
    regret = np.zeros((runs, norms.size))
    seen = np.concatenate([[0.0], ends[:-1]])
    for length, known in zip(np.diff(ends, prepend=0.0), seen, strict=True):
        signal = norms * np.sqrt(known) + along
        regret += length * norms / np.sqrt(np.pi) * (1 - signal / np.hypot(signal, across))
    return regret


def drawn_regret(norm: float, ends: np.ndarray, dimensions: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return the realised regret (runs,) of pure exploitation, with every context drawn and theta fitted by least
    squares after each batch."""
    theta = np.zeros(dimensions)
    theta[0] = norm
    gram, moment = np.zeros((runs, dimensions, dimensions)), np.zeros((runs, dimensions))
    belief: np.ndarray = rng.standard_normal((runs, dimensions))
    regret = np.zeros(runs)
    for length in np.diff(ends, prepend=0.0).astype(int):
        contexts = rng.standard_normal((2, runs, length, dimensions), dtype=np.float32)
        first = np.einsum("nld,nd->nl", contexts[0] - contexts[1], belief) > 0
        chosen = np.where(first[:, :, None], contexts[0], contexts[1])
        regret += (contexts @ theta).max(axis=0).sum(axis=1) - (chosen @ theta).sum(axis=1)
        gram += chosen.transpose(0, 2, 1) @ chosen
        moment += np.einsum("nld,nl->nd", chosen, chosen @ theta + rng.standard_normal((runs, length)))
        belief = np.linalg.solve(gram, moment[:, :, None])[:, :, 0]
    return regret


HORIZONS = np.logspace(4, 12, 9)
DIMENSIONS = 5


def worst_case(samples: np.ndarray) -> np.ndarray:
    """Return samples (n/2,) at the worst case: half the runs of samples (n, G) find it, the other half measure it."""
    half = len(samples) // 2
    return samples[half:, samples[:half].mean(axis=0).argmax()]


def _worst_regrets(grid, horizons, batches, power: int = 1, runs: int = 800) -> np.ndarray:
    """Return gap^(power-1) regret (runs/2, T) of successive elimination at the worst of 60 gaps."""
    rng = np.random.default_rng(26)
    gaps = [spaced_gaps(horizon, 60) for horizon in horizons]
    many = np.broadcast_to(batches, (len(horizons),))
    pairs = zip(gaps, horizons, many, strict=True)
    return np.column_stack(
        [worst_case(g ** (power - 1) * eliminated_regret(g, grid(horizon, m), runs, rng)) for g, horizon, m in pairs]
    )


@theory_check("T26")
def _minimax(mutant: int) -> Claims:
    grid = equal_grid if mutant else minimax_grid
    for batches in (2, 3, 4, 5):
        log = 1.0 if batches == 2 else np.sqrt(np.log(2 * HORIZONS))
        samples = _worst_regrets(grid, HORIZONS, batches) / log
        yield rate(f"exponent, M = {batches}", regret_exponent(batches), *log_log_slope(HORIZONS, samples))


@theory_check("T27")
def _geometric(mutant: int) -> Claims:
    grid = minimax_grid if mutant else geometric_grid
    for batches in (3, 4):
        samples = _worst_regrets(grid, HORIZONS, batches, power=2) / np.log(2 * HORIZONS)
        yield rate(f"exponent, M = {batches}", 1 / batches, *log_log_slope(HORIZONS, samples))


@theory_check("T28")
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


@theory_check("T29")
def _contextual(mutant: int) -> Claims:
    horizons, rng = np.logspace(4, 9, 6), np.random.default_rng(29)
    grid = equal_grid if mutant == 2 else minimax_grid
    for batches in (1, 2, 3, 4, 5):
        columns = []
        for horizon in horizons:
            norms = np.geomspace(horizon**-0.5, horizon**-0.25 if mutant == 1 else 1.0, 24)
            columns.append(worst_case(guessed_regret(norms, grid(horizon, batches), DIMENSIONS, 1200, rng)))
        yield rate(
            f"exponent, M = {batches}", regret_exponent(batches), *log_log_slope(horizons, np.column_stack(columns))
        )
    ends, norm = np.array([100.0, 300.0]), 0.3
    expected = exploited_regret(np.array([norm]), ends, DIMENSIONS, lost=DIMENSIONS + 1)[0]
    drawn = drawn_regret(norm, equal_grid(300.0, 2) if mutant == 2 else ends, DIMENSIONS, 2600, rng)
    yield sampled("regret with every context drawn, |θ| = 0.3, batches to 100 and 300", expected, drawn)


def tilted(reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """Return the best policy (..., A) for reward minus beta KL to the reference, with rewards (..., A)."""
    odds = reference * np.exp((rewards - rewards.max(axis=-1, keepdims=True)) / beta)
    return odds / odds.sum(axis=-1, keepdims=True)


def regularised_objective(policy: np.ndarray, reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """Return the expected reward minus beta KL(policy || reference) of policies (..., A)."""
    return (policy * (rewards - beta * np.log(policy / reference))).sum(axis=-1)


def limit_gap(best: np.ndarray, sampler: np.ndarray, rewards: np.ndarray, beta: float) -> float:
    """Return the limit of n times the gap of the plug-in policy from n Bernoulli rewards of arms drawn by `sampler`."""
    return float((best * (1 - best) * rewards * (1 - rewards) / sampler).sum() / (2 * beta))


def fitted_policy(
    reference: np.ndarray, rewards: np.ndarray, beta: float, counts: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return plug-in policies (runs, A) from Bernoulli rewards of counts (runs, A) pulls; 1/2 without pulls."""
    wins = rng.binomial(counts, rewards)
    return tilted(reference, np.where(counts > 0, wins / np.maximum(counts, 1), 0.5), beta)


REFERENCE, REWARDS, BETA = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.8, 0.5, 0.3, 0.1]), 0.3


@theory_check("T30")
def _regularised(mutant: int) -> Claims:
    rng, base = np.random.default_rng(30), np.full(4, 0.25) if mutant == 1 else REFERENCE
    best, other = tilted(base, REWARDS, BETA), rng.dirichlet(np.ones(4))
    gap, rule = sum(p * r for p, r in zip(best - other, REWARDS, strict=True)), kl_rule(KL("k1"))
    for policy, sign in ((best, -1), (other, 1)):
        penalties = (p * kl_penalty(rule, np.log(p), np.log(o))[0] for p, o in zip(policy, REFERENCE, strict=True))
        gap += sign * BETA * sum(penalties)
    yield exact("J(π*) − J(π) of a random π", BETA * float((other * np.log(other / best)).sum()), float(gap))
    top = regularised_objective(tilted(REFERENCE, REWARDS, BETA), REFERENCE, REWARDS, BETA)
    sizes, gaps = np.logspace(3, 6, 4), []
    for n in sizes.astype(int):
        policy = fitted_policy(base, REWARDS, BETA, rng.multinomial(n, REFERENCE, size=12000), rng)
        gaps.append(top - regularised_objective(policy, REFERENCE, REWARDS, BETA))
    yield rate("exponent of n, regularised", -1.0, *log_log_slope(sizes, np.column_stack(gaps)))
    yield sampled("n gap, n = 1e6", limit_gap(best, REFERENCE, REWARDS, BETA), sizes[-1] * gaps[-1])
    arms = np.geomspace(1e-4, 1e-4 if mutant == 2 else 1, 32)
    wrong = [worst_case(arms * (arms + np.sqrt(2 / n) * rng.standard_normal((12000, 32)) < 0)) for n in sizes]
    yield rate("exponent of n, worst case without KL", -0.5, *log_log_slope(sizes, np.column_stack(wrong)))
