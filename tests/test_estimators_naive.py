"""Every estimator against its slow twin, on random batches, to 1e-12."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.estimator import KL, Estimator, Surrogate
from tests import naive
from tests.vectors import (
    REAL,
    Api,
    close,
    no_kl,
    random_advantage,
    random_batch,
    random_estimator,
    random_rewards,
    same,
    seeds,
    starts_of,
)

EXACT = 1e-12


def check_pools_and_advantages(api: Api) -> None:
    """Baseline sets with support rollouts, and every kind of advantage, ddof, eps and singleton rule."""
    for rng in seeds(0, 300):
        spec, batch = random_advantage(rng), random_batch(rng)
        n_support = int(rng.integers(0, 5))
        parts = (batch.rewards, batch.group), (random_rewards(rng, n_support), rng.integers(0, batch.n_groups, n_support))
        pool, sets = api.pool_of(batch.n_groups, *parts), naive.pools(batch.n_groups, *parts)
        same(pool.rewards, np.concatenate(sets), "rewards of the baseline sets")
        same(pool.starts, starts_of([len(one) for one in sets]), "sizes of the baseline sets")
        actual = api.advantages(api.rule_of(no_kl(spec)), batch.rewards, batch.group, pool)
        close(actual, naive.advantages(spec, batch.rewards, batch.group, sets), f"{spec}", EXACT)


def check_windows(api: Api) -> None:
    """A replay window is a deque of bounded length."""
    for rng in seeds(1000, 60):
        n, size = int(rng.integers(1, 5)), int(rng.integers(1, 7))
        windows, deques = api.empty_windows(n, size), naive.Windows(n, size)
        for step in range(8):
            contexts = rng.integers(0, n, rng.integers(0, 6))
            rewards = rng.normal(size=contexts.size)
            api.push(windows, contexts, rewards)
            deques.push(contexts, rewards)
            order = rng.permutation(n)
            pool, sets = api.window_pool(windows, order), deques.pools(order)
            same(pool.rewards, np.concatenate([np.array(one) for one in sets]), f"windows of {size} after step {step}")
            same(pool.starts, starts_of([len(one) for one in sets]), f"sizes of windows of {size} after step {step}")


def check_shares(api: Api) -> None:
    """The aggregated objective is linear, so the share of a token is what the twin makes of a batch that is 1 there and 0 elsewhere."""
    for rng in seeds(2000, 200):
        spec, starts = random_estimator(rng).aggregation, random_batch(rng).starts
        counts = {"n_tokens": int(rng.integers(40, 90)), "n_rows": int(rng.integers(20, 40))} if rng.integers(2) else {}
        units = np.eye(starts[-1])
        expected = [naive.aggregate(spec, naive.rows_of(unit, starts), **counts) for unit in units]
        close(api.shares(api.rule_of(no_kl(random_advantage(rng), aggregation=spec)), starts, **counts), expected, f"{spec}, {counts}", EXACT)


def check_token_surrogate(api: Api, spec: Surrogate, advantage: float, logp: float, old_logp: float) -> None:
    """Value, slope and both flags of one token."""
    rule = api.rule_of(Estimator(surrogate=spec))
    value, slope, clipped, dual = api.surrogate(rule.surrogate, rule.low, rule.high, rule.dual, advantage, logp, old_logp)
    expected, is_clipped, is_dual = naive.surrogate(spec, advantage, logp, old_logp)
    what = f"{spec}, advantage {advantage!r}, logp {logp!r}, old_logp {old_logp!r}"
    close(value, expected.real, f"value of {what}", EXACT)
    close(slope, naive.derivative(lambda x: naive.surrogate(spec, advantage, x, old_logp)[0], logp), f"slope of {what}", EXACT)
    same((bool(clipped), bool(dual)), (is_clipped, is_dual), f"flags of {what}")


def check_surrogates(api: Api) -> None:
    """Tokens of every spread: on-policy, clipped on either side, dual-clipped, and beyond the limit of the log-ratio."""
    for rng in seeds(3000, 600):
        old = -float(rng.exponential(3.0))
        logp = old + float(rng.choice([0.0, 0.1, 1.0, 15.0])) * float(rng.normal())
        check_token_surrogate(api, random_estimator(rng).surrogate, float(rng.choice([0.0, 1.0, -1.0])) * float(rng.exponential()), logp, old)


def check_token_kl(api: Api, spec: KL, logp: float, ref_logp: float) -> None:
    rule = api.rule_of(Estimator(kl=spec))
    value, slope = api.kl_penalty(rule.kl, rule.kl_straight_through, logp, ref_logp)
    what = f"{spec}, logp {logp!r}, ref_logp {ref_logp!r}"
    close(value, naive.penalty(spec, complex(logp), ref_logp).real, f"value of {what}", EXACT)
    close(slope, naive.derivative(lambda x: naive.penalty(spec, x, ref_logp), logp), f"slope of {what}", EXACT)


def check_kls(api: Api) -> None:
    for rng in seeds(4000, 600):
        ref = -float(rng.exponential(3.0))
        check_token_kl(api, random_estimator(rng).kl, ref + float(rng.choice([0.0, 0.1, 2.0, 15.0])) * float(rng.normal()), ref)


def check_pipeline(api: Api) -> None:
    """KL in the reward, baseline sets from the batch, from support rollouts or from windows, prepare, weigh."""
    for rng in seeds(5000, 600):
        estimator, batch = random_estimator(rng), random_batch(rng)
        tokens = {"starts": batch.starts, "old_logp": batch.old_logp, "ref_logp": batch.ref_logp}
        rewards = api.shaped_rewards(estimator, batch.rewards, **tokens)
        close(rewards, naive.shaped_rewards(estimator.kl, batch.rewards, **tokens), f"shaped rewards of {estimator}", EXACT)
        pool, sets = None, naive.pools(batch.n_groups, (rewards, batch.group))
        source = rng.integers(3)
        if source == 1:
            support = random_rewards(rng, batch.n_groups), rng.permutation(batch.n_groups)
            pool, sets = api.pool_of(batch.n_groups, (rewards, batch.group), support), naive.pools(batch.n_groups, (rewards, batch.group), support)
        elif source == 2:
            windows, deques = api.empty_windows(batch.n_groups + 2, 6), naive.Windows(batch.n_groups + 2, 6)
            contexts = rng.permutation(batch.n_groups + 2)[: batch.n_groups]
            for pushed in (random_rewards(rng, batch.group.size), rewards):
                api.push(windows, contexts[batch.group], pushed)
                deques.push(contexts[batch.group], pushed)
            pool, sets = api.window_pool(windows, contexts), deques.pools(contexts)
        rest = {"correction": batch.correction if rng.integers(2) else None}
        rest |= {"n_tokens": int(rng.integers(40, 90)), "n_rows": int(rng.integers(20, 40))} if rng.integers(2) else {}
        prepared = api.prepare(estimator, batch.rewards, batch.group, pool=pool, **tokens, **rest)
        weighed = api.weigh(estimator, prepared, batch.logp)
        advantage = naive.per_token(naive.advantages(estimator.advantage, rewards, batch.group, sets), batch.starts)
        objective, clipped, dual_clipped, kl = naive.objective(estimator, advantage, logp=batch.logp, **tokens, **rest)
        weights = naive.weights(estimator, advantage, logp=batch.logp, **tokens, **rest)
        close(weighed.weight, weights, f"weights of {estimator}", EXACT)
        # a sum is as exact as its largest terms
        close(weighed.objective, objective.real, f"objective of {estimator}", EXACT * (1.0 + float(np.abs(weights).sum())))
        close(weighed.kl, kl, f"KL of {estimator}", EXACT * (1.0 + np.abs(batch.logp - batch.ref_logp).sum()))
        same((weighed.clipped, weighed.dual_clipped), (clipped, dual_clipped), f"clipped tokens of {estimator}")


CHECKS: dict[str, Callable[[Api], None]] = {
    check.__name__: check for check in (check_pools_and_advantages, check_windows, check_shares, check_surrogates, check_kls, check_pipeline)
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_twin(check):
    check(REAL)


@given(
    size=st.integers(1, 6),
    steps=st.lists(st.lists(st.tuples(st.integers(0, 2), st.floats(-9, 9)), max_size=9), min_size=1, max_size=6),
    read=st.permutations(range(3)),
)
def test_windows_hold_what_deques_hold(size, steps, read):
    windows, deques = REAL.empty_windows(3, size), naive.Windows(3, size)
    for step in steps:
        contexts, rewards = [context for context, _ in step], [reward for _, reward in step]
        REAL.push(windows, contexts, rewards)
        deques.push(contexts, rewards)
        pool = REAL.window_pool(windows, read)
        assert [list(pool.rewards[pool.starts[g] : pool.starts[g + 1]]) for g in range(3)] == deques.pools(read)


@given(
    spec=st.builds(
        Surrogate,
        kind=st.sampled_from(["reinforce", "clip"]),
        low=st.floats(0, 1),
        high=st.floats(0, 9) | st.just(float("inf")),
        dual=st.none() | st.floats(1.25, 9),
    ),
    advantage=st.floats(-9, 9, allow_subnormal=False),
    old_logp=st.floats(-30, 0),
    log_ratio=st.floats(-25, 25),
)
def test_surrogate_of_any_token(spec, advantage, old_logp, log_ratio):
    logp = old_logp + log_ratio
    ratio = np.exp(np.clip(logp - old_logp, -20.0, 20.0))
    kinks = [1.0 - spec.low, 1.0 + spec.high, np.inf if spec.dual is None else spec.dual]
    if all(abs(ratio - kink) > 1e-9 for kink in kinks) and abs(advantage) > 1e-9:
        check_token_surrogate(REAL, spec, advantage, logp, old_logp)


@given(
    spec=st.builds(KL, kind=st.sampled_from(["none", "k1", "k2", "k3", "abs"]), straight_through=st.booleans()),
    ref_logp=st.floats(-30, 0),
    d=st.floats(-25, 25),
)
def test_kl_of_any_token(spec, ref_logp, d):
    logp = ref_logp + d
    u = min(max(ref_logp - logp, -20.0), 20.0)
    if abs(np.exp(u) - u - 11.0) > 1e-9:
        check_token_kl(REAL, spec, logp, ref_logp)


@given(
    kind=st.sampled_from(["group_mean", "group_zscore", "leave_one_out", "batch_mean"]),
    ddof=st.integers(0, 1),
    groups=st.lists(st.lists(st.integers(-64, 64), min_size=1, max_size=12), min_size=1, max_size=5),
)
def test_advantages_of_any_groups(kind, ddof, groups):
    """Rewards are multiples of 1/8, so sums are exact and a constant group has a spread of exactly zero."""
    spec = naive.Advantage(kind, ddof=ddof)
    group = np.repeat(np.arange(len(groups)), [len(one) for one in groups])
    rewards = np.concatenate(groups) / 8.0
    actual = REAL.advantages(REAL.rule_of(no_kl(spec)), rewards, group, REAL.pool_of(len(groups), (rewards, group)))
    close(actual, naive.advantages(spec, rewards, group, naive.pools(len(groups), (rewards, group))), f"{spec} of {groups}", EXACT)
