"""The checks of tests/estimators/test_naive.py."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np

from rftlab.shared.config.advantage import Advantage, BaselineKind, GivenBaseline
from tests.support.estimators.random_batches import (
    Batches,
    baseline_for,
    binary,
    random_advantage,
    random_batch,
    random_rewards,
)
from tests.support.estimators.vectors import EXACT, Api, close, no_kl, same, seeds, starts_of
from tests.support.naive import estimators

WHITENED = 1e-10
"""Whitening divides rounding by a deviation that may be as small as 1e-4."""
OF_RESPONSES = tuple(name for name in get_args(BaselineKind) if name != "value")


def batch_for(spec: Advantage, rng: np.random.Generator) -> Batches:
    """A random batch that the advantage allows."""
    batch = random_batch(rng, fewest=spec.k)
    return binary(batch, rng) if spec.credit == "pass_at_k" else batch


def check_pools_and_advantages(api: Api) -> None:
    """Baseline sets with support rollouts, and every baseline, scale, credit, whitening, ddof, eps and singleton
    rule."""
    for rng in seeds(0, 800):
        spec = random_advantage(rng, OF_RESPONSES)
        if spec.by_token:
            continue
        batch, n_support = batch_for(spec, rng), int(rng.integers(0, 5))
        zero_one = spec.credit == "pass_at_k"
        support = rng.integers(0, 2, n_support).astype(float) if zero_one else random_rewards(rng, n_support)
        parts = (batch.rewards, batch.group), (support, rng.integers(0, batch.n_groups, n_support))
        pool, sets = api.make_pool(batch.n_groups, *parts), estimators.pools(batch.n_groups, *parts)
        same(pool.rewards, np.concatenate(sets), "rewards of the baseline sets")
        same(pool.starts, starts_of([len(one) for one in sets]), "sizes of the baseline sets")
        baseline = baseline_for(spec, batch)
        actual = api.advantages(spec, batch.rewards, batch.group, pool, starts=batch.starts, baseline=baseline)
        expected = estimators.advantages(spec, batch.rewards, batch.group, sets, np.diff(batch.starts), baseline)
        close(actual, expected, f"{spec}", EXACT if spec.whiten == "none" else WHITENED)


def check_several_rewards(api: Api) -> None:
    """Sums of rewards and sums of advantages, of one to four rewards with weights, also below 0."""
    for rng in seeds(0, 300):
        spec = random_advantage(rng, OF_RESPONSES)
        if spec.given or spec.by_token or spec.credit != "reward":
            continue
        spec = replace(spec, combine=("rewards", "advantages")[int(rng.integers(2))])
        batch, count = batch_for(spec, rng), int(rng.integers(1, 5))
        rewards = np.array([random_rewards(rng, batch.group.size) for _ in range(count)])
        weights, lengths = rng.normal(size=count), np.diff(batch.starts)
        actual = api.combined_advantages(spec, rewards, weights, batch.group, starts=batch.starts)
        sets = [estimators.pools(batch.n_groups, (own, batch.group)) for own in rewards]
        expected = estimators.combined(spec, rewards, weights, batch.group, sets, lengths)
        close(actual, expected, f"{spec} of {count} rewards", WHITENED)
        if spec.combine == "advantages":
            old_logp, several = np.full(batch.starts[-1], -1.0), (rewards, weights)
            made = api.prepare(no_kl(spec), weights @ rewards, batch.group, batch.starts, old_logp, several=several)
            same(made.advantage, np.repeat(actual, lengths), "the advantage of a response on each of its tokens")


def check_pass_at_k(api: Api) -> None:
    """Credits for every k and every number of correct responses of small sets, by enumeration of the subsets."""
    for n in range(1, 7):
        for correct in range(n + 1):
            rewards, group = np.repeat([1.0, 0.0], [correct, n - correct]), np.zeros(n, dtype=np.int64)
            for k in range(1, n + 1):
                for baseline in ("none", "leave_one_out"):
                    spec = Advantage(baseline, credit="pass_at_k", k=k)
                    actual = api.advantages(spec, rewards, group, api.make_pool(1, (rewards, group)))
                    expected = estimators.advantages(spec, rewards, group, [list(rewards)])
                    close(actual, expected, f"{spec}, {correct} of {n}", EXACT)


def check_token_advantages(api: Api) -> None:
    """Rewards to go and generalised advantage estimation, whitened or not."""
    for rng in seeds(500, 400):
        spec = random_advantage(rng, ("none", *get_args(GivenBaseline)))
        if spec.scale != "none" or spec.whiten == "responses" or spec.credit != "reward":
            continue
        batch = random_batch(rng, longest=7)
        if spec.whiten == "tokens" and batch.values.size == 1:
            continue
        rewards = random_rewards(rng, batch.values.size)
        baseline = None if spec.baseline == "none" else batch.values
        actual = api.token_advantages(spec, rewards, batch.starts, baseline)
        expected = estimators.token_advantages(spec, rewards, batch.starts, baseline)
        close(actual, expected, f"{spec}", EXACT if spec.whiten == "none" else WHITENED)


def check_optimal_baseline(api: Api) -> None:
    """With importance weights and without, positions with gaps and without, tails of the longest response."""
    for rng in seeds(700, 150):
        batch = random_batch(rng, longest=6)
        squares = rng.random(batch.values.size)
        gaps = np.concatenate([np.cumsum(rng.integers(1, 3, length)) - 1 for length in np.diff(batch.starts)])
        rest = {
            "correction": batch.correction if rng.integers(2) else None,
            "position": gaps.astype(np.int64) if rng.integers(2) else None,
            "zero_tail": bool(rng.integers(2)),
        }
        arguments = batch.values, batch.old_logp, squares, batch.starts, batch.group
        expected = estimators.optimal_token_baseline(*arguments, **rest)
        close(api.optimal_token_baseline(*arguments, **rest), expected, f"{rest}", 1e-11)


def check_windows(api: Api) -> None:
    """A replay window is a deque of bounded length."""
    for rng in seeds(1000, 60):
        n, size = int(rng.integers(1, 5)), int(rng.integers(1, 7))
        windows, deques = api.empty_windows(n, size), estimators.Windows(n, size)
        for step in range(8):
            contexts = rng.integers(0, n, rng.integers(0, 6))
            rewards = rng.normal(size=contexts.size)
            api.push(windows, contexts, rewards)
            deques.push(contexts, rewards)
            order = rng.permutation(n)
            pool, sets = api.window_pool(windows, order), deques.pools(order)
            same(pool.rewards, np.concatenate([np.array(one) for one in sets]), f"windows of {size} after step {step}")
            same(pool.starts, starts_of([len(one) for one in sets]), f"sizes of windows of {size} after step {step}")


def check_averages(api: Api) -> None:
    """Moving averages and difficulties from the whole history; contexts that were never seen take the average of
    all."""
    for rng in seeds(1100, 40):
        n, decay = int(rng.integers(1, 5)), float(rng.choice([0.0, 0.5, 0.9, 1.0]))
        sums, visits = api.empty_averages(n), estimators.Averages()
        for step in range(5):
            contexts = rng.integers(0, n, rng.integers(0, 4))
            rewards = rng.normal(size=(contexts.size, rng.integers(1, 4)))
            api.add(sums, contexts, rewards, decay)
            visits.add(contexts, rewards, decay)
            what = f"after step {step} with decay {decay}"
            averages, rates = zip(*((visits.average(c), visits.difficulty(c)) for c in range(n)), strict=True)
            close(api.read_averages(sums, np.arange(n)), averages, f"averages {what}", EXACT)
            close([api.estimated_pass_rate(sums, c) for c in range(n)], rates, f"difficulty {what}", EXACT)


def check_sampling(api: Api) -> None:
    """Neyman's allocation, one rollout after another, and the shortest responses of a group."""
    for rng in seeds(1200, 80):
        p, mean = np.round(rng.random(rng.integers(1, 9)), int(rng.integers(1, 4))), int(rng.integers(1, 9))
        same(api.allocate(p, mean), estimators.allocate(p, mean), f"rollouts for {p}, {mean} on average")
        first = starts_of(rng.integers(0, 6, rng.integers(1, 4)))
        lengths, keep = rng.integers(0, 5, first[-1]), int(rng.integers(1, 5))
        kept = estimators.keep_shortest(lengths, first, keep)
        same(api.keep_shortest(lengths, first, keep), kept, f"the {keep} shortest of {lengths} in {first}")


CHECKS: dict[str, Callable[[Api], None]] = {
    name: check for name, check in dict(globals()).items() if name.startswith("check_")
}
