"""Compute everything about an optimiser batch that stays fixed while the policy is updated, including rewards after a
length penalty and a KL penalty."""

from typing import NamedTuple

import numpy as np

from rftlab.shared.advantage import advantages, check_given
from rftlab.shared.aggregation import check_starts, shares
from rftlab.shared.combine import combined_advantages
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.mask import KLCov
from rftlab.shared.correction import corrections
from rftlab.shared.credit import optimal_token_baseline, rewards_at_ends, token_advantages
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.kl import kl_penalty
from rftlab.shared.plumbing.errors import UserError, check, check_type
from rftlab.shared.plumbing.jit import inner, jit
from rftlab.shared.plumbing.pool import Pool, make_pool


@inner
def length_penalty(rule, length):
    """Return the penalty on a response of `length` tokens (DAPO, 2503.14476, eq. 13)."""
    return rule.coef * min(max((length - rule.limit + rule.buffer) / rule.buffer, 0.0), 1.0)


@jit
def shape_into(rule, rewards, starts, old_logp, ref_logp):
    """Subtract the length penalty and a KL penalty from rewards (R,) in place; starts (R+1,), old_logp and ref_logp
    (T,). KL values are summed over a response."""
    for row in range(rewards.shape[0]):
        length = starts[row + 1] - starts[row]
        # The penalty comes before advantages, so that it also moves baselines and deviations.
        if rule.shaping.coef > 0.0:
            rewards[row] -= length_penalty(rule.shaping, length)
        if rule.kl.in_reward > 0.0:
            for t in range(starts[row], starts[row + 1]):
                kl, _ = kl_penalty(rule.kl, old_logp[t], ref_logp[t])
                rewards[row] -= rule.kl.in_reward * kl


class Batch(NamedTuple):
    """Values that stay fixed while the policy moves; every array is (T,), and slicing all of them between responses
    gives a micro-batch."""

    advantage: np.ndarray
    share: np.ndarray
    """Share of the token's surrogate in the objective, times the importance correction."""
    kl_share: np.ndarray
    """Share of the token's KL penalty, times its coefficient. KLCov's penalty is part of its surrogate, so there it is
    multiplied by the importance correction too."""
    old_logp: np.ndarray
    ref_logp: np.ndarray
    """Log-probabilities that the KL penalty compares with."""
    row: np.ndarray
    """Index of the token's response."""


def column(values: np.ndarray, kind: type = np.float64) -> np.ndarray:
    """Return values as an array of a number type. Raises UserError for values that are no numbers, or not whole for
    np.int64."""
    try:
        with np.errstate(invalid="ignore"):
            array: np.ndarray = np.ascontiguousarray(values, dtype=kind)
            whole = kind is np.float64 or bool((array == np.asarray(values)).all())
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{values!r:.60} is no array of numbers; allowed: a sequence of numbers") from None
    check(whole, f"{values!r:.60}; allowed: whole numbers")
    return array


def _check_tokens(shape: tuple[int], **columns: np.ndarray) -> None:
    for name, column in columns.items():
        check(column.shape == shape, f"{name} {column.shape} must have one entry per token {tuple(map(int, shape))}")


def shaped_rewards(
    estimator: Estimator,
    rewards: np.ndarray,
    starts: np.ndarray,
    old_logp: np.ndarray,
    ref_logp: np.ndarray | None = None,
) -> np.ndarray:
    """Return rewards (R,) after the length penalty and a KL penalty in the reward, or unchanged without them. Baseline
    sets are made from these."""
    shaped, rule = np.array(rewards, dtype=np.float64), as_rule(estimator)
    if rule.shaping.active:
        check(ref_logp is not None or rule.kl.in_reward == 0, "a KL penalty needs ref_logp")
        starts, old_logp = np.asarray(starts, dtype=np.int64), column(old_logp)
        ref_logp = old_logp if ref_logp is None else column(ref_logp)
        check_starts(starts)
        check(
            starts.shape == (shaped.size + 1,),
            f"starts {starts.shape} must have one entry more than rewards {shaped.shape}",
        )
        _check_tokens((starts[-1],), old_logp=old_logp, ref_logp=ref_logp)
        shape_into(rule, shaped, starts, old_logp, ref_logp)
    return shaped


def batch_from_advantages(
    estimator: Estimator,
    advantage,
    starts,
    old_logp,
    ref_logp=None,
    *,
    sampler_logp=None,
    correction=None,
    group=None,
    n_tokens=None,
    n_rows=None,
) -> Batch:
    """Return the `Batch` of advantages per token (T,). `prepare` calls it; call it directly where advantages vary
    within a response.

    sampler_logp (T,): log-probabilities under the policy that sampled, where it differs from the trainer's
    (`Correction`). correction (T,): importance weights that are known already, in place of sampler_logp. group (R,):
    needed where the aggregation is prompt_mean.
    """
    kl = estimator.kl
    check(ref_logp is not None or kl.kind == "none" or kl.anchor == "old", "a KL penalty needs ref_logp")
    check(
        sampler_logp is None or correction is None, "sampler_logp and correction are both given; allowed: one of them"
    )
    share_T = shares(estimator.aggregation, starts, n_tokens, n_rows, group)
    advantage, old_logp = column(advantage), column(old_logp)
    # A penalty against the policy that sampled starts at 0 and grows with the update.
    ref_logp = old_logp if ref_logp is None or kl.anchor == "old" else column(ref_logp)
    if sampler_logp is not None and estimator.correction.kind == "ratio":
        _check_tokens(share_T.shape, sampler_logp=np.asarray(sampler_logp))
        # The ratio is taken to the sampler itself (kind `ratio`), which needs no weight besides.
        old_logp = column(sampler_logp)
    elif sampler_logp is not None:
        correction = corrections(estimator.correction, starts, old_logp, sampler_logp)
    correction = np.ones_like(share_T) if correction is None else column(correction)
    _check_tokens(share_T.shape, advantage=advantage, old_logp=old_logp, ref_logp=ref_logp, correction=correction)
    coef = kl.coef if kl.place == "loss" else 0.0
    # KLCov's penalty stands in place of a clip, so it is corrected as the surrogate is; other penalties are not.
    kl_share_T = coef * (share_T * correction if isinstance(estimator.mask, KLCov) else share_T)
    row_T = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return Batch(advantage, share_T * correction, kl_share_T, old_logp, ref_logp, row_T)


def prepare(
    estimator: Estimator,
    rewards: np.ndarray,
    group: np.ndarray,
    starts: np.ndarray,
    old_logp: np.ndarray,
    ref_logp: np.ndarray | None = None,
    *,
    pool: Pool | None = None,
    baseline: np.ndarray | None = None,
    squares: np.ndarray | None = None,
    token_rewards: np.ndarray | None = None,
    several: tuple[np.ndarray, np.ndarray] | None = None,
    sampler_logp: np.ndarray | None = None,
    correction: np.ndarray | None = None,
    n_tokens: int | None = None,
    n_rows: int | None = None,
) -> Batch:
    """Return everything about a batch of responses that stays fixed while the policy is updated.

    rewards (R,), group (R,), starts (R+1,), old_logp and ref_logp (T,): see the package's glossary. Penalties on the
    reward are applied here.
    pool: the baseline sets, made from `shaped_rewards`; by default from the rewards themselves.
    baseline: where the advantage's baseline comes from elsewhere: (R,) for greedy, moving_average, optimal; (T,) for
    value, optimal_token. squares (T,): sum_v pi(v)^2 of the policy that gave old_logp, from which the baseline of
    optimal_token is found where it is not given. token_rewards (T,): rewards at tokens, besides the response's own.
    several: the rewards (C, R) of which `rewards` are the sum with weights (C,), for an estimator that combines
    advantages; it takes `rewards` alone without them, and no pool. sampler_logp, correction (T,): see
    `batch_from_advantages`.
    n_tokens, n_rows: counts of the optimiser batch, where this call covers only a part of it.
    Raises UserError where shapes disagree, a group label has no baseline set, or something that the estimator needs is
    missing.
    """
    check_type("estimator", estimator, Estimator, "an Estimator")
    rewards, group = column(rewards), column(group, np.int64)
    starts, spec = column(starts, np.int64), estimator.advantage
    check_starts(starts)
    check(
        starts.shape == (rewards.size + 1,),
        f"starts {starts.shape} must have one entry more than rewards {rewards.shape}",
    )
    rewards = shaped_rewards(estimator, rewards, starts, old_logp, ref_logp)
    check(squares is None or spec.reads_squares, f"advantage.baseline {spec.baseline}: squares are not read")
    if spec.by_token or (token_rewards is not None and spec.of_tokens):
        rewards_T = rewards_at_ends(rewards, starts, token_rewards)
        if squares is not None and baseline is None:
            old_T, squares_T = column(old_logp), column(squares)
            _check_tokens(rewards_T.shape, old_logp=old_T, squares=squares_T)
            # The returns from which the baseline will be subtracted.
            returns = token_advantages(Advantage("none", gamma=spec.gamma), rewards_T, starts)
            baseline = optimal_token_baseline(returns, old_T, squares_T, starts, group, eps=0.0)
        advantage_T = _by_token(estimator, rewards_T, starts, baseline)
    else:
        if token_rewards is not None:
            _check_tokens((starts[-1],), token_rewards=np.asarray(token_rewards))
            row_T = np.repeat(np.arange(rewards.size), np.diff(starts))
            # Without an advantage per token a response is credited with the sum of its tokens' rewards.
            rewards = rewards + np.bincount(row_T, weights=token_rewards, minlength=rewards.size)
        if spec.combine == "advantages":
            check(baseline is None, "baseline; allowed: none where advantages are combined")
            parts_CR, weights_C = (rewards, np.ones(1)) if several is None else several
            advantage_R = combined_advantages(spec, parts_CR, weights_C, group, starts=starts)
        else:
            if pool is None:
                pool = make_pool(int(group.max()) + 1 if group.size else 0, (rewards, group))
            advantage_R = advantages(spec, rewards, group, pool, starts=starts, baseline=baseline)
        advantage_T = np.repeat(advantage_R, np.diff(starts))
    return batch_from_advantages(
        estimator,
        advantage_T,
        starts,
        old_logp,
        ref_logp,
        sampler_logp=sampler_logp,
        correction=correction,
        group=group,
        n_tokens=n_tokens,
        n_rows=n_rows,
    )


def _by_token(
    estimator: Estimator, token_rewards: np.ndarray, starts: np.ndarray, baseline: np.ndarray | None
) -> np.ndarray:
    """Return advantages (T,). A baseline per response is used for all its tokens."""
    spec = estimator.advantage
    check_given(spec, baseline)
    if baseline is not None and (spec.baseline in ("greedy", "moving_average") or len(baseline) != starts[-1]):
        check(
            len(baseline) == starts.size - 1,
            f"baseline ({len(baseline)},) must have one entry per response or per token",
        )
        baseline = np.repeat(np.asarray(baseline, dtype=np.float64), np.diff(starts))
    return token_advantages(spec, token_rewards, starts, baseline)
