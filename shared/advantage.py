"""From rewards to advantages: what is credited, minus a baseline, divided by a scale, perhaps whitened."""

import numpy as np

from rftlab.shared.config.advantage import (
    BATCH_MEAN,
    BATCH_STD,
    BY_RESPONSES,
    BY_TOKENS,
    ERROR,
    GROUP_MEAN,
    GROUP_STD,
    LEAVE_ONE_OUT,
    LENGTH_WEIGHTED,
    NONE,
    NONZERO,
    PASS_AT_K,
    PLAIN,
    RAW,
    REWARD,
    SECOND_BEST,
    SET_MEAN,
    UNSCALED,
    ZERO,
    Advantage,
    advantage_rule,
)
from rftlab.shared.custom.functions import call_advantage, raising
from rftlab.shared.plumbing.errors import UserError, check, check_labels
from rftlab.shared.plumbing.jit import inner, jit, kernel
from rftlab.shared.plumbing.pool import Pool, deviation, mean_and_std, mean_between, runner_up

WHITEN_EPS = 1e-8


@inner
def any_of_others(n, correct, k):
    """Chance that k responses drawn without replacement from n, of which `correct` are correct, hold a correct one."""
    none = 1.0
    for j in range(k):
        none *= max(0.0, n - correct - j) / (n - j)
    return 1.0 - none


@inner
def pass_at_k_credit(rule, reward, mean, size):
    """A response's part in pass@k of its set, times n, so that k = 1 is the reward (PKPO, 2505.15201;
    `leave_one_out`: its baseline "loo - 1")."""
    correct, others = round(mean * size), size - 1
    if rule.baseline == LEAVE_ONE_OUT:
        return rule.k * (1.0 - any_of_others(others, correct - 1, rule.k - 1)) if reward > 0.0 else 0.0
    return float(rule.k) if reward > 0.0 else rule.k * any_of_others(others, correct, rule.k - 1)


@inner
def length_weighted_means(rewards, starts, group, n_groups):
    """sum_i |o_i| r_i / sum_i |o_i| of each group's trained responses (OPO, 2505.23585)."""
    weighted, tokens = np.zeros(n_groups), np.zeros(n_groups)
    for i in range(rewards.shape[0]):
        length = starts[i + 1] - starts[i]
        weighted[group[i]] += length * rewards[i]
        tokens[group[i]] += length
    for g in range(n_groups):
        weighted[g] = weighted[g] / tokens[g] if tokens[g] > 0.0 else 0.0
    return weighted


@inner(inline="always")
def other_centres(kind, rewards, starts, group, pool, pool_starts):
    """What takes the place of the mean of each group's baseline set, (G,); empty where nothing does."""
    if kind == LENGTH_WEIGHTED:
        return length_weighted_means(rewards, starts, group, pool_starts.shape[0] - 1)
    if kind != GROUP_MEAN and kind != LEAVE_ONE_OUT and kind != BATCH_MEAN and kind != NONE:
        raise UserError("advantage.baseline has a name that no kernel computes")
    return rewards[:0]


@jit
def whiten_into(kind, values, weights, ddof, eps):
    """Whiten values (n,) in place. By tokens: each value counts weights (n,) times, eps inside the root; by
    responses: once, eps outside."""
    n = values.shape[0]
    if kind == BY_RESPONSES:
        mean, std = mean_and_std(values, np.int64(0), n, ddof)
        for i in range(n):
            values[i] = 0.0 if values[i] == mean or n <= ddof else (values[i] - mean) / (std + eps)
        return
    if kind != BY_TOKENS:
        raise UserError("advantage.whiten has a name that no kernel computes")
    count, total, spread = 0.0, 0.0, 0.0
    for i in range(n):
        count += weights[i]
        total += values[i] * weights[i]
    mean = total / (count + WHITEN_EPS)
    for i in range(n):
        spread += weights[i] * (values[i] - mean) ** 2
    spread = spread / (count + WHITEN_EPS) * count / (count - 1.0) if count > 1.0 else np.inf
    for i in range(n):
        values[i] = (values[i] - mean) / np.sqrt(spread + WHITEN_EPS)


@jit
def advantages_into(rule, rewards, starts, group, pool, pool_starts, given, out):
    """Fill out (R,) with the advantages of the responses; starts (R+1,), pool (n,), pool_starts (G+1,), given (R,) read
    where needed.

    Loops, because numba takes two seconds to compile the assignment of an array to a slice.
    """
    n = out.shape[0]
    if rule.singleton != RAW and rule.singleton != ZERO and rule.singleton != ERROR:
        raise UserError("advantage.singleton has a name that no kernel computes")
    if rule.custom != 0:
        call_advantage(rule.custom, rewards, group, pool, pool_starts, out)
    elif rule.given:
        for i in range(n):
            out[i] = rewards[i] - given[i]
    elif rule.baseline == NONE and rule.credit == REWARD and rule.scale != GROUP_STD:
        for i in range(n):
            out[i] = rewards[i]
    elif rule.credit == REWARD and rule.baseline != SECOND_BEST:
        centre_into(rule, rewards, starts, group, pool, pool_starts, out)
    else:
        credit_into(rule, rewards, group, pool, pool_starts, out)
    if rule.scale == BATCH_STD:
        _, std = mean_and_std(pool, pool_starts[0], pool_starts[-1], rule.ddof)
        for i in range(n):
            out[i] = 0.0 if out[i] == 0.0 or pool_starts[-1] <= rule.ddof else out[i] / (std + rule.eps)
    elif rule.scale == NONZERO:
        nonzero = 0
        for i in range(n):
            nonzero += rewards[i] != 0.0
        for i in range(n):
            out[i] *= n / max(1, nonzero)
    elif rule.scale != UNSCALED and rule.scale != GROUP_STD:
        raise UserError("advantage.scale has a name that no kernel computes")
    if rule.whiten != PLAIN:
        lengths = np.empty(n)
        for i in range(n):
            lengths[i] = starts[i + 1] - starts[i]
        whiten_into(rule.whiten, out, lengths, rule.ddof, rule.eps)


@kernel
def runs_into(rule, pool, pool_starts, centres, origin, factor, divisor):
    """Fill what `centre_run` needs of each group (G,); centres (G,) or empty: `other_centres`. One loop over groups,
    so that their sums overlap."""
    by_std = rule.scale == GROUP_STD
    of_all = mean_between(pool, pool_starts[0], pool_starts[-1]) if rule.baseline == BATCH_MEAN else 0.0
    for g in range(origin.shape[0]):
        start, stop = pool_starts[g], pool_starts[g + 1]
        size, std = stop - start, 1.0
        origin[g], factor[g] = of_all, 1.0
        if size == 1:
            factor[g] = 0.0 if rule.singleton == ZERO and (rule.by_group or by_std) else 1.0
        elif rule.by_group or by_std:
            mean = mean_between(pool, start, stop)
            if rule.by_group:
                origin[g] = centres[g] if centres.shape[0] > 0 else mean
            if rule.baseline == LEAVE_ONE_OUT:
                factor[g] = size / (size - 1.0)
            if by_std:
                std = deviation(pool, start, stop, mean, rule.ddof)
        divisor[g] = std + rule.eps if by_std else 1.0


@kernel(inline="always")
def centre_run(rewards, origin, factor, divisor, out):
    """out = (r - origin) factor / divisor, 0 where r is the origin, whatever the divisor. No branch, so several
    responses at once."""
    for i in range(rewards.shape[0]):
        out[i] = (rewards[i] - origin) * factor / (1.0 if rewards[i] == origin else divisor)


@inner
def centre_into(rule, rewards, starts, group, pool, pool_starts, out):
    """`centre_run` with the three numbers of each response's group; responses of a group that lie together share a
    loop."""
    n_groups = pool_starts.shape[0] - 1
    centres, runs = other_centres(rule.baseline, rewards, starts, group, pool, pool_starts), np.empty((3, n_groups))
    runs_into(rule, pool, pool_starts, centres, runs[0], runs[1], runs[2])
    stop = np.int64(0)
    while stop < rewards.shape[0]:
        start, g = stop, group[stop]
        while stop < rewards.shape[0] and group[stop] == g:
            stop += 1
        centre_run(rewards[start:stop], runs[0, g], runs[1, g], runs[2, g], out[start:stop])


@inner
def credit_into(rule, rewards, group, pool, pool_starts, out):
    """Advantages that are no centred reward: the set's mean, a part in pass@k, best minus second best."""
    for i in range(rewards.shape[0]):
        start, stop = pool_starts[group[i]], pool_starts[group[i] + 1]
        mean, std = mean_and_std(pool, start, stop, rule.ddof)
        if rule.credit == SET_MEAN:
            out[i] = mean
        elif rule.credit == PASS_AT_K:
            out[i] = pass_at_k_credit(rule, rewards[i], mean, stop - start)
        elif rule.credit != REWARD:
            raise UserError("advantage.credit has a name that no kernel computes")
        elif stop - start == 1:
            out[i] = (
                0.0
                if rule.singleton == ZERO
                else rewards[i] / (1.0 + rule.eps)
                if rule.scale == GROUP_STD
                else rewards[i]
            )
        else:
            best, second = runner_up(pool, start, stop)
            gap = best - second if rewards[i] == best else 0.0
            out[i] = gap / (std + rule.eps) if rule.scale == GROUP_STD and gap > 0.0 else gap


def check_given(spec: Advantage, baseline: np.ndarray | None) -> None:
    """Raise unless a baseline array is given exactly where `spec` reads one."""
    said = "needed" if spec.given else "not read"
    check((baseline is not None) == spec.given, f"advantage.baseline {spec.baseline}: a baseline array is {said}")


def advantages(
    spec: Advantage,
    rewards: np.ndarray,
    group: np.ndarray,
    pool: Pool,
    *,
    starts: np.ndarray | None = None,
    baseline: np.ndarray | None = None,
) -> np.ndarray:
    """Advantages (R,) of responses with `rewards` (R,) in `group` (R,), against the baseline sets of `pool`.

    none             A = r                                                                      Williams 1992
    group_mean       A = r - mean                                                               Dr. GRPO, 2503.20783
    ... group_std    A = (r - mean)/(std + eps)                                                 GRPO, 2402.03300 eq. 3
    ... batch_std    A = (r - mean)/(std of the batch + eps)                                    LitePPO, 2508.08221
    ... nonzero      A = (r - mean) R / #(r != 0)                                               GPG 2504.02546, as verl
    leave_one_out    A = (r - mean) n/(n-1) = r - mean of the others                            RLOO, 2402.14740
    length_weighted  A = r - sum |o_i| r_i / sum |o_i|, over the group's trained responses      OPO, 2505.23585
    second_best      A = best - second best for the best response of a group, 0 for the others  pass@k GRPO
    greedy, moving_average, value, optimal  A = r - baseline    ReMax 2310.10505; SPO 2509.13232; PPO

    mean and std (with ddof) run over the group's baseline set of n rewards. starts (R+1,) gives lengths (one token each
    by default), baseline (R,) the numbers that were found elsewhere. Whitening needs the whole batch. Raises UserError
    where shapes disagree, a group has no baseline set, or pass_at_k meets rewards that are not 0/1 or sets under k.
    """
    sizes_G = np.diff(pool.starts)
    check(
        rewards.shape == group.shape,
        f"rewards {rewards.shape} and group {group.shape} must have one entry per response",
    )
    check_labels("group", group, sizes_G.size)
    starts = np.arange(rewards.size + 1) if starts is None else np.asarray(starts, dtype=np.int64)
    check(
        starts.shape == (rewards.size + 1,),
        f"starts {starts.shape} must have one entry more than rewards {rewards.shape}",
    )
    for g in group[sizes_G[group] == 0][:1]:
        raise UserError(
            f"group {g} has an empty baseline set; allowed: 1 reward or more for every group that is trained on"
        )
    if spec.singleton == "error" and spec.of_group and (sizes_G[group] == 1).any():
        raise UserError(
            f"group {group[np.argmax(sizes_G[group] == 1)]} has a baseline set of one reward; this estimator "
            "needs two (advantage.singleton allows raw, zero)"
        )
    if spec.credit == "pass_at_k":
        check(bool(np.isin(pool.rewards, (0.0, 1.0)).all()), "advantage.credit pass_at_k needs rewards that are 0 or 1")
        smallest = sizes_G[group].min(initial=spec.k)
        check(smallest >= spec.k, f"advantage.k = {spec.k}; allowed: at most the smallest baseline set, {smallest}")
    check_given(spec, baseline)
    given = rewards if baseline is None else np.ascontiguousarray(baseline, dtype=np.float64)
    check(given.shape == rewards.shape, f"baseline {given.shape} must have one entry per response {rewards.shape}")
    out = np.empty(rewards.shape[0])
    rewards, group = np.ascontiguousarray(rewards, np.float64), np.ascontiguousarray(group, np.int64)
    with raising():
        advantages_into(advantage_rule(spec), rewards, starts, group, pool.rewards, pool.starts, given, out)
    return out
