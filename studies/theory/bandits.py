"""Batched bandits whose cost does not grow with the horizon T: a batch of Gaussian rewards is one Gaussian sum.

Two arms have means 0 and -gap and noise of variance 1. `ends` (M,) are the steps at which batches end, the last one is
T. Every policy here is told the rewards of a batch only at its end.
"""

import numpy as np
from scipy.special import gammaln, hyp1f1, ndtr

THRESHOLD = 2.0
"""An arm is dropped where its mean is behind by sqrt(THRESHOLD log(2T) / pulls of each arm)."""


def minimax_grid(horizon: float, batches: int) -> np.ndarray:
    """a, a sqrt(a), ... with the last end T: the exponent of a is 1/(2 - 2^(1-M))."""
    powers = 2 - 2.0 ** -np.arange(batches)
    return horizon ** (powers / powers[-1])


def geometric_grid(horizon: float, batches: int) -> np.ndarray:
    """T^(1/M), T^(2/M), ..., T."""
    return horizon ** (np.arange(1, batches + 1) / batches)


def equal_grid(horizon: float, batches: int) -> np.ndarray:
    """Batches of T/M steps."""
    return horizon * np.arange(1, batches + 1) / batches


def regret_exponent(batches: int) -> float:
    """Power of T in the worst regret on the minimax grid."""
    return 1 / (2 - 2.0 ** (1 - batches))


def spaced_gaps(horizon: float, count: int) -> np.ndarray:
    """Return gaps (count,) from far below what T steps can resolve to the largest, 1."""
    return np.geomspace(horizon**-0.6, 1.0, count)


def elimination_bounds(ends: np.ndarray) -> np.ndarray:
    """Largest difference of the arms' sums that keeps both arms, after each batch but the last; 0 where one arm must
    be chosen."""
    bounds = np.sqrt(THRESHOLD * np.log(2 * ends[-1]) * ends[:-1] / 2)
    bounds[-1:] = 0.0
    return bounds


def eliminated_regret(
    gaps: np.ndarray, ends: np.ndarray, runs: int, rng: np.random.Generator, counted: float = 1.0
) -> np.ndarray:
    """Regret (runs, G) of successive elimination: equal shares to arms still in, one arm from the last batch on.

    counted: pulls that the threshold believes each arm to have, over those it has.
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
    """Expected regret (G,) of `eliminated_regret`, exact: the density of the arms' difference of sums, carried from
    batch to batch."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    lengths, bounds, drift = np.diff(ends, prepend=0.0), elimination_bounds(ends), gaps[:, None]
    regret, worse = gaps * ends[0] / 2, np.zeros(gaps.size)
    places, mass = np.zeros(1), np.ones((gaps.size, 1))
    for m in range(ends.size - 1):
        pulls = lengths[m] / 2
        spread, means = np.sqrt(2 * pulls), places + drift * pulls
        worse = worse + (mass * ndtr((-bounds[m] - means) / spread)).sum(axis=1)
        places = bounds[m] * x
        steps = (places[None, None, :] - means[:, :, None]) / spread
        mass = np.einsum("gx,gxy->gy", mass, np.exp(-(steps**2) / 2)) * w * bounds[m] / (spread * np.sqrt(2 * np.pi))
        regret = regret + gaps * lengths[m + 1] * (mass.sum(axis=1) / 2 + worse)
    return regret


def worst_regret(ends: np.ndarray, count: int = 400) -> tuple[float, float]:
    """Exact largest expected regret over gaps up to 1, and the gap that has it."""
    gaps = spaced_gaps(ends[-1], count)
    regret = expected_regret(gaps, ends)
    worst = int(regret.argmax())
    return float(regret[worst]), float(gaps[worst])


def missed(signal: np.ndarray, dimensions: int) -> np.ndarray:
    """1 - E[cos] of the angle between theta and an estimate N(theta, I/n), at signal = |theta| sqrt(n)."""
    signal = np.asarray(signal, dtype=np.float64)
    scale = np.exp(gammaln((dimensions + 1) / 2) - gammaln(dimensions / 2 + 1)) / np.sqrt(2)
    return 1 - signal * scale * hyp1f1(0.5, dimensions / 2 + 1, -(signal**2) / 2)


def exploited_regret(norms: np.ndarray, ends: np.ndarray, dimensions: int, lost: float = 0.0) -> np.ndarray:
    """Expected regret (G,) of pure exploitation in the linear contextual bandit with two N(0, I) contexts a step,
    |theta| = norms (G,).

    lost: steps that the estimate is worth less than it has seen; d + 1 for least squares, because E[(X'X)^-1] =
    I/(n-d-1).
    """
    known = np.maximum(np.concatenate([[0.0], ends[:-1] - lost]), 0.0)
    return (
        norms
        / np.sqrt(np.pi)
        * (np.diff(ends, prepend=0.0) * missed(norms[:, None] * np.sqrt(known), dimensions)).sum(axis=1)
    )


def guessed_regret(
    norms: np.ndarray, ends: np.ndarray, dimensions: int, runs: int, rng: np.random.Generator
) -> np.ndarray:
    """Regret (runs, G) of pure exploitation with estimates drawn from N(theta, I/n); one draw serves all n of a run."""
    along, across = rng.standard_normal((runs, 1)), np.sqrt(rng.chisquare(dimensions - 1, (runs, 1)))
    regret = np.zeros((runs, norms.size))
    seen = np.concatenate([[0.0], ends[:-1]])
    for length, known in zip(np.diff(ends, prepend=0.0), seen, strict=True):
        signal = norms * np.sqrt(known) + along
        regret += length * norms / np.sqrt(np.pi) * (1 - signal / np.hypot(signal, across))
    return regret


def drawn_regret(norm: float, ends: np.ndarray, dimensions: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Realised regret (runs,) of pure exploitation, every context drawn and theta fitted by least squares after each
    batch."""
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
