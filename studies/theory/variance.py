"""Variance, T10 to T12: which baseline gives the least noisy gradient."""

from collections.abc import Callable

from scipy.optimize import brentq

from rftlab.studies.theory.check import Claims, exact, theory_check
from rftlab.studies.theory.models import (
    MEAN,
    RAW,
    RLOO,
    ExactPolicy,
    by_count,
    constant,
    gradient_moments,
    logit_moments,
    one_correct,
    one_logit,
    softmax_policy,
)


def baseline_variance(policy: ExactPolicy, baseline: float) -> float:
    """Total variance of one response's gradient with a constant baseline."""
    return gradient_moments(policy, MEAN, 1, constant(baseline))[1]


def best_baseline(policy: ExactPolicy) -> float:
    """The baseline of least variance: the vertex of the parabola through three measured variances."""
    none, half, one = (baseline_variance(policy, b) for b in (0.0, 0.5, 1.0))
    bend = 2 * (none - 2 * half + one)
    return 0.5 - (one - none) / (2 * bend)


@theory_check("T10")
def least_variance_baseline(mutant: int) -> Claims:
    """T10. The mutant divides by E[r], as a survey prints it."""
    policy = softmax_policy([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1])
    norm = (policy.scores**2).sum(axis=1)
    size, weighted = float(policy.probs @ norm), float((policy.probs * policy.correct) @ norm)
    best = weighted / (policy.pass_rate if mutant else size)
    yield exact("b* of a four-arm softmax", best, best_baseline(policy))
    for b in (-0.5, 0.9):
        yield exact(
            f"V({b}) - V(b*)", (b - best) ** 2 * size, baseline_variance(policy, b) - baseline_variance(policy, best)
        )
    for arms, p in ((2, 0.1), (2, 0.7), (3, 0.3), (10, 0.2)):
        closed = (1 - p) ** 2 * arms / (arms - 1) if mutant else arms * p * (1 - p) / (arms - 2 + arms * p)
        yield exact(f"b*, one correct arm of {arms}, p={p}", closed, best_baseline(one_correct(arms, p)))


@theory_check("T11")
def value_baseline(mutant: int) -> Claims:
    """T11. The greedy response is right at p = .7, so ReMax's baseline is 1."""
    base = (lambda p: 1 - p) if mutant == 1 else (lambda p: p)
    for arms in (2, 3, 5, 10):

        def harm(p: float, arms: int = arms) -> float:
            return baseline_variance(one_correct(arms, p), base(p)) - baseline_variance(one_correct(arms, p), 0.0)

        limit = crossing(harm)
        yield exact(f"pass rate above which the value baseline hurts, A={arms}", (arms + 2) / (3 * arms), limit)
    for p in (0.3, 0.7):
        q, policy, remax = 1 - p, one_logit(p), p > 0.5
        squared = float(policy.gradient @ policy.gradient) if mutant == 3 else 0.0
        for name, expected, baseline in (
            ("without baseline", p * q**3, 0.0),
            ("of the value baseline", p * q * (1 - 2 * p) ** 2, base(p)),
            ("of ReMax", p**3 * q if remax else p * q**3, float(remax != (mutant == 2))),
            ("of baseline 1-p", 0.0, q),
        ):
            yield exact(f"V {name}, p={p}", expected, baseline_variance(policy, baseline) + squared)


def crossing(difference: Callable[[float], float], low: float = 0.02, high: float = 0.98) -> float:
    """The pass rate at which a difference changes its sign; nan where it does not."""
    return (
        brentq(difference, low, high, xtol=1e-14, rtol=1e-14)
        if difference(low) * difference(high) < 0
        else float("nan")
    )


@theory_check("T12")
def leave_one_out(mutant: int) -> Claims:
    """T12."""
    advantage = MEAN if mutant else RLOO
    for policy in (softmax_policy([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1]), softmax_policy([1.2, 0.4, -0.7], [0, 0, 1])):
        p, single = policy.pass_rate, baseline_variance(policy, policy.pass_rate)
        rest = p * (1 - p) - float(policy.gradient @ policy.gradient)
        for size in range(2, 6):
            expected = ((size - 2) * single + 2 * rest) / (size * (size - 1))
            name = f"V, {p:.3f} right of {policy.probs.size} arms, K={size}"
            yield exact(name, expected, gradient_moments(policy, advantage, size)[1])
    for size in (3, 4, 8, 64):
        rloo, raw = by_count(advantage, size), by_count(RAW, size)

        def loss(p: float, rloo=rloo, raw=raw) -> float:
            return group_variance(rloo, p) - group_variance(raw, p)

        limit = crossing(loss)
        yield exact(
            f"one logit: pass rate above which RLOO loses to raw, K={size}", (2 * size - 4) / (3 * size - 5), limit
        )


def group_variance(counted, p: float) -> float:
    """Variance of a group's gradient in the one-logit model."""
    mean, second, _ = logit_moments(counted, p)
    return float(second - mean**2)
