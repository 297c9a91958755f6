"""Wrong variants of the estimators. Each check of the other files must refuse the variants that it is meant to catch."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests import test_estimators_derivatives as derivatives
from tests import test_estimators_golden as golden
from tests import test_estimators_identities as identities
from tests import test_estimators_naive as twins
from tests.vectors import FAMILIES, REAL, Api

GOLDEN = {family: (lambda api, family=family: golden.check_subset(api, family)) for family in FAMILIES}
CHECKS: dict[str, Callable[[Api], None]] = GOLDEN | twins.CHECKS | derivatives.CHECKS | identities.CHECKS


def with_estimator(change: Callable) -> Api:
    """Every function that takes an estimator takes `change(estimator)` instead."""

    def changed(function: Callable) -> Callable:
        return lambda estimator, *args, **kwargs: function(change(estimator), *args, **kwargs)

    return replace(REAL, **{name: changed(getattr(REAL, name)) for name in ("rule_of", "prepare", "shaped_rewards", "weigh")})


def on(part: str, change: Callable) -> Api:
    """Every estimator has `change(its part)` for that part."""
    return with_estimator(lambda estimator: replace(estimator, **{part: change(getattr(estimator, part))}))


def with_batch(change: Callable) -> Api:
    """Every batch is changed after `prepare` or `freeze` made it."""
    return replace(
        REAL,
        prepare=lambda *args, **kwargs: change(REAL.prepare(*args, **kwargs)),
        freeze=lambda *args, **kwargs: change(REAL.freeze(*args, **kwargs)),
    )


def with_weighed(change: Callable) -> Api:
    """The outcome of `weigh` is changed."""
    return replace(REAL, weigh=lambda *args: change(REAL.weigh(*args)))


def weight_sign_flipped() -> Api:
    def token(*args):
        value, slope, clipped, dual = REAL.surrogate(*args)
        return value, -slope, clipped, dual

    return replace(with_weighed(lambda weighed: weighed._replace(weight=-weighed.weight)), surrogate=token)


def objective_sign_flipped() -> Api:
    def token(*args):
        value, slope, clipped, dual = REAL.surrogate(*args)
        return -value, slope, clipped, dual

    return replace(with_weighed(lambda weighed: weighed._replace(objective=-weighed.objective)), surrogate=token)


def advantage_sign_flipped() -> Api:
    return replace(with_batch(lambda batch: batch._replace(advantage=-batch.advantage)), advantages=lambda *args: -REAL.advantages(*args))


def kl_sign_flipped() -> Api:
    def shaped(estimator, rewards, *args, **kwargs):
        return 2.0 * np.asarray(rewards) - REAL.shaped_rewards(estimator, rewards, *args, **kwargs)

    def penalty(*args):
        value, slope = REAL.kl_penalty(*args)
        return -value, -slope

    return replace(with_batch(lambda batch: batch._replace(kl_share=-batch.kl_share)), shaped_rewards=shaped, kl_penalty=penalty)


def kl_slope_without_straight_through() -> Api:
    return replace(on("kl", lambda kl: replace(kl, straight_through=False)), kl_penalty=lambda kind, _, logp, ref: REAL.kl_penalty(kind, False, logp, ref))


def window_read_before_push() -> Api:
    waiting: list[tuple] = []

    def window_pool(windows, contexts):
        before = REAL.window_pool(windows, contexts)
        for pushed in waiting:
            REAL.push(*pushed)
        waiting.clear()
        return before

    def empty_windows(*args):
        waiting.clear()
        return REAL.empty_windows(*args)

    return replace(REAL, empty_windows=empty_windows, push=lambda *args: waiting.append(args), window_pool=window_pool)


def window_oldest_kept() -> Api:
    """A full window refuses new rewards."""

    def push(windows, contexts, rewards):
        for context, reward in zip(contexts, rewards, strict=True):
            if windows.pushed[context] < windows.rewards.shape[1]:
                REAL.push(windows, [context], [reward])

    return replace(REAL, push=push)


def normalised_by_micro_batch() -> Api:
    """Shares are divided by their sum over what `weigh` sees, and the counts of the optimiser batch are ignored."""

    def without_counts(function: Callable) -> Callable:
        return lambda *args, n_tokens=None, n_rows=None, **kwargs: function(*args, **kwargs)

    def weigh(estimator, batch, logp):
        total = batch.share.sum() or 1.0
        return REAL.weigh(estimator, batch._replace(share=batch.share / total, kl_share=batch.kl_share / total), logp)

    return replace(REAL, weigh=weigh, **{name: without_counts(getattr(REAL, name)) for name in ("prepare", "freeze", "shares")})


def counts_ignored() -> Api:
    return replace(normalised_by_micro_batch(), weigh=REAL.weigh)


def correction_ignored() -> Api:
    def without(function: Callable) -> Callable:
        return lambda *args, correction=None, **kwargs: function(*args, **kwargs)

    def freeze(rule, advantage, starts, old_logp, ref_logp=None, correction=None, **counts):
        return REAL.freeze(rule, advantage, starts, old_logp, ref_logp, None, **counts)

    return replace(REAL, prepare=without(REAL.prepare), freeze=freeze)


def correction_on_kl() -> Api:
    """The importance correction multiplies the KL penalty too."""

    def prepare(*args, correction=None, **kwargs):
        batch = REAL.prepare(*args, correction=correction, **kwargs)
        return batch if correction is None else batch._replace(kl_share=batch.kl_share * correction)

    return replace(REAL, prepare=prepare)


def support_ignored() -> Api:
    return replace(REAL, pool_of=lambda n_groups, *parts: REAL.pool_of(n_groups, parts[0]))


def groups_mixed() -> Api:
    """Rewards are cut into groups in the order in which they come, whatever their labels."""
    return replace(REAL, pool_of=lambda n, *parts: REAL.pool_of(n, *((rewards, np.sort(group)) for rewards, group in parts)))


def clip_not_counted() -> Api:
    return with_weighed(lambda weighed: weighed._replace(clipped=weighed.clipped - weighed.dual_clipped))


def weight_of_clipped_kept() -> Api:
    """Clipping limits the objective and leaves the slope as it is."""

    def token(kind, low, high, dual, advantage, logp, old_logp):
        value, _, clipped, is_dual = REAL.surrogate(kind, low, high, dual, advantage, logp, old_logp)
        return value, REAL.surrogate(kind, 1.0, float("inf"), float("inf"), advantage, logp, old_logp)[1], clipped, is_dual

    def weigh(estimator, batch, logp):
        free = replace(estimator, surrogate=replace(estimator.surrogate, low=1.0, high=float("inf"), dual=None))
        return REAL.weigh(estimator, batch, logp)._replace(weight=REAL.weigh(free, batch, logp).weight)

    return replace(REAL, surrogate=token, weigh=weigh)


def seen(kind: str, instead: str) -> Callable:
    """The change of one kind into another; any other kind stays."""
    return lambda part: replace(part, kind=instead) if part.kind == kind else part


def aggregated(kind: str, instead: str) -> Callable:
    return lambda part: replace(part, kind=instead, length=None) if part.kind == kind else part


def limits_ignored() -> Api:
    """Beyond the limits of the log-ratio and of k3 the values stay and the slopes go on."""

    def token(kind, low, high, dual, advantage, logp, old_logp):
        value, slope, clipped, is_dual = REAL.surrogate(kind, low, high, dual, advantage, logp, old_logp)
        return value, value if kind == 1 and not clipped and not is_dual else slope, clipped, is_dual

    def penalty(kind, straight_through, logp, ref_logp):
        value, slope = REAL.kl_penalty(kind, straight_through, logp, ref_logp)
        return value, 1.0 - np.exp(ref_logp - logp) if kind == 3 and not straight_through else slope

    def weigh(estimator, batch, logp):
        weighed, log_ratio, d = REAL.weigh(estimator, batch, logp), logp - batch.old_logp, logp - batch.ref_logp
        extra = batch.share * batch.advantage * np.exp(np.clip(log_ratio, -20.0, 20.0)) * (np.abs(log_ratio) > 20.0)
        if estimator.kl.kind == "k3" and not estimator.kl.straight_through:
            extra = extra - batch.kl_share * (1.0 - np.exp(-d)) * ((d > 20.0) | (np.exp(np.minimum(-d, 20.0)) + d - 1.0 > 10.0))
        return weighed._replace(weight=weighed.weight + extra)

    return replace(REAL, surrogate=token, kl_penalty=penalty, weigh=weigh)


ZSCORES = ("adv_grpo", "adv_onerpo", "adv_asyttgrpo", "check_pools_and_advantages", "check_pipeline")
WINDOWS = ("adv_asyttgrpo", "adv_asyttgrpo_nostd", "check_windows", "check_window_of_group")
EVERY_ADVANTAGE = (*(family for family in FAMILIES if family.startswith("adv_")), "check_pools_and_advantages", "check_pipeline")
TOKENS = ("loss_vanilla", "check_surrogates", "check_pipeline")
KLS = ("kl_penalty", "check_kls", "check_pipeline")
SHARES = ("loss_vanilla", "agg_modes", "check_shares", "check_pipeline")

MUTANTS: dict[str, tuple[Callable[[], Api], tuple[str, ...]]] = {
    # signs
    "weight sign flipped": (
        weight_sign_flipped,
        (*TOKENS, "agg_modes", "kl_penalty", "check_surrogate_slopes", "check_objective_slopes", "check_unclipped", "check_on_policy", "check_clip_stops"),
    ),
    "objective sign flipped": (
        objective_sign_flipped,
        (*TOKENS, "agg_modes", "kl_penalty", "check_surrogate_slopes", "check_objective_slopes", "check_unclipped"),
    ),
    "advantage sign flipped": (advantage_sign_flipped, (*EVERY_ADVANTAGE, "loss_vanilla", "check_shift", "check_leave_one_out", "check_clip_stops")),
    "KL sign flipped": (kl_sign_flipped, (*KLS, "check_kl_slopes", "check_kl_in_reward", "check_kl_in_loss")),
    # advantages
    "ddof 0 for 1": (lambda: on("advantage", lambda part: replace(part, ddof=0)), ZSCORES),
    "eps 1e-4 for 1e-6": (
        lambda: on("advantage", lambda part: replace(part, eps=1e-4 if part.eps == 1e-6 else part.eps)),
        (*ZSCORES, "check_window_of_one"),
    ),
    "eps 1e-6 where none": (lambda: on("advantage", lambda part: replace(part, eps=part.eps or 1e-6)), ("check_scale",)),
    "singleton zero for raw": (lambda: on("advantage", lambda part: replace(part, singleton="zero")), (*EVERY_ADVANTAGE, "check_window_of_one")),
    "leave-one-out includes itself": (
        lambda: on("advantage", seen("leave_one_out", "group_mean")),
        ("adv_rloo", "check_pools_and_advantages", "check_pipeline", "check_leave_one_out"),
    ),
    "zscore not scaled": (lambda: on("advantage", seen("group_zscore", "group_mean")), (*ZSCORES, "check_scale", "check_window_of_one")),
    "batch mean over groups": (lambda: on("advantage", seen("batch_mean", "group_mean")), ("check_pools_and_advantages", "check_pipeline")),
    "no baseline": (
        lambda: on("advantage", lambda part: replace(part, kind="reward")),
        (*EVERY_ADVANTAGE, "check_shift", "check_scale", "check_leave_one_out", "check_constant_groups"),
    ),
    "groups mixed": (
        groups_mixed,
        ("adv_grpo", "adv_rloo", "check_pools_and_advantages", "check_pipeline", "check_support", "check_order", "check_on_policy"),
    ),
    "support ignored": (support_ignored, ("adv_onerpo", "adv_onerpo_nostd", "check_pools_and_advantages", "check_pipeline", "check_support")),
    # windows
    "window one too short": (lambda: replace(REAL, empty_windows=lambda n, size: REAL.empty_windows(n, max(1, size - 1))), WINDOWS),
    "window one too long": (lambda: replace(REAL, empty_windows=lambda n, size: REAL.empty_windows(n, size + 1)), (*WINDOWS, "check_window_of_one")),
    "window read before push": (window_read_before_push, (*WINDOWS, "check_window_of_one")),
    "window keeps the oldest": (window_oldest_kept, (*WINDOWS, "check_window_of_one", "check_pipeline")),
    # surrogates
    "clip low and high swapped": (
        lambda: on("surrogate", lambda part: replace(part, low=min(part.high, 1.0), high=part.low)),
        (*TOKENS, "check_unclipped", "check_clip_stops"),
    ),
    "clip ignored": (
        lambda: on("surrogate", lambda part: replace(part, low=1.0, high=float("inf"))),
        (*TOKENS, "check_surrogate_slopes", "check_clip_stops"),
    ),
    "clip limits the value alone": (weight_of_clipped_kept, (*TOKENS, "check_surrogate_slopes", "check_objective_slopes", "check_clip_stops")),
    "dual clip ignored": (lambda: on("surrogate", lambda part: replace(part, dual=None)), (*TOKENS, "check_surrogate_slopes")),
    "dual clip always on": (
        lambda: on("surrogate", lambda part: replace(part, dual=part.dual or 1.1)),
        ("check_surrogates", "check_pipeline", "check_unclipped", "check_clip_stops"),
    ),
    "dual-clipped not counted as clipped": (clip_not_counted, ("loss_vanilla", "check_pipeline")),
    "reinforce for clip": (lambda: on("surrogate", lambda part: replace(part, kind="reinforce")), (*TOKENS, "check_unclipped", "check_clip_stops")),
    "slopes beyond the limits": (limits_ignored, (*TOKENS, *KLS, "check_surrogate_slopes", "check_kl_slopes")),
    # KL
    "k1 for k3": (lambda: on("kl", seen("k3", "k1")), KLS),
    "k2 for abs": (lambda: on("kl", seen("abs", "k2")), KLS),
    "k1 for k2": (lambda: on("kl", seen("k2", "k1")), (*KLS, "check_kl_in_loss")),
    "abs for k1": (lambda: on("kl", seen("k1", "abs")), (*KLS, "loss_vanilla", "check_kl_in_reward")),
    "KL always in the loss": (lambda: on("kl", lambda part: replace(part, place="loss")), ("kl_penalty", "check_pipeline", "check_kl_in_reward")),
    "straight-through ignored": (kl_slope_without_straight_through, (*KLS, "check_kl_slopes")),
    # aggregation and batches
    "correction ignored": (correction_ignored, ("loss_vanilla", "check_pipeline")),
    "correction on the KL too": (correction_on_kl, ("check_pipeline", "check_kl_in_loss")),
    "normalised by the micro-batch": (normalised_by_micro_batch, (*SHARES, "kl_penalty", "check_split", "check_prepared_apart")),
    "counts of the optimiser batch ignored": (counts_ignored, (*SHARES, "check_prepared_apart")),
    "token mean for response means": (lambda: on("aggregation", aggregated("seq_mean_token_mean", "token_mean")), (*SHARES, "check_shares_add_up")),
    "token mean for response sums": (lambda: on("aggregation", aggregated("seq_mean_token_sum", "token_mean")), SHARES),
    "length ignored": (lambda: on("aggregation", lambda part: replace(part, length=None)), SHARES),
    "count eps ignored": (lambda: on("aggregation", lambda part: replace(part, eps=0.0)), SHARES),
    "count eps always": (lambda: on("aggregation", lambda part: replace(part, eps=part.eps or 1e-8)), (*SHARES, "check_one_token")),
    "empty responses counted": (lambda: on("aggregation", lambda part: replace(part, empty="count")), (*SHARES, "check_prepared_apart")),
    "empty responses skipped": (
        lambda: on("aggregation", lambda part: replace(part, empty="skip")),
        ("agg_modes", "check_shares", "check_pipeline", "check_prepared_apart", "check_shares_add_up"),
    ),
}

PAIRS = [pytest.param(make, check, id=f"{name}-{check}") for name, (make, checks) in MUTANTS.items() for check in dict.fromkeys(checks)]


@pytest.mark.parametrize(("make", "check"), PAIRS)
def test_refused(make, check):
    with pytest.raises(AssertionError):
        CHECKS[check](make())


def test_every_check_refuses_something():
    assert {check for _, checks in MUTANTS.values() for check in checks} == set(CHECKS)
