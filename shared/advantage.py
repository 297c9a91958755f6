"""From rewards to advantages, through the baseline set of each group.

The baseline set of a group is the rewards that give its mean and spread: those of its trained responses, of support rollouts
(sampled and scored, not trained on), and of the context's replay window. It feeds only the advantages of trained responses.
"""

from typing import NamedTuple

import numpy as np

from shared.errors import UserError, check, check_labels
from shared.estimator import Rule
from shared.jit import jit

REWARD, GROUP_MEAN, GROUP_ZSCORE, LEAVE_ONE_OUT, BATCH_MEAN = range(5)
RAW, ZERO, ERROR = range(3)


class Pool(NamedTuple):
    """Baseline sets of G groups, packed: group g holds rewards[starts[g] .. starts[g+1]-1]."""

    rewards: np.ndarray
    starts: np.ndarray


def pool_of(n_groups: int, *parts: tuple[np.ndarray, np.ndarray]) -> Pool:
    """Baseline sets from (rewards, group) pairs: trained responses first, then support rollouts.

    rewards, group: (n,) each; labels 0 .. n_groups-1 in any order; within a group the order of the parts is kept.
    """
    columns = [(np.asarray(rewards, dtype=np.float64), np.asarray(group, dtype=np.int64)) for rewards, group in parts]
    for rewards, group in columns:
        check(rewards.shape == group.shape, f"rewards {rewards.shape} and group {group.shape} must have one entry per response")
    rewards, group = (np.concatenate(column) for column in zip(*columns, strict=True))
    check_labels("group", group, n_groups)
    starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=n_groups))]).astype(np.int64)
    return Pool(rewards[np.argsort(group, kind="stable")], starts)


@jit
def mean_and_std(values, start, stop, ddof):
    """Mean and standard deviation of values[start:stop]; nan where too few. Equal values have exactly that mean and spread 0."""
    origin = values[start] if stop > start else 0.0
    total = 0.0
    for i in range(start, stop):
        total += values[i] - origin
    mean = origin + total / (stop - start)
    squares = 0.0
    for i in range(start, stop):
        squares += (values[i] - mean) ** 2
    return mean, np.sqrt(squares / (stop - start - ddof))


@jit
def advantages_into(rule, rewards, group, pool, pool_starts, out):
    """Fill out (R,) with the advantages of the responses. Pool (n,) and pool_starts (G+1,) as in `Pool`."""
    if rule.advantage == REWARD:
        out[:] = rewards
        return
    batch_mean = 0.0
    if rule.advantage == BATCH_MEAN:
        batch_mean, _ = mean_and_std(pool, pool_starts[0], pool_starts[-1], 0)
    last = -1
    mean, std, size = 0.0, 1.0, 0
    for i in range(rewards.shape[0]):
        g = group[i]
        if g != last:
            size = pool_starts[g + 1] - pool_starts[g]
            mean, std = mean_and_std(pool, pool_starts[g], pool_starts[g + 1], rule.ddof)
            if size == 1:
                mean, std = 0.0, 1.0
            last = g
        if rule.advantage == BATCH_MEAN:
            out[i] = rewards[i] - batch_mean
        elif size == 1 and rule.singleton == ZERO:
            out[i] = 0.0
        elif rule.advantage == GROUP_MEAN:
            out[i] = rewards[i] - mean
        elif rule.advantage == LEAVE_ONE_OUT:
            out[i] = rewards[i] if size == 1 else (rewards[i] - mean) * (size / (size - 1.0))
        else:
            out[i] = 0.0 if rewards[i] == mean else (rewards[i] - mean) / (std + rule.eps)


def advantages(rule: Rule, rewards: np.ndarray, group: np.ndarray, pool: Pool) -> np.ndarray:
    """Advantages (R,) of responses with `rewards` (R,) in `group` (R,), against the baseline sets of `pool`.

    reward        A = r                                      Williams 1992
    group_mean    A = r - mean                               Dr. GRPO, 2503.20783
    group_zscore  A = (r - mean)/(std + eps)                 GRPO, 2402.03300, eq. 3
    leave_one_out A = (r - mean) n/(n-1) = r - mean of the others   RLOO, 2402.14740
    batch_mean    A = r - mean over all groups' sets
    mean and std (with ddof) run over the group's baseline set of n rewards.
    """
    sizes = np.diff(pool.starts)
    check(rewards.shape == group.shape, f"rewards {rewards.shape} and group {group.shape} must have one entry per response")
    check_labels("group", group, sizes.size)
    for g in group[sizes[group] == 0][:1]:
        raise UserError(f"group {g} has an empty baseline set; allowed: 1 reward or more for every group that is trained on")
    if rule.singleton == ERROR and rule.advantage in (GROUP_MEAN, GROUP_ZSCORE, LEAVE_ONE_OUT) and (sizes[group] == 1).any():
        raise UserError(
            f"group {group[np.argmax(sizes[group] == 1)]} has a baseline set of one reward; this estimator needs two (advantage.singleton allows raw, zero)"
        )
    out = np.empty(rewards.shape[0])
    advantages_into(rule, rewards, group, pool.rewards, pool.starts, out)
    return out
