"""Wrong variants of the estimators. Each check of the other files must refuse the variants that it is meant to
catch."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.checks import (
    derivatives,
    identities,
    identities_advantages,
    identities_objective,
    naive,
    naive_objective,
)
from tests.support.estimators.vectors import REAL, Api
from tests.support.golden.families import FAMILIES, check_subset
from tests.support.mutants import estimators as m
from tests.support.mutants.estimators import changed, on, put, swap, wrap
from tests.support.mutants.objective import KLS, MUTANTS, TOKENS

PARTS = (naive, naive_objective, derivatives, identities, identities_advantages, identities_objective)
GOLDEN = {family: (lambda api, family=family: check_subset(api, family)) for family in FAMILIES}
CHECKS: dict[str, Callable[[Api], None]] = GOLDEN | {
    name: check for part in PARTS for name, check in part.CHECKS.items()
}

ADVANTAGES = "check_pools_and_advantages check_pipeline"
OF_RESPONSES = " ".join(name for name in FAMILIES if name.startswith("adv_") and "token_baseline" not in name)
OF_TOKENS = "adv_reinforce_plus_plus adv_gae adv_remax adv_optimal_token_baseline adv_tir_optimal_token_baseline"
TO_GO = "adv_reinforce_plus_plus adv_gae check_token_advantages check_pipeline"
OTB = "adv_optimal_token_baseline adv_tir_optimal_token_baseline check_optimal_baseline"
ZSCORES = f"adv_grpo adv_onerpo adv_asyttgrpo adv_grpo_passk adv_gdpo_single trl_adv {ADVANTAGES}"
RAW_SINGLES = "adv_grpo adv_grpo_nostd adv_grpo_vectorized adv_rloo adv_opo adv_gpg adv_gdpo_multi adv_asyttgrpo"
WINDOWS = "adv_asyttgrpo adv_asyttgrpo_nostd check_windows"
WHITENED = (
    f"adv_reinforce_plus_plus adv_reinforce_plus_plus_baseline adv_gae adv_gdpo_single adv_gdpo_multi {ADVANTAGES}"
)
PASS_AT_K = "check_pass_at_k check_pass_at_k_unbiased"
LOSSES = " ".join(family for family in FAMILIES if family.startswith("loss_"))


def switch(field: str, old, new, **rest) -> Callable[[], Api]:
    """Wherever the field of an advantage is `old`, it is `new`."""
    return swap("advantage", field, old, new, **rest)


def advantage_as(change: Callable) -> Callable[[], Api]:
    return lambda: on("advantage", change)


Row = tuple[Callable[[], Api], str]
"""A wrong variant, and the checks that refuse it."""
SIGNS: dict[str, Row] = {
    "weight sign flipped": (
        m.weight_sign_flipped,
        f"{TOKENS} {LOSSES} agg_modes kl_penalty trl_loss check_slopes check_on_policy",
    ),
    "objective sign flipped": (
        m.objective_sign_flipped,
        f"{TOKENS} {LOSSES} agg_modes kl_penalty trl_loss check_slopes",
    ),
    "advantage sign flipped": (m.advantage_sign_flipped, f"{OF_RESPONSES} {OF_TOKENS} trl_adv loss_vanilla"),
    "KL sign flipped": (m.kl_sign_flipped, f"{KLS} trl_loss loss_kl_cov"),
}
OF_ADVANTAGES: dict[str, Row] = {
    "ddof 0 for 1": (switch("ddof", 1, 0), ZSCORES),
    "eps 1e-4 for 1e-6": (switch("eps", 1e-6, 1e-4), f"adv_grpo adv_grpo_passk adv_onerpo {ADVANTAGES}"),
    "eps 1e-6 for 1e-4": (switch("eps", 1e-4, 1e-6), "trl_adv"),
    "eps 1e-6 where none": (switch("eps", 0.0, 1e-6), "check_scale"),
    "singleton zero for raw": (switch("singleton", "raw", "zero"), f"{RAW_SINGLES} {ADVANTAGES}"),
    "singleton raw for zero": (switch("singleton", "zero", "raw"), f"adv_rloo_vectorized trl_adv {ADVANTAGES}"),
    "leave-one-out includes itself": (
        switch("baseline", "leave_one_out", "group_mean"),
        f"adv_rloo adv_rloo_vectorized {ADVANTAGES}",
    ),
    "group mean leaves itself out": (switch("baseline", "group_mean", "leave_one_out"), f"adv_grpo_nostd {ADVANTAGES}"),
    "zscore not scaled": (switch("scale", "group_std", "none"), f"{ZSCORES} check_scale"),
    "scaled by the batch for the group": (switch("scale", "group_std", "batch_std"), ZSCORES),
    "scaled by the group for the batch": (switch("scale", "batch_std", "group_std"), f"trl_adv {ADVANTAGES}"),
    "batch not scaled": (switch("scale", "batch_std", "none"), f"trl_adv {ADVANTAGES} check_scale"),
    "nonzero not scaled": (switch("scale", "nonzero", "none"), f"adv_gpg {ADVANTAGES}"),
    "nonzero advantages counted": (m.of_advantages(m.nonzero_advantages), "adv_gpg check_pools_and_advantages"),
    "batch mean over groups": (switch("baseline", "batch_mean", "group_mean"), ADVANTAGES),
    "group mean over the batch": (
        switch("baseline", "group_mean", "batch_mean"),
        f"adv_grpo adv_grpo_nostd {ADVANTAGES}",
    ),
    "no baseline": (
        put("advantage", baseline="none"),
        f"adv_grpo adv_opo adv_grpo_passk {ADVANTAGES} check_scale check_constant_groups",
    ),
    "lengths ignored": (switch("baseline", "length_weighted", "group_mean"), f"adv_opo {ADVANTAGES}"),
    "lengths found where none are": (
        switch("baseline", "group_mean", "length_weighted"),
        f"adv_grpo adv_grpo_nostd {ADVANTAGES}",
    ),
    "second best is the mean of the others": (
        switch("baseline", "second_best", "leave_one_out", singleton="raw"),
        f"adv_grpo_passk adv_grpo_passk_nostd {ADVANTAGES}",
    ),
    "set mean is the reward": (switch("credit", "set_mean", "reward"), f"adv_arpo adv_banditpo {ADVANTAGES}"),
    "pass@k is the reward": (
        switch("credit", "pass_at_k", "reward", k=1),
        f"check_pass_at_k check_pass_at_k_unbiased {ADVANTAGES}",
    ),
    "pass@(k-1)": (advantage_as(lambda s: changed(s, k=max(1, s.k - 1))), f"{PASS_AT_K} {ADVANTAGES}"),
    "pass@k without n": (m.of_advantages(m.pass_at_k_without_n), f"{PASS_AT_K} {ADVANTAGES}"),
    "pass@k baseline ignored": (
        advantage_as(lambda s: changed(s, baseline="none") if s.credit == "pass_at_k" else s),
        f"check_pass_at_k {ADVANTAGES}",
    ),
    "whitening ignored": (put("advantage", whiten="none"), WHITENED),
    "whitening over responses for tokens": (
        advantage_as(lambda s: s if s.whiten == "none" or s.of_tokens else changed(s, whiten="responses")),
        f"adv_reinforce_plus_plus_baseline adv_gdpo_single {ADVANTAGES}",
    ),
    "whitening counts responses": (
        wrap(advantages=m.whitening_counts_responses),
        "adv_gdpo_single check_pools_and_advantages",
    ),
    "whitened by the population": (
        wrap(
            **dict.fromkeys(("advantages", "combined_advantages"), m.population_deviation),
            whiten=m.whitened_with_ddof_0,
        ),
        "adv_reinforce_plus_plus_baseline adv_gdpo_multi check_pools_and_advantages",
    ),
    "sum of several rewards for the sum of advantages": (
        wrap(combined_advantages=m.combined_rewards),
        "adv_gdpo_multi check_several_rewards",
    ),
    "weights of several rewards ignored": (
        wrap(combined_advantages=m.unweighted),
        "adv_gdpo_multi check_several_rewards",
    ),
    "several rewards in a batch ignored": (wrap(prepare=m.without_several), "check_several_rewards"),
    "given baseline added": (
        m.given_baseline(np.negative),
        f"adv_remax adv_gae adv_optimal_token_baseline {ADVANTAGES}",
    ),
    "gamma ignored": (put("advantage", gamma=1.0), TO_GO),
    "lam ignored": (put("advantage", lam=1.0), "adv_gae check_token_advantages check_pipeline"),
    "values flow across responses": (wrap(token_advantages=m.one_long_response), f"{OF_TOKENS} check_token_advantages"),
    "rewards so far for rewards to go": (
        wrap(token_advantages=m.rewards_so_far),
        f"{OF_TOKENS} check_token_advantages",
    ),
    "rewards at tokens lost": (wrap(prepare=m.without_token_rewards), f"{OF_TOKENS} check_pipeline"),
    "weights of the optimal baseline not squared": (wrap(optimal_token_baseline=m.correction_not_squared), OTB),
    "zero tail ignored": (
        wrap(optimal_token_baseline=lambda right, *args, zero_tail=False, **rest: right(*args, **rest)),
        OTB,
    ),
    "columns ignored": (
        wrap(optimal_token_baseline=lambda right, *args, position=None, **rest: right(*args, **rest)),
        "adv_optimal_token_baseline check_optimal_baseline",
    ),
    "a response alone is its own baseline": (wrap(optimal_token_baseline=m.alone_with_itself), OTB),
    "James-Stein does not shrink": (switch("baseline", "james_stein", "leave_one_out"), ADVANTAGES),
    "James-Stein shrinks all the way": (switch("baseline", "james_stein", "batch_mean"), ADVANTAGES),
    "constant ignored": (put("advantage", constant=0.0), ADVANTAGES),
    "deviation with the own reward": (switch("scale", "others_std", "group_std"), f"{ADVANTAGES} adv_of_2026"),
    "deviation for the mean": (switch("scale", "group_mean", "group_std"), f"{ADVANTAGES} adv_of_2026"),
    "groups mixed": (
        wrap(make_pool=lambda right, n, *parts: right(n, *((rewards, np.sort(group)) for rewards, group in parts))),
        f"adv_grpo adv_rloo {ADVANTAGES}",
    ),
    "support ignored": (
        wrap(make_pool=lambda right, n, *parts: right(n, parts[0])),
        f"adv_onerpo adv_onerpo_nostd {ADVANTAGES}",
    ),
}
OF_SAMPLING: dict[str, Row] = {
    "window one too short": (wrap(empty_windows=lambda right, n, size: right(n, max(1, size - 1))), WINDOWS),
    "window one too long": (wrap(empty_windows=lambda right, n, size: right(n, size + 1)), WINDOWS),
    "window read before push": (m.window_read_before_push, WINDOWS),
    "window keeps the oldest": (wrap(push=m.oldest_kept), f"{WINDOWS} check_pipeline"),
    "decay ignored": (
        wrap(add=lambda right, sums, contexts, rewards, decay: right(sums, contexts, rewards, 1.0)),
        "check_averages",
    ),
    "unseen context is 0": (wrap(read_averages=m.unseen_is_zero), "check_averages"),
    "difficulty without prior": (wrap(estimated_pass_rate=m.difficulty_without_prior), "check_averages"),
    "difficulty is the average": (
        wrap(estimated_pass_rate=lambda right, sums, context: REAL.read_averages(sums, [context])[0]),
        "check_averages",
    ),
    "bonus at once": (wrap(empty_bonus=lambda right, start, target: right(start, 0.0)), "check_moving_bonus"),
    "bonus away from its target": (
        wrap(move_bonus=lambda right, bonus, target, step, entropy: right(bonus, target, step, 2 * target - entropy)),
        "check_moving_bonus",
    ),
    "bonus without bounds": (wrap(move_bonus=m.unbounded_bonus), "check_moving_bonus"),
    "equal rollouts": (wrap(allocate=lambda right, p, mean: np.full(len(p), mean)), "check_sampling"),
    "rollouts by variance": (wrap(allocate=m.by_variance), "check_sampling"),
    "one rollout too many": (wrap(allocate=lambda right, p, mean: right(p, mean + 1)), "check_sampling"),
    "longest kept": (
        wrap(keep_shortest=lambda right, lengths, first, keep: right(-lengths, first, keep)),
        "check_sampling",
    ),
    "one fewer kept": (
        wrap(keep_shortest=lambda right, lengths, first, keep: right(lengths, first, max(1, keep - 1))),
        "check_sampling",
    ),
}

IDENTITIES = {
    "check_one_token": "count eps always",
    "check_shares_add_up": "token mean for response means",
    "check_kl_in_reward": "abs for k1",
    "check_kl_in_loss": "k1 for k2",
    "check_weighted_kl": "weight of the penalty ignored",
    "check_anchor": "anchor is the base policy",
    "check_correction_ends": "smallest weight too large",
    "check_ratio_to_the_sampler": "anchor is the base policy",
    "check_shift": "advantage sign flipped",
    "check_leave_one_out": "advantage sign flipped",
    "check_window_of_one": "eps 1e-4 for 1e-6",
    "check_window_of_group": "window one too short",
    "check_support": "groups mixed",
    "check_order": "groups mixed",
    "check_equal_spreads": "zscore not scaled",
    "check_equal_lengths": "group mean leaves itself out",
    "check_whitening": "whitening ignored",
    "check_pass_at_k_ends": "pass@(k-1)",
    "check_outcome_rewards": "advantage sign flipped",
    "check_gae_ends": "gamma ignored",
    "check_optimal_shift": "a response alone is its own baseline",
    "check_averages_ends": "decay ignored",
    "check_equal_budgets": "one rollout too many",
    "check_unclipped": "clip low and high swapped",
    "check_fixed_ratios": "CISPO through its ratio",
    "check_sapo_gate": "SAPO's tau swapped",
    "check_vespo_peak": "VESPO's signs swapped",
    "check_geometric_mean": "narrow bounds for responses",
    "check_two_sided": "clip low and high swapped",
    "check_clip_stops": "clip low and high swapped",
    "check_length_one": "narrow bounds for responses",
    "check_sequence_token": "ratio of the token for GSPO-token's",
    "check_equal_ratios": "mean for the product",
    "check_masks_on_policy": "mask before the update",
    "check_sides": "mask ignored",
    "check_cov_fractions": "mask ignored",
}
"""A wrong variant that each of the other equations refuses."""
EVERY = SIGNS | OF_ADVANTAGES | OF_SAMPLING | MUTANTS
PAIRS = [
    pytest.param(make, check, id=f"{name}-{check}")
    for name, (make, checks) in EVERY.items()
    for check in dict.fromkeys(checks.split())
] + [pytest.param(EVERY[name][0], check, id=f"{name}-{check}") for check, name in IDENTITIES.items()]


@pytest.mark.parametrize(("make", "check"), PAIRS)
def test_refused(make, check):
    with pytest.raises(AssertionError):
        CHECKS[check](make())


def test_every_check_refuses_something():
    assert {check for _, checks in EVERY.values() for check in checks.split()} | set(IDENTITIES) == set(CHECKS)


def test_names_are_unique():
    assert len(CHECKS) == len(GOLDEN) + sum(len(part.CHECKS) for part in PARTS)
    assert len(EVERY) == len(SIGNS) + len(OF_ADVANTAGES) + len(OF_SAMPLING) + len(MUTANTS)
