"""Slow, obvious twins of the compiled estimators: plain Python, one formula at a time.

Only values are written here. Derivatives come from the complex step, f'(x) = Im f(x + ih)/h, which is exact to rounding, so no
slope is copied from the package. Where a rule branches, it branches on the real part.
"""

import cmath
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from shared.estimator import KL, Advantage, Aggregation, Estimator, Surrogate

STEP = 1e-30


def derivative(function: Callable[[complex], complex], x: float) -> float:
    """f'(x) by the complex step."""
    return complex(function(complex(x, STEP))).imag / STEP


def held(x, limit: float):
    """x held within +-limit; constant, so without derivative, outside."""
    if x.real > limit:
        return limit
    return -limit if x.real < -limit else x


def pools(n_groups: int, *parts: tuple[Iterable[float], Iterable[int]]) -> list[list[float]]:
    """Baseline set of each group, part after part."""
    sets = [[] for _ in range(n_groups)]
    for rewards, group in parts:
        for reward, g in zip(rewards, group, strict=True):
            sets[int(g)].append(float(reward))
    return sets


class Windows:
    """The most recent `size` rewards of each context."""

    def __init__(self, n_contexts: int, size: int):
        self.of = [deque(maxlen=size) for _ in range(n_contexts)]

    def push(self, contexts: Iterable[int], rewards: Iterable[float]) -> None:
        for context, reward in zip(contexts, rewards, strict=True):
            self.of[int(context)].append(float(reward))

    def pools(self, contexts: Iterable[int]) -> list[list[float]]:
        return [list(self.of[int(context)]) for context in contexts]


def advantage(spec: Advantage, reward: float, pool: Sequence[float], every_reward: Sequence[float]) -> float:
    """Advantage of one response against its baseline set; `every_reward` is the union of all sets."""
    if spec.kind == "reward":
        return reward
    if spec.kind == "batch_mean":
        return reward - statistics.mean(every_reward)
    if len(pool) == 1:
        if spec.singleton == "zero":
            return 0.0
        return reward / (1.0 + spec.eps) if spec.kind == "group_zscore" else reward
    if spec.kind == "group_mean":
        return reward - statistics.mean(pool)
    if spec.kind == "leave_one_out":
        others = list(pool)
        others.remove(reward)
        return reward - statistics.mean(others)
    spread = statistics.stdev(pool) if spec.ddof == 1 else statistics.pstdev(pool)
    return (reward - statistics.mean(pool)) / (spread + spec.eps)


def advantages(spec: Advantage, rewards: Iterable[float], group: Iterable[int], sets: Sequence[Sequence[float]]) -> list[float]:
    """Advantage of every response."""
    every_reward = [reward for pool in sets for reward in pool]
    return [advantage(spec, float(reward), sets[int(g)], every_reward) for reward, g in zip(rewards, group, strict=True)]


def surrogate(spec: Surrogate, advantage: float, logp, old_logp: float):
    """Objective of one token, whether it is clipped, and whether the dual clip holds it."""
    if spec.kind == "reinforce":
        return advantage * logp, False, False
    ratio = cmath.exp(held(logp - old_logp, 20.0))
    is_clipped = (advantage > 0 and ratio.real > 1 + spec.high) or (advantage < 0 and ratio.real < 1 - spec.low)
    if is_clipped:
        ratio = 1 + spec.high if advantage > 0 else 1 - spec.low
    is_dual = advantage < 0 and spec.dual is not None and ratio.real > spec.dual
    if is_dual:
        ratio = spec.dual
    return advantage * ratio, is_clipped, is_dual


def kl(kind: str, logp, ref_logp: float):
    """Estimate of the KL divergence from one token."""
    d = logp - ref_logp
    if kind == "k1":
        return d
    if kind == "k2":
        return d * d / 2
    if kind == "k3":
        u = held(-d, 20.0)
        return held(cmath.exp(u) - u - 1, 10.0)
    if kind == "abs":
        return d if d.real > 0 else -d if d.real < 0 else 0.0 * d
    return 0.0 * d


def aggregate(spec: Aggregation, rows: Sequence[Sequence], n_tokens: int | None = None, n_rows: int | None = None):
    """Objective of a batch from the objectives of its tokens, one list per response."""
    length = 1.0 if spec.length is None else spec.length
    if n_tokens is None:
        n_tokens = sum(len(row) for row in rows)
    if n_rows is None:
        n_rows = sum(1 for row in rows if row or spec.empty == "count")
    if spec.kind == "token_mean":
        return sum(sum(row) for row in rows) / (n_tokens + spec.eps)
    if spec.kind == "token_sum":
        return sum(sum(row) for row in rows) / length
    if spec.kind == "seq_mean_token_sum":
        return sum(sum(row) / length for row in rows) / n_rows
    return sum(sum(row) / (len(row) + spec.eps) for row in rows if row) / n_rows


def rows_of(values: Sequence, starts: Sequence[int]) -> list[list]:
    """Packed tokens as one list per response."""
    return [list(values[a:b]) for a, b in pairwise(starts)]


def per_token(values: Sequence[float], starts: Sequence[int]) -> list[float]:
    """The value of each response, once for each of its tokens."""
    return [value for i, value in enumerate(values) for _ in range(starts[i], starts[i + 1])]


def shaped_rewards(spec: KL, rewards: Sequence[float], starts: Sequence[int], old_logp: Sequence[float], ref_logp: Sequence[float]) -> list[float]:
    """Rewards minus the sampled penalty of each response."""
    if spec.place != "reward":
        return [float(reward) for reward in rewards]
    penalties = [kl(spec.kind, complex(old), ref).real for old, ref in zip(old_logp, ref_logp, strict=True)]
    return [float(reward) - spec.coef * sum(row) for reward, row in zip(rewards, rows_of(penalties, starts), strict=True)]


def penalty(spec: KL, logp, ref_logp: float):
    """The KL penalty of one token; straight_through has the value of its kind and the derivative of k2."""
    if not spec.straight_through or spec.kind == "none":
        return kl(spec.kind, logp, ref_logp)
    k2 = kl("k2", logp, ref_logp)
    return kl(spec.kind, complex(logp.real), ref_logp) + k2 - k2.real


def objective(estimator: Estimator, advantages, starts, old_logp, ref_logp, logp, correction=None, n_tokens=None, n_rows=None):
    """J of a batch from advantages per token (T,), with clipped tokens, dual-clipped tokens and the sum of the KL values."""
    coef = estimator.kl.coef if estimator.kl.place == "loss" else 0.0
    values, clipped, dual_clipped, kl_total = [], 0, 0, 0.0
    for t, x in enumerate(logp):
        value, is_clipped, is_dual = surrogate(estimator.surrogate, advantages[t], x, old_logp[t])
        kl_value = penalty(estimator.kl, complex(x), ref_logp[t])
        values.append((1.0 if correction is None else correction[t]) * value - coef * kl_value)
        clipped, dual_clipped, kl_total = clipped + is_clipped, dual_clipped + is_dual, kl_total + kl_value.real
    return aggregate(estimator.aggregation, rows_of(values, starts), n_tokens, n_rows), clipped, dual_clipped, kl_total


def weights(estimator: Estimator, advantages, starts, old_logp, ref_logp, logp, **rest) -> list[float]:
    """dJ/dlogp of every token, one complex step through the whole objective each."""
    logp = [complex(x) for x in logp]

    def along(t: int) -> Callable[[complex], complex]:
        return lambda x: objective(estimator, advantages, starts, old_logp, ref_logp, [*logp[:t], x, *logp[t + 1 :]], **rest)[0]

    return [derivative(along(t), x.real) for t, x in enumerate(logp)]
