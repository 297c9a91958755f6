"""Freeze, then weigh: `prepare` once per optimiser batch, `weigh` at every evaluation of the policy."""

from typing import NamedTuple

import numpy as np

from shared.advantage import Pool, advantages, pool_of
from shared.aggregation import check_starts, shares
from shared.errors import check
from shared.estimator import Estimator, Rule, rule_of
from shared.jit import jit
from shared.kl import NONE, kl_penalty
from shared.surrogate import surrogate


class Batch(NamedTuple):
    """What stays fixed while the policy moves; every array is (T,), and slicing all of them gives a micro-batch."""

    advantage: np.ndarray
    share: np.ndarray
    """Share of the surrogate, times the importance correction."""
    kl_share: np.ndarray
    """Share of the KL penalty, times its coefficient."""
    old_logp: np.ndarray
    ref_logp: np.ndarray


class Weighed(NamedTuple):
    """The objective of a batch at the current policy, its derivative, and sums for metrics (divide by T)."""

    objective: float
    weight: np.ndarray
    """(T,) dJ/dlogp: the weight of each token on its score."""
    clipped: int
    dual_clipped: int
    kl: float


@jit
def weigh_into(rule, batch, logp, weight):
    """Fill weight (T,) with dJ/dlogp at logp (T,); return J, clipped tokens, dual-clipped tokens, sum of KL values."""
    objective, clipped, dual_clipped, kl_total = 0.0, 0, 0, 0.0
    for t in range(logp.shape[0]):
        value, slope, is_clipped, is_dual = surrogate(rule.surrogate, rule.low, rule.high, rule.dual, batch.advantage[t], logp[t], batch.old_logp[t])
        objective += batch.share[t] * value
        weight[t] = batch.share[t] * slope
        clipped += is_clipped
        dual_clipped += is_dual
        if rule.kl != NONE:
            kl, kl_slope = kl_penalty(rule.kl, rule.kl_straight_through, logp[t], batch.ref_logp[t])
            objective -= batch.kl_share[t] * kl
            weight[t] -= batch.kl_share[t] * kl_slope
            kl_total += kl
    return objective, clipped, dual_clipped, kl_total


def weigh(estimator: Estimator, batch: Batch, logp: np.ndarray) -> Weighed:
    """J = sum_t share_t j_t - kl_share_t kl_t and w = dJ/dlogp at the current log-probabilities `logp` (T,)."""
    logp = np.ascontiguousarray(logp, dtype=np.float64)
    check(logp.shape == batch.advantage.shape, f"logp {logp.shape} must have one entry per token {batch.advantage.shape}")
    weight = np.empty_like(logp)
    objective, clipped, dual_clipped, kl = weigh_into(rule_of(estimator), batch, logp, weight)
    return Weighed(objective, weight, clipped, dual_clipped, kl)


@jit
def shape_into(rule, rewards, starts, old_logp, ref_logp):
    """Subtract the sampled KL penalty of each response from its reward, in place (KL in the reward)."""
    for row in range(rewards.shape[0]):
        for t in range(starts[row], starts[row + 1]):
            kl, _ = kl_penalty(rule.kl, False, old_logp[t], ref_logp[t])
            rewards[row] -= rule.kl_in_reward * kl


def shaped_rewards(estimator: Estimator, rewards: np.ndarray, starts: np.ndarray, old_logp: np.ndarray, ref_logp: np.ndarray | None = None) -> np.ndarray:
    """Rewards (R,) after a KL penalty in the reward; unchanged where the estimator has none. Baseline sets take these."""
    shaped = np.array(rewards, dtype=np.float64)
    rule = rule_of(estimator)
    if rule.kl != NONE and rule.kl_in_reward > 0:
        check(ref_logp is not None, "a KL penalty needs ref_logp")
        starts, old_logp, ref_logp = np.asarray(starts, dtype=np.int64), _column(old_logp), _column(ref_logp)
        check_starts(starts)
        check(starts.shape == (shaped.size + 1,), f"starts {starts.shape} must have one entry more than rewards {shaped.shape}")
        _check_tokens((starts[-1],), old_logp=old_logp, ref_logp=ref_logp)
        shape_into(rule, shaped, starts, old_logp, ref_logp)
    return shaped


def _column(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _check_tokens(shape: tuple[int], **columns: np.ndarray) -> None:
    for name, column in columns.items():
        check(column.shape == shape, f"{name} {column.shape} must have one entry per token {tuple(map(int, shape))}")


def freeze(rule: Rule, advantage, starts, old_logp, ref_logp=None, correction=None, n_tokens=None, n_rows=None) -> Batch:
    """A `Batch` from advantages per token (T,): used by `prepare`, and directly where advantages vary within a response."""
    check(ref_logp is not None or rule.kl == NONE, "a KL penalty needs ref_logp")
    share = shares(rule, starts, n_tokens, n_rows)
    advantage, old_logp = _column(advantage), _column(old_logp)
    ref_logp = old_logp if ref_logp is None else _column(ref_logp)
    correction = np.ones_like(share) if correction is None else _column(correction)
    _check_tokens(share.shape, advantage=advantage, old_logp=old_logp, ref_logp=ref_logp, correction=correction)
    return Batch(advantage, share * correction, rule.kl_in_loss * share, old_logp, ref_logp)


def prepare(
    estimator: Estimator,
    rewards: np.ndarray,
    group: np.ndarray,
    starts: np.ndarray,
    old_logp: np.ndarray,
    ref_logp: np.ndarray | None = None,
    *,
    pool: Pool | None = None,
    correction: np.ndarray | None = None,
    n_tokens: int | None = None,
    n_rows: int | None = None,
) -> Batch:
    """Everything about a batch of responses that does not change while the policy is updated.

    rewards (R,), group (R,), starts (R+1,), old_logp and ref_logp (T,): see the package's glossary. A KL penalty in the reward is applied here.
    pool: the baseline sets, of `shaped_rewards`; by default those of the rewards themselves. correction (T,): importance weights on the surrogate.
    n_tokens, n_rows: counts of the optimiser batch, where this call covers only a part of it.
    Raises UserError where shapes disagree, a group label has no baseline set, or the estimator needs ref_logp.
    """
    rewards, group, starts = _column(rewards), np.asarray(group, dtype=np.int64), np.asarray(starts, dtype=np.int64)
    check_starts(starts)
    check(starts.shape == (rewards.size + 1,), f"starts {starts.shape} must have one entry more than rewards {rewards.shape}")
    rewards = shaped_rewards(estimator, rewards, starts, old_logp, ref_logp)
    if pool is None:
        pool = pool_of(int(group.max()) + 1 if group.size else 0, (rewards, group))
    rule = rule_of(estimator)
    advantage = advantages(rule, rewards, group, pool)
    return freeze(rule, np.repeat(advantage, np.diff(starts)), starts, old_logp, ref_logp, correction, n_tokens, n_rows)
