"""Check replay (T16 to T18 and D2): the effects of old rewards on the baseline, and of old responses on the gradient.

A context is visited again and again, with m rollouts each time; its pass rate l visits ago was p - l delta. The
baseline is the mean of the last w visits before the current one.
"""

import numpy as np

from rftlab.shared.estimator import Estimator
from rftlab.shared.memory import empty_windows, push, window_pool
from rftlab.shared.plumbing.pool import Pool
from rftlab.studies.theory.check import Claims, exact, positive, rate, sampled, theory_check
from rftlab.studies.theory.models import (
    MEAN,
    RLOO,
    all_groups,
    binomial,
    constant,
    groups_by_count,
    softmax_policy,
    weighted_moments,
    weights,
    zscore,
    zscore_factor,
)


def replayed(visits: np.ndarray) -> Pool:
    """Return the windows of n contexts after rewards (n, visits) were pushed one visit at a time, oldest first."""
    contexts = np.arange(len(visits))
    windows = empty_windows(contexts.size, visits.shape[1])
    for rewards in visits.T:
        push(windows, contexts, rewards)
    return window_pool(windows, contexts)


def replay_factor(advantage: Estimator, p: float, old: np.ndarray, trains_on_old: bool = False) -> float:
    """Return W of one current response at pass rate p whose window also holds one reward at each of the pass rates
    `old`, by enumeration of all outcomes."""
    outcomes = all_groups(2, old.size + 1).astype(np.float64)
    rates = np.append(old, p)
    chance = np.where(outcomes == 1, rates, 1 - rates).prod(axis=1)
    windows = replayed(outcomes).rewards.reshape(outcomes.shape)
    if trains_on_old:
        gradient = (weights(advantage, windows) * (outcomes - p)).sum(axis=1)
    else:
        gradient = weights(advantage, outcomes[:, -1:].copy(), windows)[:, 0] * (outcomes[:, -1] - p)
    return float(chance @ gradient / (p * (1 - p)))


@theory_check("T16")
def stale_baseline(mutant: int) -> Claims:
    """Yield the claims of T16: one reward per visit, and old pass rates that are equal, drifting, or far off."""
    drifting, std = np.array([0.05, 0.1, 0.2, 0.35, 0.6]), zscore(0 if mutant == 2 else 1)
    for p in (0.5, 0.9):
        for name, old in {
            "p_old=.1, w=7": np.full(7, 0.1),
            "drifting, w=5": drifting,
            "p_old=0, w=3": np.zeros(3),
        }.items():
            yield exact(
                f"W, group mean, p={p}, {name}", old.size / (old.size + 1), replay_factor(MEAN, p, old, mutant == 1)
            )
    n, s = 8, np.arange(8)
    stale = np.sqrt((n - 1) / n) * float(binomial(n - 1, 0.1) @ (np.sqrt((n - 1 - s) / (s + 1)) + np.sqrt(s / (n - s))))
    for p in (0.5, 0.9):
        yield exact(f"W with std, p={p}, p_old=.1, w=7", stale, replay_factor(std, p, np.full(7, 0.1), mutant == 1))
    yield exact(
        "W with std, p=.5, p_old=.5, w=7",
        float(zscore_factor(8, 0.5)),
        replay_factor(std, 0.5, np.full(7, 0.5), mutant == 1),
    )


def window_error(p: float, drift: float, m: int, w: np.ndarray) -> np.ndarray:
    """Return the mean squared distance of the baseline to p, by window length: the square of drift (w+1)/2, plus sum_l
    p_l q_l / (m w^2)."""
    bias, each = drift * (w + 1) / 2, [p - drift * np.arange(1, size + 1) for size in w]
    return bias**2 + np.array([(old * (1 - old)).sum() for old in each]) / (m * w**2)


def measured_error(rates: np.ndarray, m: int, p: float) -> np.ndarray:
    """Return the mean squared error of the baselines that `shared` forms, for windows w = 1 .. n; rates (n,) are the
    old pass rates, last visit first.

    Every number of successes has its exact probability. Each set holds its rewards twice, because the singleton rule
    applies to one reward alone.
    """
    chance, errors = np.ones(1), np.empty(rates.size)
    for w, old in enumerate(rates, 1):
        # successes of the visits add up, so their distributions convolve
        chance = np.convolve(chance, binomial(m, old))
        baseline = -weights(MEAN, np.zeros((chance.size, 1)), np.repeat(groups_by_count(m * w), 2, axis=1))[:, 0]
        errors[w - 1] = chance @ (baseline - p) ** 2
    return errors


def old_rates(p: float, drift: float, longest: int) -> np.ndarray:
    """Return the pass rates 1, 2, .. visits ago, at most `longest`, as long as they lie between 0 and 1."""
    rates = p - drift * np.arange(1, longest + 1)
    return rates[(rates >= 0) & (rates <= 1)]


def enumerated_error(p: float, drift: float, m: int, w: int) -> float:
    """Return the mean squared error of the baseline for one w, from replay windows with every outcome of the old
    visits, in order."""
    outcomes = all_groups(2, m * w).astype(np.float64)
    rates = p - drift * np.repeat(np.arange(w, 0, -1), m)
    chance = np.where(outcomes == 1, rates, 1 - rates).prod(axis=1)
    windows = replayed(outcomes).rewards.reshape(outcomes.shape)
    return float(chance @ (weights(MEAN, np.zeros((len(windows), 1)), windows)[:, 0] + p) ** 2)


def vertex(errors: np.ndarray) -> float:
    """Return the minimum of a curve over w = 1, 2, .., by a parabola through the least point and its neighbours."""
    i = int(np.clip(errors.argmin(), 1, errors.size - 2))
    before, here, after = errors[i - 1 : i + 2]
    return i + 1 + 0.5 * (before - after) / (before - 2 * here + after)


@theory_check("T17")
def window_length(mutant: int) -> Claims:
    """Yield the claims of T17. The mutant measures at a constant pass rate."""
    drifts = np.array([0.001, 0.002, 0.004, 0.008])
    for p, drift, m, w in ((0.6, 0.05, 1, 6), (0.3, 0.04, 2, 3), (0.5, -0.1, 4, 2)):
        expected = float(window_error(p, drift, m, np.array([w]))[0])
        yield exact(
            f"MSE, p={p}, δ={drift}, m={m}, w={w}", expected, enumerated_error(p, 0.0 if mutant else drift, m, w)
        )
    best = [vertex(measured_error(old_rates(0.5, 0.0 if mutant else drift, 120), 1, 0.5)) for drift in drifts]
    for drift, length in zip(drifts, best, strict=True):
        yield exact(f"w*, p=.5, δ={drift}, m=1", float(best_length(0.5, drift, 1)), length, 2e-3)
    slope = float(np.polyfit(np.log(drifts), np.log(best), 1)[0])
    yield rate("slope of log w* against log δ", -2 / 3, slope, slope, slope)


def best_length(p: float, drift: float, m: int) -> float:
    """Return w of least error, the root above 0 of w^2 (w + 1 - 2/(3m)) = (2pq + drift (p-q) - drift^2/3)/(m
    drift^2)."""
    right = (2 * p * (1 - p) + drift * (2 * p - 1) - drift**2 / 3) / (m * drift**2)
    return max(root.real for root in np.roots([1, 1 - 2 / (3 * m), 0, -right]) if abs(root.imag) < 1e-9)


def longest_useful(p: float, drift: float, m: int) -> float:
    """Return the w at which the window's error is that of the last visit alone: the positive root of w^2 + b w = c."""
    b, c = 3 - 4 / (3 * m), (4 * p * (1 - p) + 2 * drift * (2 * p - 1)) / (m * drift**2) - 2 / (3 * m)
    return (np.sqrt(b**2 + 4 * c) - b) / 2


@theory_check("T18")
def stale_gradient(mutant: int) -> Claims:
    """Yield the claims of T18. The last pair of the bound is nearly deterministic: its bias is half of the bound."""
    for p, old in ((0.6, 0.8), (0.3, 0.05)):
        ratio, rewards = np.array([[(1 - p) / (1 - old)], [p / old]]), np.array([[0.0], [1.0]])
        chance, score = np.array([1 - old, old]), np.array([-p, 1 - p])
        plain, weighted = (
            weights(MEAN, rewards, constant(old), correction)[:, 0]
            for correction in (ratio if mutant == 2 else None, None if mutant == 1 else ratio)
        )
        yield exact(f"no weights, p={p}, p_o={old}", old * (1 - old), float(chance @ (plain * score)))
        yield exact(
            f"its bias, p={p}, p_o={old}", (old - p) * (1 - old - p), float(chance @ (plain * score)) - p * (1 - p)
        )
        yield exact(f"importance weights, p={p}, p_o={old}", p * (1 - p), float(chance @ (weighted * score)))
        used = weighted / weights(MEAN, rewards, constant(old))[:, 0]
        yield exact(
            f"effective share of samples, p={p}, p_o={old}",
            1 / (1 + (p - old) ** 2 / (old * (1 - old))),
            float((chance @ used) ** 2 / (chance @ used**2)),
        )
    rng, slack = np.random.default_rng(18), np.inf
    pairs = [(rng.normal(0, 1.5, (2, 4)), None) for _ in range(50)]
    for (new, past), baseline in [*pairs, (np.array([[0.0, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0]]), 0.0)]:
        now, before = (softmax_policy(logits, [1, 0, 0, 1]) for logits in (new, past))
        arms, b = all_groups(4, 1), before.pass_rate if baseline is None else baseline
        weight = weights(MEAN, now.correct[arms], constant(b))
        biased, _ = weighted_moments(now._replace(probs=before.probs), arms, weight)
        distance = np.abs(now.probs - before.probs).sum() / 2
        bound = (1 if mutant == 3 else 2 * np.sqrt(2)) * distance * max(b, 1 - b)
        slack = min(slack, bound - float(np.linalg.norm(biased - now.gradient)))
    yield positive("smallest distance of the bias below 2√2 TV max|A|, 51 pairs of softmaxes", slack)


@theory_check("D2")
def too_long(mutant: int) -> Claims:
    """Yield the claims of D2: exact errors of every window, then sampled second moments of the advantage, which
    multiply the noise of a style score.

    The mutant measures at a constant pass rate.
    """
    rng = np.random.default_rng(2)
    for p, drift, m in ((0.9, 0.02, 1), (0.8, 0.06, 2), (0.5, 0.04, 4), (0.5, 0.02, 8)):
        limit = longest_useful(p, drift, m)
        errors = measured_error(old_rates(p, 0.0 if mutant else drift, int(1.3 * limit)), m, p)
        useful = 1 + int(np.flatnonzero(errors <= errors[0] * (1 + 1e-12)).max())
        yield exact(f"longest window no worse than the last visit, p={p}, δ={drift}, m={m}", int(limit + 1e-9), useful)
    for p, drift, m in ((0.5, 0.001, 1), (0.5, 0.001, 4)):
        least = measured_error(old_rates(p, 0.0 if mutant else drift, 120), m, p).min()
        yield exact(
            f"worth of the best window in fresh rollouts, p={p}, δ={drift}, m={m}",
            worth(p, drift, m),
            p * (1 - p) / least,
            0.02,
        )
    p, drift, n = 0.9, 0.02, 50_000
    for w in (1, round(best_length(p, drift, 1)), int(longest_useful(p, drift, 1))):
        rates = p - (0.0 if mutant else drift) * np.arange(w, -1, -1)
        windows = (rng.random((n, w + 1)) < rates).astype(np.float64)
        advantage = weights(RLOO, windows[:, -1:].copy(), windows)[:, 0]
        yield sampled(
            f"E[A²], p={p}, δ={drift}, w={w}",
            p * (1 - p) + float(window_error(p, drift, 1, np.array([w]))[0]),
            advantage**2,
        )


def worth(p: float, drift: float, m: int) -> float:
    """Return the number of fresh rollouts whose mean is as close to p as the best window's: for small drifts, two
    thirds of the rollouts in it."""
    return 2 / 3 * m * (2 * p * (1 - p) / (m * drift**2)) ** (1 / 3)
