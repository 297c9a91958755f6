"""Compute advantages from rewards: a credit, minus a baseline, divided by a scale, and whitened where asked for."""

import numpy as np

from rftlab.shared.config.advantage import (
    BATCH_MEAN,
    BATCH_STD,
    BY_MEAN,
    BY_RESPONSES,
    BY_TOKENS,
    CONSTANT,
    ERROR,
    GROUP_MEAN,
    GROUP_STD,
    JAMES_STEIN,
    LEAVE_ONE_OUT,
    LENGTH_WEIGHTED,
    NONE,
    NONZERO,
    OF_EACH,
    OF_SUM,
    OTHERS_STD,
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
    """Return the probability that k of n responses, drawn without replacement, include one of the `correct` right
    ones."""
    none = 1.0
    for j in range(k):
        # Hypergeometric: the j-th draw is wrong with chance (wrong ones left) / (responses left).
        none *= max(0.0, n - correct - j) / (n - j)
    return 1.0 - none


@inner
def pass_at_k_credit(rule, reward, mean, size):
    """Return a response's contribution to pass@k of its set, times n, so that it is the reward where k = 1 (PKPO,
    2505.15201). With `leave_one_out` it has that paper's baseline "loo - 1"."""
    correct, others = round(mean * size), size - 1
    if rule.baseline == LEAVE_ONE_OUT:
        # Without this response the set passes through the others alone; the baseline takes that chance away.
        return rule.k * (1.0 - any_of_others(others, correct - 1, rule.k - 1)) if reward > 0.0 else 0.0
    return float(rule.k) if reward > 0.0 else rule.k * any_of_others(others, correct, rule.k - 1)


@inner
def length_weighted_means(rewards, starts, group, n_groups):
    """Return sum_i |o_i| r_i / sum_i |o_i| over each group's trained responses, (G,) (OPO, 2505.23585)."""
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
    """Return the baselines (G,) that replace the mean of each group's baseline set; an empty array where `kind` has
    none."""
    if kind == LENGTH_WEIGHTED:
        return length_weighted_means(rewards, starts, group, pool_starts.shape[0] - 1)
    if kind not in (GROUP_MEAN, LEAVE_ONE_OUT, JAMES_STEIN, BATCH_MEAN, CONSTANT, NONE):
        raise UserError("advantage.baseline has a name that no kernel computes")
    return rewards[:0]


@jit
def whiten_into(kind, values, weights, ddof, eps):
    """Whiten values (n,) in place: subtract their mean and divide by their deviation. By tokens each value counts
    weights (n,) times, and eps is added inside the root; by responses it counts once, and eps is added to the
    deviation."""
    n = values.shape[0]
    if kind == BY_RESPONSES:
        mean, std = mean_and_std(values, np.int64(0), n, ddof)
        for i in range(n):
            # Equal values have deviation 0, where rounding alone would be divided by eps.
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


@inner
def unwhitened_into(rule, rewards, starts, group, pool, pool_starts, given, out):
    """Fill out (R,) with the advantages of the responses before whitening; arguments as in `advantages_into`."""
    n = out.shape[0]
    if rule.singleton != RAW and rule.singleton != ZERO and rule.singleton != ERROR:
        raise UserError("advantage.singleton has a name that no kernel computes")
    if rule.combine != OF_SUM and rule.combine != OF_EACH:
        raise UserError("advantage.combine has a name that no kernel computes")
    if rule.custom != 0:
        call_advantage(rule.custom, rewards, group, pool, pool_starts, out)
    elif rule.given:
        for i in range(n):
            out[i] = rewards[i] - given[i]
    elif rule.baseline == NONE and rule.credit == REWARD and not rule.of_group:
        for i in range(n):
            out[i] = rewards[i]
    elif rule.credit == REWARD and rule.baseline != SECOND_BEST:
        centre_into(rule, rewards, starts, group, pool, pool_starts, out)
    else:
        credit_into(rule, rewards, group, pool, pool_starts, out)
    if rule.scale == BATCH_STD:
        # The batch's deviation is that of all rewards, also of support rollouts, which are in the pool and not in
        # `out`.
        _, std = mean_and_std(pool, pool_starts[0], pool_starts[-1], rule.ddof)
        for i in range(n):
            out[i] = 0.0 if out[i] == 0.0 or pool_starts[-1] <= rule.ddof else out[i] / (std + rule.eps)
    elif rule.scale == NONZERO:
        nonzero = 0
        for i in range(n):
            # GPG divides by the share of responses with a reward, so that sparse rewards keep their step size.
            nonzero += rewards[i] != 0.0
        for i in range(n):
            out[i] *= n / max(1, nonzero)
    elif rule.scale == OTHERS_STD:
        scale_by_others(rule, rewards, group, pool, pool_starts, out)
    elif rule.scale != UNSCALED and rule.scale != GROUP_STD and rule.scale != BY_MEAN:
        raise UserError("advantage.scale has a name that no kernel computes")


@inner
def whiten_responses(rule, starts, out):
    """Whiten advantages (R,) in place, as the rule says."""
    if rule.whiten != PLAIN:
        lengths = np.empty(out.shape[0])
        for i in range(out.shape[0]):
            lengths[i] = starts[i + 1] - starts[i]
        whiten_into(rule.whiten, out, lengths, rule.ddof, rule.eps)


@jit
def advantages_into(rule, rewards, starts, group, pool, pool_starts, given, out):
    """Fill out (R,) with the advantages of the responses.

    starts (R+1,), pool (n,), pool_starts (G+1,) and given (R,) are read only where the rule needs them. Elements are
    set in loops, because numba takes two seconds to compile the assignment of an array to a slice.
    """
    unwhitened_into(rule, rewards, starts, group, pool, pool_starts, given, out)
    whiten_responses(rule, starts, out)


@kernel
def runs_into(rule, pool, pool_starts, centres, origin, factor, divisor):
    """Fill origin, factor and divisor (G,), the three numbers of each group from which `centre_run` computes
    advantages. centres: the result of `other_centres`. One loop over groups lets their sums overlap."""
    by_std, by_mean, of_all = rule.scale == GROUP_STD, rule.scale == BY_MEAN, rule.constant
    if rule.baseline == BATCH_MEAN:
        of_all = mean_between(pool, pool_starts[0], pool_starts[-1])
    for g in range(origin.shape[0]):
        start, stop = pool_starts[g], pool_starts[g + 1]
        # Every baseline and scale of a group comes down to three numbers: A = (r - origin) factor / divisor.
        size, std = stop - start, 1.0
        origin[g], factor[g] = of_all, 1.0
        if size == 1:
            factor[g] = 0.0 if rule.singleton == ZERO and rule.of_group else 1.0
        elif rule.of_group:
            mean = mean_between(pool, start, stop)
            if rule.by_group:
                origin[g] = centres[g] if centres.shape[0] > 0 else mean
            if rule.baseline == LEAVE_ONE_OUT:
                # r minus the mean of the others is (r - mean) n / (n - 1).
                factor[g] = size / (size - 1.0)
            if by_std:
                std = deviation(pool, start, stop, mean, rule.ddof)
            elif by_mean:
                # MaxRL divides by the pass rate. A group without a success has none to divide by, and gets advantage 0.
                std, factor[g] = (mean, factor[g]) if mean > 0.0 else (1.0, 0.0)
        divisor[g] = std + rule.eps if by_std or by_mean else 1.0


@inner
def shrink_into(pool, pool_starts, origin, factor):
    """Fill origin and factor (G,) of `centre_run` for the James-Stein baseline, where a set has two rewards or more.

    b_ij = (1 - lam_i) (mean of the others)_ij + lam_i (mean of the other groups' means)_i, lam_i = (n-1)/n v_i / (v_i +
    s_i) with n groups: v_i the mean over other groups of the variance of their means, s_i the variance of their means
    (2511.03710, eq. 10 to 16). Solved for (r - origin) factor. A group of one has no variance, and its mean counts.
    """
    means, spreads, n, measured = np.zeros(origin.shape[0]), np.zeros(origin.shape[0]), 0, 0
    for g in range(origin.shape[0]):
        size = pool_starts[g + 1] - pool_starts[g]
        if size > 0:
            means[g], n = mean_between(pool, pool_starts[g], pool_starts[g + 1]), n + 1
        if size > 1:
            std = deviation(pool, pool_starts[g], pool_starts[g + 1], means[g], 1)
            spreads[g], measured = std * std / size, measured + 1
    total, spread, between = means.sum(), spreads.sum(), 0.0
    for g in range(origin.shape[0]):
        if pool_starts[g + 1] > pool_starts[g]:
            between += (means[g] - total / n) ** 2
    for g in range(origin.shape[0]):
        size = pool_starts[g + 1] - pool_starts[g]
        if size < 2:
            continue
        # Statistics of the other groups come from sums over all groups, which saves a second loop over groups.
        other, own = (total - means[g]) / max(1, n - 1), (means[g] - total / n) ** 2 * n / max(1, n - 1)
        of_means, of_others = (
            max(0.0, spread - spreads[g]) / max(1, measured - 1),
            max(0.0, between - own) / max(1, n - 1),
        )
        lam = (n - 1.0) / n * of_means / (of_means + of_others) if of_means > 0.0 else 0.0
        # r - b is linear in r, because the mean of the others holds r: solve for its slope and its root.
        factor[g] = 1.0 + (1.0 - lam) / (size - 1.0)
        origin[g] = ((1.0 - lam) * size / (size - 1.0) * means[g] + lam * other) / factor[g]


@inner
def scale_by_others(rule, rewards, group, pool, pool_starts, out):
    """Divide each advantage by the deviation plus eps of its set without its own reward, where that is above 0."""
    for i in range(rewards.shape[0]):
        start, stop = pool_starts[group[i]], pool_starts[group[i] + 1]
        others, n, own = np.empty(stop - start), 0, False
        for j in range(start, stop):
            # One entry that equals the response's reward is left out as its own; it makes no difference which of
            # several.
            if pool[j] == rewards[i] and not own:
                own = True
            else:
                others[n], n = pool[j], n + 1
        if n > rule.ddof:
            _, std = mean_and_std(others, np.int64(0), n, rule.ddof)
            if std > 0.0:
                out[i] /= std + rule.eps


@kernel(inline="always")
def centre_run(rewards, origin, factor, divisor, out):
    """Fill out with (r - origin) factor / divisor, or 0 where r is the origin, whatever the divisor. There is no
    branch, so that several responses are computed at once."""
    for i in range(rewards.shape[0]):
        out[i] = (rewards[i] - origin) * factor / (1.0 if rewards[i] == origin else divisor)


@inner
def centre_into(rule, rewards, starts, group, pool, pool_starts, out):
    """Fill out (R,) with the advantages that `centre_run` computes from the three numbers of each response's group.
    Neighbouring responses of one group share a loop."""
    n_groups = pool_starts.shape[0] - 1
    centres, runs = other_centres(rule.baseline, rewards, starts, group, pool, pool_starts), np.empty((3, n_groups))
    runs_into(rule, pool, pool_starts, centres, runs[0], runs[1], runs[2])
    if rule.baseline == JAMES_STEIN:
        shrink_into(pool, pool_starts, runs[0], runs[1])
    stop = np.int64(0)
    while stop < rewards.shape[0]:
        start, g = stop, group[stop]
        # A run of one group shares its three numbers, which the loop then holds in registers.
        while stop < rewards.shape[0] and group[stop] == g:
            stop += 1
        centre_run(rewards[start:stop], runs[0, g], runs[1, g], runs[2, g], out[start:stop])


@inner
def credit_into(rule, rewards, group, pool, pool_starts, out):
    """Fill out (R,) with advantages that are no centred reward: the set's mean, a part in pass@k, or best minus second
    best."""
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
    """Return advantages (R,) of responses with `rewards` (R,) in `group` (R,), against the baseline sets of `pool`.

    none             A = r                                                                      Williams 1992
    group_mean       A = r - mean                                                               Dr. GRPO, 2503.20783
    ... group_std    A = (r - mean)/(std + eps)                                                 GRPO, 2402.03300 eq. 3
    ... others_std   A = (r - mean)/(std of the group's other rewards + eps)                    NeMo-RL
    ... group_mean   A = (r - mean)/(mean + eps), 0 where mean <= 0                             MaxRL, 2602.02710
    ... batch_std    A = (r - mean)/(std of the batch + eps)                                    LitePPO, 2508.08221
    ... nonzero      A = (r - mean) R / #(r != 0)                                               GPG 2504.02546, as verl
    leave_one_out    A = (r - mean) n/(n-1) = r - mean of the others                            RLOO, 2402.14740
    james_stein      A = r - the mean of the others, shrunk to the other groups' means          2511.03710, eq. 16
    constant         A = r - c                                                                  NSR 2506.01347 (c = 1)
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
