"""Compute advantages that differ from token to token: rewards to go, generalised advantage estimation, the optimal
token baseline."""

import numpy as np

from rftlab.shared.advantage import whiten_into
from rftlab.shared.config.advantage import BY_TOKENS, Advantage
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.jit import jit

TOKEN_EPS = 1e-8


@jit
def rewards_to_go_into(rewards, starts, gamma, out):
    """Fill out (T,) with out_t = r_t + gamma out_(t+1) within each response, from rewards (T,)."""
    for row in range(starts.shape[0] - 1):
        # From the last token backwards: each needs the sum of what follows it.
        running = 0.0
        for t in range(starts[row + 1] - 1, starts[row] - 1, -1):
            running = rewards[t] + gamma * running
            out[t] = running


@jit
def gae_into(rewards, values, starts, gamma, lam, out):
    """Fill out (T,) with out_t = delta_t + gamma lam out_(t+1), delta_t = r_t + gamma V_(t+1) - V_t; V = 0 after the
    end."""
    for row in range(starts.shape[0] - 1):
        # V is 0 after the last token: the episode is over.
        running, following = 0.0, 0.0
        for t in range(starts[row + 1] - 1, starts[row] - 1, -1):
            running = rewards[t] + gamma * following - values[t] + gamma * lam * running
            following = values[t]
            out[t] = running


def rewards_at_ends(rewards: np.ndarray, starts: np.ndarray, token_rewards: np.ndarray | None = None) -> np.ndarray:
    """Return rewards per token (T,): each response's reward (R,) on its last token, added to `token_rewards`. The
    reward of an empty response is lost."""
    out_T = np.zeros(int(starts[-1])) if token_rewards is None else np.array(token_rewards, dtype=np.float64)
    check(
        out_T.shape == (starts[-1],), f"token_rewards {out_T.shape} must have one entry per token {(int(starts[-1]),)}"
    )
    filled_R = np.diff(starts) > 0
    out_T[starts[1:][filled_R] - 1] += rewards[filled_R]
    return out_T


def token_advantages(
    spec: Advantage, rewards: np.ndarray, starts: np.ndarray, baseline: np.ndarray | None = None
) -> np.ndarray:
    """Return advantages (T,) from rewards per token (T,), without a baseline or with a given one per token (T,).

    value    generalised advantage estimation, baseline = V_t             Schulman et al., 1506.02438; PPO, 1707.06347
    others   A_t = sum_(u >= t) gamma^(u-t) r_u - baseline_t              REINFORCE++ 2501.03262 (whitened);
                                                                          ReMax 2310.10505

    With gamma = lam = 1 and one reward at the end both are the reward minus the baseline, on every token.
    """
    rewards, starts = np.ascontiguousarray(rewards, dtype=np.float64), np.asarray(starts, dtype=np.int64)
    baseline = np.zeros_like(rewards) if baseline is None else np.ascontiguousarray(baseline, dtype=np.float64)
    check(
        rewards.shape == baseline.shape == (starts[-1],),
        f"rewards {rewards.shape} and baseline {baseline.shape} must have one entry per token",
    )
    check(
        spec.of_tokens,
        f"advantage.baseline {spec.baseline}, scale {spec.scale}, whiten {spec.whiten}, credit {spec.credit}: "
        "not per token",
    )
    out = np.empty_like(rewards)
    if spec.baseline == "value":
        gae_into(rewards, baseline, starts, spec.gamma, spec.lam, out)
    else:
        rewards_to_go_into(rewards, starts, spec.gamma, out)
        out -= baseline
    if spec.whiten != "none":
        check(out.size != 1, "advantage.whiten = tokens over one token; allowed: two or more")
        whiten_into(BY_TOKENS, out, np.ones_like(out), spec.ddof, spec.eps)
    return out


@jit
def optimal_tokens_into(returns, norms, starts, group, position, eps, out):
    """Fill out (T,) as `optimal_token_baseline` describes. norms (T,): squared norms of the tokens' scores, which
    rounding may leave below 0. A prefix of probability 1 has score 0, and its baseline is set to 0, since any will
    do."""
    width, groups = 0, 0
    for t in range(position.shape[0]):
        width = max(width, position[t] + 1)
    for i in range(group.shape[0]):
        groups = max(groups, group[i] + 1)
    above, below, size = np.zeros((groups, width)), np.zeros((groups, width)), np.zeros(groups)
    for i in range(group.shape[0]):
        prefix, g = 0.0, group[i]
        size[g] += 1.0
        for t in range(starts[i], starts[i + 1]):
            # The score of a prefix is a sum of independent scores, so their squared norms add up.
            prefix += max(norms[t], 0.0)
            above[g, position[t]] += returns[t] * prefix
            below[g, position[t]] += prefix
    for i in range(group.shape[0]):
        g = group[i]
        for t in range(starts[i], starts[i + 1]):
            # A group of one would be its own baseline, and have no gradient.
            weight = below[g, position[t]] + eps
            out[t] = above[g, position[t]] / weight if size[g] > 1.0 and weight > 0.0 else 0.0


def optimal_token_baseline(
    returns: np.ndarray,
    old_logp: np.ndarray,
    squares: np.ndarray,
    starts: np.ndarray,
    group: np.ndarray,
    *,
    correction: np.ndarray | None = None,
    position: np.ndarray | None = None,
    zero_tail: bool = False,
    eps: float = TOKEN_EPS,
) -> np.ndarray:
    """Return the baseline (T,) that minimises the variance of a group's gradient at each position t, as verl's
    `optimal_token_baseline`.

    b_t = sum_i G_(i,t) W_(i,t) / (sum_i W_(i,t) + eps) over the group's responses that reach t; W is the running sum
    of 1 - 2 pi(a) + sum_v pi(v)^2, the squared norm of a token's score in its logits, so W_t estimates that of the
    prefix. A group of one has baseline 0. returns, old_logp, squares (= sum_v pi(v)^2) (T,); correction (T,):
    importance weights, which enter squared. position (T,): place of each token, by default its index in its response.
    zero_tail: no baseline where only the longest response of a group is left. eps: verl's is 1e-8; simulator and
    trainer take 0, so that a group whose rewards are all 0 or all 1 has advantage 0.
    """
    starts, group = np.asarray(starts, dtype=np.int64), np.asarray(group, dtype=np.int64)
    lengths_R = np.diff(starts)
    # |e_a - pi|^2 = 1 - 2 pi(a) + sum_v pi(v)^2: no vector as long as the vocabulary is kept.
    norm_T = 1.0 - 2.0 * np.exp(old_logp) + squares
    norm_T = norm_T if correction is None else norm_T * np.asarray(correction) ** 2
    position_T = (
        np.arange(starts[-1]) - np.repeat(starts[:-1], lengths_R)
        if position is None
        else np.asarray(position, dtype=np.int64)
    )
    out_T = np.empty(len(norm_T))
    optimal_tokens_into(np.asarray(returns, dtype=np.float64), norm_T, starts, group, position_T, eps, out_T)
    if zero_tail:
        for g in np.unique(group):
            # At the end of the longest response there is no other response to compare with, and verl leaves it without
            # a baseline.
            *_, second, longest = sorted(lengths_R[group == g]) if (group == g).sum() > 1 else (0, 0, 0)
            if longest > second:
                row = int(np.flatnonzero((group == g) & (lengths_R == longest))[0])
                tail = slice(starts[row], starts[row + 1])
                out_T[tail][position_T[tail] >= second] = 0.0
    return out_T
