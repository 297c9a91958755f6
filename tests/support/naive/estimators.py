"""Slow, obvious twins of the compiled estimators: plain Python, one formula at a time. Here: baseline sets, advantages,
sampling.

Only values are written here and in naive_objective.py. Derivatives come from the complex step, f'(x) = Im f(x + ih)/h,
which is exact to rounding, so no slope is copied from the package. Where a rule branches, it branches on the real part.
"""

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from rftlab.shared.config.advantage import Advantage

STEP = 1e-30


def derivative(function: Callable[[complex], complex], x: float) -> float:
    """f'(x) by the complex step."""
    return complex(function(complex(x, STEP))).imag / STEP


def rows_of(values: Sequence, starts: Sequence[int]) -> list[list]:
    """Packed tokens as one list per response."""
    return [list(values[a:b]) for a, b in pairwise(starts)]


def per_token(values: Sequence, starts: Sequence[int]) -> list:
    """The value of each response, once for each of its tokens."""
    return [value for value, (a, b) in zip(values, pairwise(starts), strict=True) for _ in range(a, b)]


# --- baseline sets ---


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


class Averages:
    """Every visit of every context, with the decay that it brought."""

    def __init__(self):
        self.visits: list[tuple[int, float, list[float]]] = []

    def add(self, contexts: Iterable[int], rewards: Iterable[Iterable[float]], decay: float) -> None:
        for context, row in zip(contexts, rewards, strict=True):
            self.visits.append((int(context), decay, [float(reward) for reward in row]))

    def sums(self, context: int | None) -> tuple[float, float]:
        """Weighted sum and count of the rewards of a context, or of all: each later visit takes its decay off the
        weight."""
        visits = [(decay, row) for visited, decay, row in self.visits if context is None or visited == context]
        weights = [math.prod(decay for decay, _ in visits[i + 1 :]) for i in range(len(visits))]
        rows = [(weight, row) for weight, (_, row) in zip(weights, visits, strict=True)]
        return sum(weight * sum(row) for weight, row in rows), sum(weight * len(row) for weight, row in rows)

    def average(self, context: int) -> float:
        """Of the context, else of all contexts, else 0."""
        for total, count in (self.sums(context), self.sums(None)):
            if count > 0:
                return total / count
        return 0.0

    def difficulty(self, context: int) -> float:
        total, count = self.sums(context)
        return min(1.0, max(0.0, (total + 1) / (count + 2)))


# --- advantages of responses ---


def deviation(values: Sequence[float], ddof: int) -> float:
    return statistics.stdev(values) if ddof == 1 else statistics.pstdev(values)


def without(values: Sequence[float], one: float) -> list[float]:
    """The values without one that equals `one`."""
    others = list(values)
    others.remove(one)
    return others


def pass_at_k(spec: Advantage, reward: float, pool: Sequence[float]) -> float:
    """n times a response's part in the mean over k-subsets of the set of the best reward; leave_one_out takes off
    the best of the subset's others."""
    others, n = without(pool, reward), len(pool)
    total = 0.0
    for subset in combinations(others, spec.k - 1):
        rest = max(subset, default=0.0) if spec.baseline == "leave_one_out" else 0.0
        total += max([reward, *subset]) - rest
    return n * total / math.comb(n, spec.k)


def shrunk(reward: float, pool: Sequence[float], sets: Sequence[Sequence[float]]) -> float:
    """The mean of the other rewards of a group, drawn to the mean of the other groups' means as far as these say
    that a mean is noise."""
    rest = [one for one in sets if one and one is not pool]
    means, n = [statistics.mean(one) for one in rest], len(rest) + 1
    noise = [statistics.variance(one) / len(one) for one in rest if len(one) > 1]
    within, between = statistics.mean(noise or [0.0]), statistics.pvariance(means) if means else 0.0
    part = (n - 1) / n * within / (within + between) if within > 0 else 0.0
    return (1 - part) * statistics.mean(without(pool, reward)) + part * (statistics.mean(means) if means else 0.0)


def baseline(spec: Advantage, reward: float, pool: Sequence[float], every_reward, weighted: float, sets) -> float:
    """What is taken off a reward; `weighted` is the length-weighted mean of its group."""
    if spec.baseline == "none":
        return 0.0
    if spec.baseline == "batch_mean":
        return statistics.mean(every_reward)
    if spec.baseline == "constant":
        return spec.constant
    if len(pool) == 1:
        return 0.0
    if spec.baseline == "james_stein":
        return shrunk(reward, pool, sets)
    return {
        "group_mean": statistics.mean(pool),
        "leave_one_out": statistics.mean(without(pool, reward)),
        "length_weighted": weighted,
    }[spec.baseline]


def unscaled(spec: Advantage, reward: float, pool: Sequence[float], *rest) -> float:
    """Advantage of one response before batch_std, nonzero and whitening; rest: as for `baseline`."""
    if spec.credit == "set_mean":
        return statistics.mean(pool)
    if spec.credit == "pass_at_k":
        return pass_at_k(spec, reward, pool)
    if len(pool) == 1 and spec.singleton == "zero" and spec.of_group:
        return 0.0
    alone, divisor = len(pool) == 1, 1.0
    if spec.scale == "group_std":
        divisor = (1.0 if alone else deviation(pool, spec.ddof)) + spec.eps
    elif spec.scale == "group_mean":
        divisor = (1.0 if alone else statistics.mean(pool)) + spec.eps
        if not alone and statistics.mean(pool) <= 0:
            return 0.0
    elif spec.scale == "others_std" and len(pool) > 1 + spec.ddof:
        spread = deviation(without(pool, reward), spec.ddof)
        divisor = spread + spec.eps if spread > 0 else 1.0
    if spec.baseline == "second_best" and len(pool) > 1:
        first, second = sorted(pool)[-1], sorted(pool)[-2]
        return (first - second) / divisor if reward == first and first > second else 0.0
    centred = reward if spec.baseline == "second_best" else reward - baseline(spec, reward, pool, *rest)
    return centred / divisor if centred != 0.0 else 0.0


def length_weighted(rewards: Sequence[float], lengths: Sequence[int], group: Sequence[int], g: int) -> float:
    """Mean reward of a group's responses, each counted as often as it has tokens."""
    mine = [(reward, length) for reward, length, label in zip(rewards, lengths, group, strict=True) if label == g]
    tokens = sum(length for _, length in mine)
    return sum(reward * length for reward, length in mine) / tokens if tokens else 0.0


def advantages(
    spec: Advantage, rewards, group, sets: Sequence[Sequence[float]], lengths=None, given=None
) -> list[float]:
    """Advantage of every response; `given` are baselines that come from elsewhere."""
    rewards, group = [float(reward) for reward in rewards], [int(g) for g in group]
    lengths = [1] * len(rewards) if lengths is None else [int(length) for length in lengths]
    every_reward = [reward for pool in sets for reward in pool]
    if given is not None:
        out = [reward - number for reward, number in zip(rewards, given, strict=True)]
    else:
        weighted = [length_weighted(rewards, lengths, group, g) for g in range(len(sets))]
        pairs = zip(rewards, group, strict=True)
        out = [unscaled(spec, reward, sets[g], every_reward, weighted[g], sets) for reward, g in pairs]
    if spec.scale == "batch_std":
        enough = len(every_reward) > spec.ddof
        out = [value / (deviation(every_reward, spec.ddof) + spec.eps) if enough and value else 0.0 for value in out]
    elif spec.scale == "nonzero":
        out = [value * len(rewards) / max(1, sum(reward != 0 for reward in rewards)) for value in out]
    return whitened(spec, out, lengths)


def combined(
    spec: Advantage, rewards, weights, group, sets: Sequence[Sequence[Sequence[float]]], lengths
) -> list[float]:
    """Advantages of responses with several rewards, one list of baseline sets for each: of their weighted sum, or the
    whitened weighted sum of their advantages."""
    columns = [list(map(float, own)) for own in rewards]
    if spec.combine == "rewards":
        total = [sum(w * own[i] for w, own in zip(weights, columns, strict=True)) for i in range(len(group))]
        return advantages(spec, total, group, pools(len(sets[0]), (total, group)), lengths)
    plain = replace(spec, combine="rewards", whiten="none")
    each = [advantages(plain, own, group, one, lengths) for own, one in zip(columns, sets, strict=True)]
    total = [sum(w * own[i] for w, own in zip(weights, each, strict=True)) for i in range(len(group))]
    return whitened(spec, total, lengths)


def whitened(spec: Advantage, values: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """Mean 0 and deviation 1, over tokens or over responses."""
    if spec.whiten == "responses":
        if len(values) <= spec.ddof:
            return [0.0] * len(values)
        centre, spread = statistics.mean(values), deviation(values, spec.ddof)
        return [(value - centre) / (spread + spec.eps) if value != centre else 0.0 for value in values]
    if spec.whiten == "tokens":
        tokens = [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]
        n = len(tokens)
        if n <= 1:
            return [0.0] * len(values)
        centre = sum(tokens) / (n + 1e-8)
        variance = sum((token - centre) ** 2 for token in tokens) / (n + 1e-8) * n / (n - 1)
        return [(value - centre) / math.sqrt(variance + 1e-8) for value in values]
    return list(values)


# --- advantages of tokens ---


def token_advantages(spec: Advantage, rewards, starts, given=None) -> list[float]:
    """Generalised advantage estimation as its definition, a sum over all later TD errors; or rewards to go minus a
    baseline."""
    out, given = [], [0.0] * len(rewards) if given is None else given
    for row, numbers in zip(rows_of(rewards, starts), rows_of(given, starts), strict=True):
        n = len(row)
        if spec.baseline == "value":
            following = [*numbers[1:], 0.0]
            errors = [row[t] + spec.gamma * following[t] - numbers[t] for t in range(n)]
            out += [sum((spec.gamma * spec.lam) ** (u - t) * errors[u] for u in range(t, n)) for t in range(n)]
        else:
            out += [sum(spec.gamma ** (u - t) * row[u] for u in range(t, n)) - numbers[t] for t in range(n)]
    return whitened(spec, out, [1] * len(out))


def optimal_token_baseline(
    returns, old_logp, squares, starts, group, correction=None, position=None, zero_tail=False, eps=1e-8
) -> list[float]:
    """sum_i G_i W_i / sum_i W_i over the group's tokens at the same position; W is the running sum of squared score
    norms."""
    rows = range(len(group))
    weight = [1.0] * len(returns) if correction is None else [float(w) for w in correction]
    norm = [max(0, 1 - 2 * math.exp(old_logp[t]) + squares[t]) * weight[t] ** 2 for t in range(len(returns))]
    places = [t - starts[i] for i in rows for t in range(starts[i], starts[i + 1])]
    where = places if position is None else list(position)
    owner = per_token(list(rows), starts)
    energy = [sum(norm[starts[owner[t]] : t + 1]) for t in range(len(returns))]
    out = []
    for t, i in enumerate(owner):
        members = [j for j in rows if group[j] == group[i]]
        peers = [u for u, j in enumerate(owner) if j in members and where[u] == where[t]]
        total = sum(energy[u] for u in peers) + eps
        number = sum(returns[u] * energy[u] for u in peers) / total if total > 0 else 0.0
        others = [starts[j + 1] - starts[j] for j in members if j != i]
        in_tail = zero_tail and others and starts[i + 1] - starts[i] > max(others) and where[t] >= max(others)
        out.append(0.0 if not others or in_tail else number)
    return out


# --- sampling ---


def allocate(p: Sequence[float], mean: int) -> list[int]:
    """One rollout each, then one at a time to the context with the fewest for its sqrt(p (1-p)); at most 4 times the
    mean."""
    part, out = [math.sqrt(q * (1 - q)) + 1e-9 for q in p], [1] * len(p)
    while sum(out) < len(p) * mean:
        open_ones = [i for i in range(len(p)) if out[i] < 4 * mean]
        out[max(open_ones, key=lambda i: (part[i] / out[i], -i))] += 1
    return out


def keep_shortest(lengths: Sequence[int], first: Sequence[int], keep: int) -> list[bool]:
    """Whether a response is among the first `keep` of its group, sorted by length."""
    kept = [False] * len(lengths)
    for a, b in pairwise(first):
        for i in sorted(range(a, b), key=lambda i: lengths[i])[:keep]:
            kept[i] = True
    return kept
