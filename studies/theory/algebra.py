"""Estimator algebra, T1 to T6 and D38: what the mean gradient of an estimator is, as a factor W(p) on the gradient of
the pass rate."""

import numpy as np
from scipy.special import beta

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.estimator import Estimator
from rftlab.shared.objective import objective_and_weights
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import prepare
from rftlab.studies.theory.check import Claims, exact, sampled, theory_check
from rftlab.studies.theory.models import (
    MEAN,
    RAW,
    RLOO,
    ExactPolicy,
    all_groups,
    along_gradient,
    beta_rates,
    binomial,
    by_count,
    constant,
    gradient_moments,
    groups_by_count,
    limit_factor,
    measured_factor,
    reinforce_with,
    softmax_policy,
    weights,
    zscore,
    zscore_factor,
)

FOUR_ARMS = softmax_policy([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1])
"""A softmax over four arms, two of them correct; its greedy arm is wrong."""


@theory_check("T1")
def unbiased(mutant: int) -> Claims:
    """T1. ReMax's baseline, the greedy response's reward, enters as a baseline set of that mean.

    Mutant 2 has the scores e_a in place of e_a - pi.
    """
    policy = FOUR_ARMS._replace(scores=np.eye(4)) if mutant == 2 else FOUR_ARMS
    greedy = FOUR_ARMS.correct[FOUR_ARMS.probs.argmax()]
    cases = {
        "raw": (RAW, None, 1),
        "RLOO": (MEAN if mutant == 1 else RLOO, None, 2),
        "ReMax": (MEAN, constant(greedy), 1),
        "baseline 1": (MEAN, constant(1.0), 1),
    }
    rest = 0.0
    for name, (advantage, baseline, smallest) in cases.items():
        for size in range(smallest, 6):
            factor, across = along_gradient(FOUR_ARMS, gradient_moments(policy, advantage, size, baseline)[0])
            yield exact(f"W of {name}, K={size}", 1.0, factor)
            rest = max(rest, across)
    for advantage in (RLOO, MEAN, zscore(1), zscore(0)):
        size, p, rule = 5, FOUR_ARMS.pass_rate, advantage.advantage
        right, wrong = (size * column for column in weights(advantage, groups_by_count(size)).T[[0, -1]])
        master = binomial(size - 1, p) @ ((right[:-1] if mutant == 3 else right[1:]) - wrong[:-1])
        factor, across = along_gradient(FOUR_ARMS, gradient_moments(FOUR_ARMS, advantage, size)[0])
        yield exact(f"master formula, {rule.baseline}, {rule.scale}, ddof {rule.ddof}, K=5", master, factor)
        rest = max(rest, across)
    yield exact("largest part off the direction of grad p", 0.0, rest)


@theory_check("T2")
def group_mean(mutant: int) -> Claims:
    """T2."""
    own, batch = (RLOO, MEAN) if mutant else (MEAN, reinforce_with(Advantage("batch_mean")))
    for size in range(2, 6):
        yield exact(
            f"W, K={size}", (size - 1) / size, along_gradient(FOUR_ARMS, gradient_moments(FOUR_ARMS, own, size)[0])[0]
        )
    for size in (2, 5):
        rewards = all_groups(2, size).astype(np.float64)
        gap = np.abs(weights(own, rewards) - (size - 1) / size * weights(RLOO, rewards)).max()
        yield exact(f"largest distance to (K-1)/K of RLOO's advantage, K={size}", 0.0, gap)
    for p, factor in zip((0.2, 0.7), batch_factors(batch, (0.2, 0.7), 2), strict=True):
        yield exact(f"W of the batch mean, N=4, p={p}", 1 - 1 / 4, factor)


def batch_factors(estimator: Estimator, rates: tuple[float, ...], size: int) -> list[float]:
    """W of each context of a batch with pass rates `rates`, by enumeration of all batches of `size` rollouts of
    each."""
    p, n = np.repeat(rates, size), len(rates) * size
    group, starts, logp, total = np.repeat(np.arange(len(rates)), size), np.arange(n + 1), np.zeros(n), np.zeros(n)
    for rewards in all_groups(2, n).astype(np.float64):
        batch = prepare(estimator, rewards, group, starts, logp, pool=Pool(rewards, starts[::size].copy()), n_rows=size)
        total += (
            np.where(rewards == 1, p, 1 - p).prod()
            * objective_and_weights(estimator, batch, logp).weight
            * (rewards - p)
        )
    return list(total.reshape(len(rates), size).sum(axis=1) / (np.array(rates) * (1 - np.array(rates))))


@theory_check("T3")
def group_std(mutant: int) -> Claims:
    """T3. K <= 5 by enumeration of all groups of a four-arm softmax, more by counts; K -> inf by extrapolation."""
    p, u = FOUR_ARMS.pass_rate, FOUR_ARMS.pass_rate * (1 - FOUR_ARMS.pass_rate)
    closed = {2: 1.0, 3: np.sqrt(2), 4: np.sqrt(3) - (2 * np.sqrt(3) - 3) * u, 5: float(zscore_factor(5, p, 0))}
    for size, factor in closed.items():
        for ddof in (0, 1):
            used = zscore(1 - ddof if mutant == 1 else ddof)
            measured, _ = along_gradient(FOUR_ARMS, gradient_moments(FOUR_ARMS, used, size)[0])
            yield exact(f"W, K={size}, ddof {ddof}", factor * np.sqrt((size - ddof) / size), measured)
    for size, p in ((8, 0.05), (8, 0.2), (8, 0.5), (64, 0.05)):
        yield exact(
            f"W({p}), K={size}, ddof 1",
            float(zscore_factor(size, p)),
            float(measured_factor(zscore(0 if mutant == 1 else 1), size, p)),
        )
    nodes, chances = np.polynomial.legendre.leggauss(10)
    nodes = 0.5 + 0.4 * nodes
    limit = measured_factor(zscore(1), 128, nodes) if mutant == 2 else limit_factor(zscore(1), nodes)
    for p, w in zip(nodes[::3], limit[::3], strict=True):
        yield exact(f"W({p:.3f}), K -> inf", 1 / np.sqrt(p * (1 - p)), float(w), 1e-3)
    yield exact(
        "integral of W from .1 to .9",
        2 * np.arcsin(np.sqrt(0.9)) - 2 * np.arcsin(np.sqrt(0.1)),
        float(0.4 * chances @ limit),
        1e-4,
    )


@theory_check("T4")
def std_direction(mutant: int) -> Claims:
    """T4."""
    ratio = {2: 1.0, 3: 1.0, **{size: float(zscore_factor(size, 0.05) / zscore_factor(size, 0.5)) for size in (4, 8)}}
    for size, expected in ratio.items():
        advantage, rates = MEAN if mutant == 1 else zscore(1), [0.05, 0.5]
        low, high = limit_factor(advantage, rates) if mutant == 2 else measured_factor(advantage, size, rates)
        yield exact(f"W(.05)/W(.5), K={size}", expected, float(low / high))
    single = weights(MEAN if mutant == 1 else reinforce_with(Advantage("group_mean", "group_std")), np.ones((1, 1)))[
        0, 0
    ]
    yield exact("advantage of reward 1 at K=1", 1 / (1 + 1e-6), float(single))


def silent_chance(estimator: Estimator, size: int, p) -> np.ndarray:
    """Chance that a group has no advantage but 0."""
    return binomial(size, p) @ (by_count(estimator, size).squares == 0.0)


@theory_check("T5")
def zero_signal(mutant: int) -> Claims:
    """T5. Beta-distributed pass rates by Gauss-Jacobi quadrature, which is exact here."""
    advantage = RAW if mutant else reinforce_with(Advantage("group_mean", "group_std"))
    yield exact("p=.95, K=8", 0.05**8 + 0.95**8, float(silent_chance(advantage, 8, 0.95)))
    for a, b, size in ((0.5, 1.5, 8), (0.2, 0.6, 64)):
        rates, expected = beta_rates(a, b), (beta(a + size, b) + beta(a, b + size)) / beta(a, b)
        yield exact(
            f"Beta({a}, {b}), K={size}",
            float(expected),
            float(rates.chances @ silent_chance(advantage, size, rates.values)),
        )


@theory_check("T6")
def batch_std(mutant: int) -> Claims:
    """T6. 40 batches of 5000 contexts with uniform pass rates. Over the batch's deviation of rewards (LitePPO), or of
    advantages (whitened).

    Each comparison allows a relative bias of 0.1%, for a batch is finite.
    """
    batches, size, rng = (40, 5000), 4, np.random.default_rng(6)
    p = rng.random((*batches, 1))
    rewards = (rng.random((*batches, size)) < p).astype(np.float64)
    specs = {
        "rewards": reinforce_with(Advantage("group_mean", "batch_std", ddof=0, eps=0.0)),
        "advantages": reinforce_with(Advantage("group_mean", whiten="responses", ddof=0, eps=0.0)),
    }
    expected = {"rewards": np.sqrt(1 / 2 * 1 / 2), "advantages": np.sqrt((size - 1) / size / 6)}
    centred = rewards - rewards.mean(axis=2, keepdims=True)
    for name, sd in expected.items():
        advantage = size * np.array([weights(zscore(1) if mutant else specs[name], batch) for batch in rewards])
        spread = np.sqrt((centred**2).sum(axis=(1, 2)) / (advantage**2).sum(axis=(1, 2)))
        yield sampled(f"batch std of {name}", sd, spread, 1e-3)
        for low, high in ((0.0, 0.25), (0.4, 0.6)):
            inside = (p >= low) & (p < high)
            gradient = (advantage * (rewards - p)).mean(axis=2, keepdims=True).sum(axis=(1, 2), where=inside)
            measured = gradient / (p * (1 - p)).sum(axis=(1, 2), where=inside)
            yield sampled(
                f"W over the batch std of {name}, p in [{low}, {high})", (size - 1) / size / sd, measured, 1e-3
            )


@theory_check("D38")
def reward_flips(mutant: int) -> Claims:
    """D38. Every arm counts twice, as passed and as failed by the verifier. Its pass rate p' = a + (1-a-b) p has a
    gradient that is 1-a-b times that of p; where a + b is beyond 1 it teaches what is wrong."""
    size, rest, p, (probs, right, scores) = 4, 0.0, FOUR_ARMS.pass_rate, FOUR_ARMS
    for a, b in ((0.2, 0.0), (0.0, 0.3), (0.2, 0.3), (0.6, 0.7)):
        passed = np.where(right == 1, 1 - b, [0, a / 2, a, 0] if mutant == 3 else a)
        policy = ExactPolicy(np.hstack([probs * passed, probs * (1 - passed)]), np.repeat([1.0, 0.0], 4),
                             np.tile(scores, (2, 1)))  # fmt: skip
        kept, seen = 1.0 if mutant == 1 else 1 - a - b, p if mutant == 2 else a + (1 - a - b) * p
        factors = {"raw": (RAW, 1), "RLOO": (RLOO, 1), "group mean": (MEAN, (size - 1) / size),
                   "GRPO": (zscore(1), zscore_factor(size, seen))}  # fmt: skip
        for name, (estimator, factor) in factors.items():
            measured, across = along_gradient(FOUR_ARMS, gradient_moments(policy, estimator, size)[0])
            yield exact(f"W of {name}, a={a}, b={b}", float(kept * factor), measured)
            rest = max(rest, across)
    yield exact("largest part off the direction of ∇p", 0.0, rest)
