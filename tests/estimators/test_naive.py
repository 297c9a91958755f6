"""Baseline sets, advantages, windows, averages and sampling against their slow twins, on random batches, to 1e-12."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rftlab.shared.config.advantage import Advantage, GroupBaseline, ScaleKind
from rftlab.shared.plumbing.errors import UserError
from tests.support.checks.naive import CHECKS
from tests.support.estimators.vectors import EXACT, REAL, close
from tests.support.naive import estimators


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_twin(check):
    check(REAL)


@given(
    size=st.integers(1, 6),
    steps=st.lists(st.lists(st.tuples(st.integers(0, 2), st.floats(-9, 9)), max_size=9), min_size=1, max_size=6),
    read=st.permutations(range(3)),
)
def test_windows_hold_what_deques_hold(size, steps, read):
    windows, deques = REAL.empty_windows(3, size), estimators.Windows(3, size)
    for step in steps:
        contexts, rewards = [context for context, _ in step], [reward for _, reward in step]
        REAL.push(windows, contexts, rewards)
        deques.push(contexts, rewards)
        pool = REAL.window_pool(windows, read)
        assert [list(pool.rewards[pool.starts[g] : pool.starts[g + 1]]) for g in range(3)] == deques.pools(read)


@given(
    baseline=st.sampled_from(["none", "batch_mean", "constant", *get_args(GroupBaseline)]),
    scale=st.sampled_from(get_args(ScaleKind)),
    ddof=st.integers(0, 1),
    groups=st.lists(st.lists(st.integers(-64, 64), min_size=1, max_size=12), min_size=1, max_size=5),
)
def test_advantages_of_any_groups(baseline, scale, ddof, groups):
    """Rewards are multiples of 1/8, so sums are exact and a constant group has a spread of exactly zero."""
    try:
        spec = Advantage(baseline, scale, ddof=ddof, constant=0.25 if baseline == "constant" else 0.0)
    except UserError:  # baselines that refuse some scales
        return
    group = np.repeat(np.arange(len(groups)), [len(one) for one in groups])
    rewards = np.concatenate(groups) / 8.0
    actual = REAL.advantages(spec, rewards, group, REAL.make_pool(len(groups), (rewards, group)))
    close(
        actual,
        estimators.advantages(spec, rewards, group, estimators.pools(len(groups), (rewards, group))),
        f"{spec} of {groups}",
        EXACT,
    )


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=12), mean=st.integers(1, 12))
def test_allocation_of_any_rates(p, mean):
    """The same total whatever the rates are, within its limits; of two contexts the one whose rewards vary more
    never gets less."""
    rollouts = REAL.allocate(p, mean)
    assert rollouts.sum() == len(p) * mean and rollouts.min() >= 1 and rollouts.max() <= 4 * mean
    order = np.argsort([rate * (1 - rate) for rate in p], kind="stable")
    spread = np.array(p)[order] * (1 - np.array(p)[order])
    apart = np.diff(spread) > 1e-9
    assert (np.diff(rollouts[order])[apart] >= 0).all()
