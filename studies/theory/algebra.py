"""Check estimator algebra (T1 to T9, T31, D3 and D38): the mean gradient of an estimator as a factor W(p) on the
gradient of the pass rate, or the objective that it climbs where that is not the pass rate."""

from dataclasses import replace

import numpy as np
from scipy.special import beta

from rftlab.shared.cards import preset
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.estimator import Estimator
from rftlab.shared.objective import objective_and_weights
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import prepare
from rftlab.studies.theory.check import Claims, exact, positive, sampled, theory_check
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
    weighted_moments,
    weights,
    zscore,
    zscore_factor,
)

FOUR_ARMS = softmax_policy([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1])
"""Softmax over four arms, two of them correct; its greedy arm is wrong."""


@theory_check("T1")
def unbiased(mutant: int) -> Claims:
    """Yield the claims of T1. ReMax's baseline, the greedy response's reward, is a baseline set of that mean.

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
    """Yield the claims of T2, by enumeration of groups and of batches."""
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
    """Return W of each context of a batch with pass rates `rates`, by enumeration of all batches with `size` rollouts
    of each context."""
    p, n = np.repeat(rates, size), len(rates) * size
    group, starts, logp, total = np.repeat(np.arange(len(rates)), size), np.arange(n + 1), np.zeros(n), np.zeros(n)
    for rewards in all_groups(2, n).astype(np.float64):
        batch = prepare(estimator, rewards, group, starts, logp, pool=Pool(rewards, starts[::size].copy()), n_rows=size)
        chance, weight = np.where(rewards == 1, p, 1 - p).prod(), objective_and_weights(estimator, batch, logp).weight
        total += chance * weight * (rewards - p)
    return list(total.reshape(len(rates), size).sum(axis=1) / (np.array(rates) * (1 - np.array(rates))))


@theory_check("T3")
def group_std(mutant: int) -> Claims:
    """Yield the claims of T3: K <= 5 by enumeration of groups of a four-arm softmax, more by counts, K -> inf by
    extrapolation."""
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
    """Yield the claims of T4, for one advantage at two pass rates."""
    ratio = {2: 1.0, 3: 1.0, **{size: float(zscore_factor(size, 0.05) / zscore_factor(size, 0.5)) for size in (4, 8)}}
    for size, expected in ratio.items():
        advantage, rates = MEAN if mutant == 1 else zscore(1), [0.05, 0.5]
        low, high = limit_factor(advantage, rates) if mutant == 2 else measured_factor(advantage, size, rates)
        yield exact(f"W(.05)/W(.5), K={size}", expected, float(low / high))
    single = weights(MEAN if mutant == 1 else reinforce_with(Advantage("group_mean", "group_std")), np.ones((1, 1)))
    yield exact("advantage of reward 1 at K=1", 1 / (1 + 1e-6), single.item())


def silent_chance(estimator: Estimator, size: int, p) -> np.ndarray:
    """Return the chance that all advantages of a group are 0."""
    return binomial(size, p) @ (by_count(estimator, size).squares == 0.0)


@theory_check("T5")
def zero_signal(mutant: int) -> Claims:
    """Yield the claims of T5, over Beta-distributed pass rates by Gauss-Jacobi quadrature, which is exact here."""
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
    """Yield the claims of T6, from 40 batches of 5000 contexts with uniform pass rates. Advantages are divided by the
    batch's standard deviation of rewards (LitePPO) or of advantages (whitened).

    Each comparison allows a relative bias of 0.1%, because a batch is finite.
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
    """Yield the claims of D38. Every arm is split in two, passed and failed by the verifier. The pass rate p' = a +
    (1-a-b) p has a gradient that is 1-a-b times that of p; where a + b exceeds 1, training moves to wrong answers."""
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


P, SLOPE = np.array([0.5, 0.05]), np.array([1.0, -4.5])
"""Pass rates and slopes for T7: two contexts share theta, context A with logit theta, context B with logit -4.5 theta -
ln 19; theta is 0."""


@theory_check("T7")
def downhill(mutant: int) -> Claims:
    """Yield the claims of T7, on two contexts that share a parameter."""
    advantage, push = MEAN if mutant == 1 else zscore(1), SLOPE * P * (1 - P)
    true = float(push @ measured_factor(zscore(1) if mutant == 2 else RAW, 8, P))
    yield exact("dJ/dtheta", 1 * 0.5 * 0.5 - 4.5 * 0.05 * 0.95, true)
    steps = {size: float(push @ measured_factor(advantage, size, P)) for size in (4, 8, 64)}
    for size, step in steps.items():
        yield exact(f"step of GRPO, K={size}", float(push @ zscore_factor(size, P)), step)
    yield exact(
        "step of GRPO, K -> inf", float(SLOPE @ np.sqrt(P * (1 - P))), float(push @ limit_factor(advantage, P)), 1e-3
    )
    for size in (8, 64):
        yield positive(f"fall of J along the step, K={size}, per unit of rate", -true * steps[size])


def pkpo(k: int, loo: bool = False) -> Estimator:
    """Return the estimator with PKPO's credit for k responses; `loo` subtracts pass@(k-1) of the other responses."""
    return reinforce_with(Advantage("leave_one_out" if loo else "none", credit="pass_at_k", k=k))


BEST_MINUS_SECOND = reinforce_with(Advantage("second_best"))


@theory_check("T8")
def pass_at_k_gradient(mutant: int) -> Claims:
    """Yield the claims of T8; J_k by complex step. Mutant 1 credits right responses alone, k times their reward."""
    p, rest, missed = FOUR_ARMS.pass_rate, 0.0, mutant == 3
    policy = FOUR_ARMS._replace(scores=np.eye(4)) if mutant == 4 else FOUR_ARMS
    # complex step: the imaginary part over 1e-30 is the derivative, without the cancellation of a difference
    steps = np.log(FOUR_ARMS.probs) + 1e-30j * np.eye(4)
    shifted = np.exp(steps) @ FOUR_ARMS.correct / np.exp(steps).sum(axis=1)
    for n, k in ((3, 2), (5, 2), (5, 4), (5, 5)):
        arms = all_groups(4, n)
        for name, spec in (("PKPO", pkpo(k)), ("PKPO less the others'", pkpo(k, loo=True))):
            credit = (k if mutant == 1 else 1) * weights(RAW if mutant == 1 else spec, FOUR_ARMS.correct[arms])
            factor, across = along_gradient(FOUR_ARMS, weighted_moments(policy, arms, credit)[0])
            yield exact(f"W of {name}, pass@{k} from {n}", k * (1 - p) ** (k - 1), factor)
            rest = max(rest, across)
    for size in (2, 4, 5):
        factor, across = along_gradient(FOUR_ARMS, (1 - (1 - shifted) ** size).imag / 1e-30)
        yield exact(f"grad pass@{size} over grad p", size * (1 - p) ** (size - 1 + missed), factor)
        rest, arms = max(rest, across), all_groups(4, size)
        best = RAW if mutant == 2 else BEST_MINUS_SECOND
        mean, _ = weighted_moments(FOUR_ARMS, arms, weights(best, FOUR_ARMS.correct[arms]))
        yield exact(
            f"W of best minus second best, group mean, K={size}",
            (1 - p) ** (size - 1 + missed),
            along_gradient(FOUR_ARMS, mean)[0],
        )
    yield exact("largest part off the direction of grad p", 0.0, rest)


@theory_check("T9")
def minimalist(mutant: int) -> Claims:
    """Yield the claims of T9, from groups of two, one right and one wrong response, over a range of ratios."""
    ratio, high = np.linspace(0.05, 3.0, 60), 0.2
    plain = replace(MEAN if mutant else RAW, surrogate=preset("minimalist").surrogate)
    rewards, group, starts = np.tile([1.0, 0.0], 60), np.repeat(np.arange(60), 2), np.arange(121)
    logp, old = np.repeat(np.log(ratio), 2), np.zeros(120)
    batch = prepare(plain, rewards, group, starts, old, n_rows=1)
    away, here = objective_and_weights(plain, batch, logp), objective_and_weights(plain, batch, old)
    reinforce = objective_and_weights(RAW, prepare(RAW, rewards, group, starts, old, n_rows=1), old)
    yield exact("objective over all ratios", float(np.minimum(ratio, 1 + high).sum()), away.objective)
    yield exact("largest weight of a wrong answer", 0.0, float(np.abs(away.weight[1::2]).max()))
    yield exact(
        "largest distance of a right answer's weight to R·ratio below the clip, 0 above",
        0.0,
        float(np.abs(away.weight[::2] - ratio * (ratio < 1 + high)).max()),
    )
    yield exact(
        "on-policy: largest distance to REINFORCE's weight", 0.0, float(np.abs(here.weight - reinforce.weight).max())
    )


@theory_check("D3")
def ceiling(mutant: int) -> Claims:
    """Yield the claims of D3: the bounds on a grid of pass rates, and how nearly its two ends reach them."""
    p, advantage = np.geomspace(1e-6, 0.5, 60), zscore(1 if mutant == 1 else 0)
    if mutant == 2:
        advantage = reinforce_with(replace(advantage.advantage, baseline="leave_one_out"))
    for size in (4, 8, 64):
        factor = measured_factor(advantage, size, p)
        bound = np.minimum(np.sqrt(size - 1), np.sqrt((size - 1) / (size * p * (1 - p))))
        yield positive(f"smallest distance below the bound, K={size}", float((bound * (1 + 1e-12) - factor).min()))
        yield exact(f"W(p = 10⁻⁶), K={size}", np.sqrt(size - 1), float(factor[0]), 1e-4)
    for rate in (0.2, 0.5):
        u = rate * (1 - rate)
        gap = 8 * 512 * u * (1 - np.sqrt(u) * float(measured_factor(advantage, 512, rate)))
        yield exact(f"gap to 1/√(pq), in units of 1/(8Kpq), K=512, p={rate}", 1.0, gap, 0.02)


SPELLED, LENGTHS = softmax_policy([0.4, -0.3, 0.2, 0.0], [1, 1, 0, 0]), np.array([2, 6, 3, 9])
"""Policy and lengths in tokens of T31: a short and a long right answer, a short and a long wrong one."""
SEQUENCE, CONSTANT = Aggregation("seq_mean_token_mean"), Aggregation("seq_mean_token_sum", length=9.0)
"""Mean over responses of their mean over tokens (GRPO), and of their sums over a constant length (Dr. GRPO), in T31."""


def spelled_gradient(estimator: Estimator, arms: np.ndarray, size: int) -> np.ndarray:
    """Return the gradient (d,) of one batch of responses (n,) in groups of `size`, each as long as its arm."""
    starts = np.concatenate([[0], np.cumsum(LENGTHS[arms])])
    logp = np.zeros(starts[-1])
    logp[starts[:-1]] = np.log(SPELLED.probs[arms])
    batch = prepare(estimator, SPELLED.correct[arms], np.arange(arms.size) // size, starts, logp)
    return objective_and_weights(estimator, batch, logp).weight[starts[:-1]] @ SPELLED.scores[arms]


def spelled_mean(estimator: Estimator, size: int) -> np.ndarray:
    """Return the mean gradient (d,) of one group, by enumeration of all groups."""
    groups = all_groups(LENGTHS.size, size)
    return SPELLED.probs[groups].prod(axis=1) @ [spelled_gradient(estimator, group, size) for group in groups]


@theory_check("T31")
def length_bias(mutant: int) -> Claims:
    """Yield the claims of T31. A_j is (K-1)/K (r_j - the others' mean), and arms fix the lengths, so E[A s/|o|] is
    (K-1)/K times E[r s/|o|] - p E[s/|o|]. E[f s] is the gradient of E[f]."""
    size, probs, p = 3, SPELLED.probs, SPELLED.pass_rate
    by_length, total, raw, mean = SEQUENCE, Aggregation("token_mean"), RAW, MEAN
    fixed, alone = CONSTANT, total
    if mutant == 1:
        by_length = alone = CONSTANT
    elif mutant == 2:
        fixed = total = SEQUENCE
    shorter = (probs * SPELLED.correct / LENGTHS) @ SPELLED.scores
    brief = (probs / LENGTHS) @ SPELLED.scores
    plain = spelled_mean(replace(raw, aggregation=by_length), size)
    centred = spelled_mean(replace(mean, aggregation=by_length), size)
    factor, across = along_gradient(SPELLED, spelled_mean(replace(mean, aggregation=fixed), size))
    kept = (size - 1) / size
    yield exact("raw, 1/|o|: distance to ∇E[r/|o|]", 0.0, float(np.abs(plain - shorter).max()))
    yield exact(
        "group mean, 1/|o|: distance to (K−1)/K (∇E[r/|o|] − p∇E[1/|o|])",
        0.0,
        float(np.abs(centred - kept * (shorter - p * brief)).max()),
    )
    push = centred / probs  # a tabular gradient is π_a (E_a - E), and E, common to all, cancels in differences
    for name, short, long, share in (("right", 0, 1, 1 - p), ("wrong", 2, 3, -p)):
        speeds = [share * (1 / LENGTHS[arm]) for arm in (short, long)]
        yield exact(
            f"1/|o|: what the advantage moves the long {name} answer more than the short one, per choice",
            kept * (speeds[1] - speeds[0]),
            float(push[long] - push[short]),
        )
    yield exact("constant length L: W L", kept, factor * 9.0)
    yield exact("constant length: part off the direction of ∇p", 0.0, across)
    yield positive(
        "token mean, one group: part off the direction of ∇p, less 10⁻⁶",
        along_gradient(SPELLED, spelled_mean(replace(mean, aggregation=alone), size))[1] - 1e-6,
    )
    rng, many = np.random.default_rng(31), replace(mean, aggregation=total)
    drawn = [spelled_gradient(many, rng.choice(4, 3 * 256, p=probs), size) for _ in range(600)]
    along = np.array(drawn) @ SPELLED.gradient / (SPELLED.gradient @ SPELLED.gradient)
    yield sampled("token mean, 256 groups: W E|o|", kept, along * float(probs @ LENGTHS), slack=0.01)
