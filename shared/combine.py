"""Combine several rewards of a response: the advantage of their sum, or the sum of their advantages."""

from dataclasses import replace

import numpy as np

from rftlab.shared.advantage import advantages, unwhitened_into, whiten_responses
from rftlab.shared.config.advantage import Advantage, advantage_rule
from rftlab.shared.custom.functions import raising
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.jit import jit
from rftlab.shared.plumbing.pool import make_pool


@jit
def combined_into(rule, rewards, weights, starts, group, pools, pool_starts, out):
    """Fill out (R,) with the whitened weighted sum of the advantages of each reward; rewards (C, R), weights (C,),
    pools (C, n)."""
    part = np.empty(out.shape[0])
    for i in range(out.shape[0]):
        out[i] = 0.0
    for c in range(rewards.shape[0]):
        unwhitened_into(rule, rewards[c], starts, group, pools[c], pool_starts, rewards[c], part)
        for i in range(out.shape[0]):
            out[i] += weights[c] * part[i]
    whiten_responses(rule, starts, out)


def combined_advantages(
    spec: Advantage,
    rewards: np.ndarray,
    weights: np.ndarray,
    group: np.ndarray,
    *,
    starts: np.ndarray | None = None,
) -> np.ndarray:
    """Return advantages (R,) of responses with several rewards (C, R) of some weights (C,), against their own groups.

    combine rewards      the advantage of sum_c w_c r_c                  "sum then normalize"
    combine advantages   whitened sum_c w_c A_c, A_c of reward c alone   GDPO, 2601.05242 eq. 4 to 7

    Raises UserError where shapes disagree or a number is not finite, and as `advantages`.
    """
    rewards, weights = np.atleast_2d(np.ascontiguousarray(rewards, np.float64)), np.asarray(weights, np.float64)
    check(
        weights.shape == rewards.shape[:1] and rewards.shape[1:] == np.shape(group),
        f"rewards {rewards.shape}, weights {weights.shape}, group {np.shape(group)}; allowed: (C, R), (C,), (R,)",
    )
    check(bool(np.isfinite(rewards).all() and np.isfinite(weights).all()), "rewards and weights; allowed: finite ones")
    group = np.ascontiguousarray(group, np.int64)
    n_groups = int(group.max()) + 1 if group.size else 0
    pools = [make_pool(n_groups, (own, group)) for own in (*rewards, weights @ rewards)]
    if spec.combine == "rewards":
        return advantages(spec, weights @ rewards, group, pools[-1], starts=starts)
    advantages(replace(spec, combine="rewards"), weights @ rewards, group, pools[-1], starts=starts)  # checks the rest
    starts, out = np.arange(group.size + 1) if starts is None else np.asarray(starts, np.int64), np.empty(group.size)
    sets = np.array([pool.rewards for pool in pools[:-1]])
    with raising():
        combined_into(advantage_rule(spec), rewards, weights, starts, group, sets, pools[0].starts, out)
    return out
