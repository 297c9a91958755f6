"""Advantages of responses against their baseline sets, on any device: `rftlab.shared.advantage` for tensors.

Sums over a group are additions at its number, so nothing has a shape that depends on what the labels are, and a GPU
never waits for the CPU. What only the numbers can tell (an empty set, a set of one that is refused) is an error where
they lie on the CPU, else nan. Numbers are float64 where the device has it: there are few of them.
"""

from typing import NamedTuple

import numpy as np
import torch

from rftlab.llm.losses.formulas import formulas
from rftlab.shared.advantage import WHITEN_EPS, advantages
from rftlab.shared.config.advantage import (
    BATCH_MEAN,
    BATCH_STD,
    BY_RESPONSES,
    GROUP_STD,
    LEAVE_ONE_OUT,
    LENGTH_WEIGHTED,
    NONE,
    NONZERO,
    PASS_AT_K,
    PLAIN,
    REWARD,
    SECOND_BEST,
    SET_MEAN,
    ZERO,
    Advantage,
    AdvantageRule,
    advantage_rule,
)
from rftlab.shared.config.own import is_own
from rftlab.shared.errors import check
from rftlab.shared.pool import pool_of


class Groups(NamedTuple):
    """The groups of R responses and the rewards of their baseline sets; groups are numbered from 0 in the order of
    their labels, and there is room for one for each entry."""

    of_responses: torch.Tensor
    """(R,)"""
    of_pool: torch.Tensor
    """(n,)"""
    pool: torch.Tensor
    """(n,) rewards of the baseline sets."""


def wide(device: torch.device) -> torch.dtype:
    """The number type of rewards and advantages: float64, where a device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def numbered(labels: torch.Tensor) -> torch.Tensor:
    """Labels (n,) as numbers from 0, in the order of the labels; without a table of those that occur, whose length a
    GPU would have to tell."""
    ordered, order = torch.sort(labels)
    rank = torch.zeros_like(order)
    rank[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
    return torch.empty_like(rank).scatter_(0, order, rank)


def groups_of(group: torch.Tensor, rewards: torch.Tensor, pool: tuple[torch.Tensor, torch.Tensor] | None) -> Groups:
    """Groups of responses by their labels (R,), and baseline sets: `pool` as rewards and labels (n,), by default the
    rewards (R,) themselves."""
    if pool is None:
        number = numbered(group)
        return Groups(number, number, rewards)
    number = numbered(torch.cat([group, pool[1]]))
    return Groups(number[: group.shape[0]], number[group.shape[0] :], pool[0])


class Sets(NamedTuple):
    """Statistics (G,) of baseline sets; those of a group that is not there mean nothing."""

    size: torch.Tensor
    mean: torch.Tensor

    def deviation(self, groups: Groups, ddof: int) -> torch.Tensor:
        """Standard deviations (G,) about the means."""
        squares = (groups.pool - self.mean[groups.of_pool]) ** 2
        return (total(squares, groups.of_pool, self.size) / (self.size - ddof)).sqrt()


def total(values: torch.Tensor, number: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Sums (G,) of values (n,) over the groups that they belong to."""
    return torch.zeros_like(like).index_add(0, number, values)


def extreme(values: torch.Tensor, number: torch.Tensor, like: torch.Tensor, kind: str) -> torch.Tensor:
    """The smallest ("amin") or largest ("amax") value (G,) of each group."""
    return torch.zeros_like(like).scatter_reduce(0, number, values, kind, include_self=False)


def sets_of(groups: Groups) -> Sets:
    """Sizes and means; equal rewards have exactly that mean, because only what they have above the smallest is
    added up."""
    pool, number = groups.pool, groups.of_pool
    room = pool.new_zeros(groups.of_pool.shape[0] + groups.of_responses.shape[0])
    size = total(torch.ones_like(pool), number, room)
    low = extreme(pool, number, room, "amin")
    return Sets(size, low + total(pool - low[number], number, room) / size)


def spread_of(values: torch.Tensor, ddof: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of values (n,), as scalars; nan where there are too few."""
    low = values.amin() if values.shape[0] else values.sum()
    mean = low + (values - low).sum() / values.shape[0]
    return mean, (((values - mean) ** 2).sum() / (values.shape[0] - ddof)).sqrt()


def _centred(rule: AdvantageRule, rewards, groups: Groups, sets: Sets, lengths) -> torch.Tensor:
    """(r - origin) factor / divisor, 0 where r is the origin, whatever the divisor."""
    by_std = rule.scale == GROUP_STD
    lonely = sets.size == 1
    origin = spread_of(groups.pool, rule.ddof)[0] if rule.baseline == BATCH_MEAN else rewards.new_zeros(())
    if rule.by_group:
        centres = sets.mean
        if rule.baseline == LENGTH_WEIGHTED:
            tokens = lengths.to(rewards.dtype)
            below = total(tokens, groups.of_responses, sets.size)
            above = total(tokens * rewards, groups.of_responses, sets.size)
            centres = torch.where(below > 0, above / below, 0.0)
        origin = torch.where(lonely, 0.0, centres)[groups.of_responses]
    gap = rewards - origin
    out = gap
    if rule.baseline == LEAVE_ONE_OUT:
        out = out * torch.where(lonely, 1.0, sets.size / (sets.size - 1))[groups.of_responses]
    if rule.singleton == ZERO and (rule.by_group or by_std):
        out = torch.where(lonely[groups.of_responses], 0.0, out)
    if by_std:
        std = torch.where(lonely, 1.0, sets.deviation(groups, rule.ddof))
        out = torch.where(gap == 0, 0.0, out / (std + rule.eps)[groups.of_responses])
    return out


def _best(rule: AdvantageRule, rewards, groups: Groups, sets: Sets) -> torch.Tensor:
    """Best minus second best for the best response of a group."""
    pool, number, mine = groups.pool, groups.of_pool, groups.of_responses
    best = extreme(pool, number, sets.size, "amax")
    is_best = pool == best[number]
    others = extreme(torch.where(is_best, -torch.inf, pool), number, sets.size, "amax")
    second = torch.where(total(is_best.to(pool.dtype), number, sets.size) > 1, best, others)
    out = torch.where(rewards == best[mine], (best - second)[mine], 0.0)
    alone = torch.zeros_like(rewards) if rule.singleton == ZERO else rewards
    if rule.scale == GROUP_STD:
        std = sets.deviation(groups, rule.ddof)[mine]
        out, alone = torch.where(out > 0, out / (std + rule.eps), out), alone / (1.0 + rule.eps)
    return torch.where(sets.size[mine] == 1, alone, out)


def whitened(kind: int, values: torch.Tensor, weights: torch.Tensor, ddof: int, eps: float) -> torch.Tensor:
    """Values (n,) with mean 0 and deviation 1: each counts once with eps outside the root, or by tokens `weights` (n,)
    times with eps inside."""
    if kind == BY_RESPONSES:
        mean, std = spread_of(values, ddof)
        enough = values.shape[0] > ddof
        return torch.where(values == mean, 0.0, (values - mean) / (std + eps)) if enough else values * 0.0
    count = weights.sum()
    mean = (values * weights).sum() / (count + WHITEN_EPS)
    spread = (weights * (values - mean) ** 2).sum() / (count + WHITEN_EPS) * count / (count - 1.0)
    return torch.where(count > 1, (values - mean) / (spread + WHITEN_EPS).sqrt(), 0.0)


def check_sets(spec: Advantage, groups: Groups, size: torch.Tensor) -> None:
    """Raise where a baseline set is empty, or of a size or of rewards that the advantage refuses; on the CPU alone."""
    if size.device.type == "cpu":
        mine = size[groups.of_responses]
        check(bool((mine > 0).all()), "a group has an empty baseline set; allowed: 1 reward or more for every group")
        refused = spec.singleton == "error" and spec.of_group and bool((mine == 1).any())
        check(not refused, "a group has a baseline set of one reward; this estimator needs two")
        if spec.credit == "pass_at_k":
            binary = bool(((groups.pool == 0) | (groups.pool == 1)).all())
            check(binary, "advantage.credit pass_at_k needs rewards that are 0 or 1")
            enough = bool((mine >= spec.k).all())
            check(enough, f"advantage.k = {spec.k}; allowed: at most the size of the smallest baseline set")


def _or_nan(spec: Advantage, out: torch.Tensor, groups: Groups, size: torch.Tensor) -> torch.Tensor:
    """nan where `check_sets` would have raised, had it looked."""
    least = max(spec.k, 2 if spec.singleton == "error" and spec.of_group else 1)
    out = torch.where(size[groups.of_responses] < least, torch.nan, out)
    if spec.credit == "pass_at_k":
        out = torch.where(((groups.pool == 0) | (groups.pool == 1)).all(), out, torch.nan)
    return out


def _own(spec: Advantage, rewards: torch.Tensor, groups: Groups, lengths: torch.Tensor) -> torch.Tensor:
    """Those of a function of the user's, which works on the CPU."""
    numbers, mine, of_pool, pool = (part.cpu().numpy() for part in (rewards, *groups))
    sets = pool_of(mine.size + of_pool.size, (pool, of_pool))
    starts = np.concatenate([[0], np.cumsum(lengths.cpu().numpy())])
    found = advantages(spec, numbers.astype(np.float64), mine, sets, starts=starts)
    return torch.from_numpy(found).to(rewards)


def response_advantages(
    spec: Advantage,
    rewards: torch.Tensor,
    groups: Groups,
    lengths: torch.Tensor,
    given: torch.Tensor | None = None,
) -> torch.Tensor:
    """`rftlab.shared.advantage.advantages` (R,) of rewards (R,), lengths (R,) and, where the baseline comes from
    elsewhere, given (R,)."""
    rule, pool = advantage_rule(spec), groups.pool
    if is_own(spec):
        return _own(spec, rewards, groups, lengths)
    sets = sets_of(groups)
    check_sets(spec, groups, sets.size)
    mine = groups.of_responses
    if given is not None:
        out = rewards - given
    elif rule.credit == SET_MEAN:
        out = sets.mean[mine]
    elif rule.credit == PASS_AT_K:
        out = formulas(rewards.dtype).pass_at_k_credit(rule, rewards, sets.mean[mine], sets.size[mine])
    elif rule.baseline == SECOND_BEST:
        out = _best(rule, rewards, groups, sets)
    elif rule.credit == REWARD and rule.baseline == NONE and rule.scale != GROUP_STD:
        out = rewards
    else:
        out = _centred(rule, rewards, groups, sets, lengths)
    if rule.scale == BATCH_STD:
        std = spread_of(pool, rule.ddof)[1] + rule.eps
        out = torch.where(out == 0, 0.0, out / std) if pool.shape[0] > rule.ddof else out * 0.0
    elif rule.scale == NONZERO:
        out = out * (rewards.shape[0] / (rewards != 0).sum().clamp(min=1).to(out.dtype))
    if rule.whiten != PLAIN:
        out = whitened(rule.whiten, out, lengths.to(out.dtype), rule.ddof, rule.eps)
    return out if pool.device.type == "cpu" else _or_nan(spec, out, groups, sets.size)
