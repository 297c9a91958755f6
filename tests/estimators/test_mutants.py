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
from tests.support.mutants.estimators import changed, changing, dropping, on, put, swap, wrap
from tests.support.mutants.objective import KLS, MUTANTS, TOKENS

PARTS = (naive, naive_objective, derivatives, identities, identities_advantages, identities_objective)
GOLDEN = {family: (lambda api, family=family: check_subset(api, family)) for family in FAMILIES}
CHECKS: dict[str, Callable[[Api], None]] = GOLDEN | {
    name.removeprefix("check_"): check for part in PARTS for name, check in part.CHECKS.items()
}

ADVANTAGES = "pools_and_advantages pipeline"
OF_RESPONSES = " ".join(name for name in FAMILIES if name.startswith("adv_") and "token_baseline" not in name)
OF_TOKENS = "adv_reinforce_plus_plus adv_gae adv_remax adv_optimal_token_baseline adv_tir_optimal_token_baseline"
TO_GO = "adv_reinforce_plus_plus adv_gae token_advantages pipeline"
OTB = "adv_optimal_token_baseline adv_tir_optimal_token_baseline optimal_baseline"
ZSCORES = f"adv_grpo adv_onerpo adv_asyttgrpo adv_grpo_passk adv_gdpo_single trl_adv {ADVANTAGES}"
RAW_SINGLES = "adv_grpo adv_grpo_nostd adv_grpo_vectorized adv_rloo adv_opo adv_gpg adv_gdpo_multi adv_asyttgrpo"
WINDOWS = "adv_asyttgrpo adv_asyttgrpo_nostd windows"
WHITENED = (
    f"adv_reinforce_plus_plus adv_reinforce_plus_plus_baseline adv_gae adv_gdpo_single adv_gdpo_multi {ADVANTAGES}"
)
PASS_AT_K = "pass_at_k pass_at_k_unbiased"
LOSSES = " ".join(family for family in FAMILIES if family.startswith("loss_"))


def switch(field: str, old, new, **rest) -> Callable[[], Api]:
    """Wherever the field of an advantage is `old`, it is `new`."""
    return swap("advantage", field, old, new, **rest)


def advantage_as(change: Callable) -> Callable[[], Api]:
    return lambda: on("advantage", change)


Row = tuple[Callable[[], Api], str]
"""A wrong variant, and the checks that refuse it."""
SIGNS: dict[str, Row] = {
    "weight sign flipped": (m.weight_sign_flipped, f"{TOKENS} {LOSSES} agg_modes kl_penalty trl_loss slopes on_policy"),
    "objective sign flipped": (m.objective_sign_flipped, f"{TOKENS} {LOSSES} agg_modes kl_penalty trl_loss slopes"),
    "advantage sign flipped": (m.advantage_sign_flipped, f"{OF_RESPONSES} {OF_TOKENS} trl_adv loss_vanilla"),
    "KL sign flipped": (m.kl_sign_flipped, f"{KLS} trl_loss loss_kl_cov"),
}
OF_ADVANTAGES: dict[str, Row] = {
    "ddof 0 for 1": (switch("ddof", 1, 0), ZSCORES),
    "eps 1e-4 for 1e-6": (switch("eps", 1e-6, 1e-4), f"adv_grpo adv_grpo_passk adv_onerpo {ADVANTAGES}"),
    "eps 1e-6 for 1e-4": (switch("eps", 1e-4, 1e-6), "trl_adv"),
    "eps 1e-6 where none": (switch("eps", 0.0, 1e-6), "scale"),
    "singleton zero for raw": (switch("singleton", "raw", "zero"), f"{RAW_SINGLES} {ADVANTAGES}"),
    "singleton raw for zero": (switch("singleton", "zero", "raw"), f"adv_rloo_vectorized trl_adv {ADVANTAGES}"),
    "leave-one-out includes itself": (
        switch("baseline", "leave_one_out", "group_mean"),
        f"adv_rloo adv_rloo_vectorized {ADVANTAGES}",
    ),
    "group mean leaves itself out": (switch("baseline", "group_mean", "leave_one_out"), f"adv_grpo_nostd {ADVANTAGES}"),
    "zscore not scaled": (switch("scale", "group_std", "none"), f"{ZSCORES} scale"),
    "scaled by the batch for the group": (switch("scale", "group_std", "batch_std"), ZSCORES),
    "scaled by the group for the batch": (switch("scale", "batch_std", "group_std"), f"trl_adv {ADVANTAGES}"),
    "batch not scaled": (switch("scale", "batch_std", "none"), f"trl_adv {ADVANTAGES} scale"),
    "nonzero not scaled": (switch("scale", "nonzero", "none"), f"adv_gpg {ADVANTAGES}"),
    "nonzero advantages counted": (m.of_advantages(m.nonzero_advantages), "adv_gpg pools_and_advantages"),
    "batch mean over groups": (switch("baseline", "batch_mean", "group_mean"), ADVANTAGES),
    "group mean over the batch": (
        switch("baseline", "group_mean", "batch_mean"),
        f"adv_grpo adv_grpo_nostd {ADVANTAGES}",
    ),
    "no baseline": (
        put("advantage", baseline="none"),
        f"adv_grpo adv_opo adv_grpo_passk {ADVANTAGES} scale constant_groups",
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
        f"pass_at_k pass_at_k_unbiased {ADVANTAGES}",
    ),
    "pass@(k-1)": (advantage_as(lambda s: changed(s, k=max(1, s.k - 1))), f"{PASS_AT_K} {ADVANTAGES}"),
    "pass@k without n": (m.of_advantages(lambda spec, rewards, values: values / spec.k), f"{PASS_AT_K} {ADVANTAGES}"),
    "pass@k baseline ignored": (
        advantage_as(lambda s: changed(s, baseline="none") if s.credit == "pass_at_k" else s),
        f"pass_at_k {ADVANTAGES}",
    ),
    "whitening ignored": (put("advantage", whiten="none"), WHITENED),
    "whitening over responses for tokens": (
        advantage_as(lambda s: s if s.whiten == "none" or s.of_tokens else changed(s, whiten="responses")),
        f"adv_reinforce_plus_plus_baseline adv_gdpo_single {ADVANTAGES}",
    ),
    "whitening counts responses": (
        wrap(advantages=m.whitening_counts_responses),
        "adv_gdpo_single pools_and_advantages",
    ),
    "whitened by the population": (
        wrap(
            **dict.fromkeys(("advantages", "combined_advantages"), m.population_deviation),
            whiten=m.whitened_with_ddof_0,
        ),
        "adv_reinforce_plus_plus_baseline adv_gdpo_multi pools_and_advantages",
    ),
    "sum of several rewards for the sum of advantages": (
        wrap(
            combined_advantages=lambda right, spec, *rest, **more: right(
                changed(spec, combine="rewards"), *rest, **more
            )
        ),
        "adv_gdpo_multi several_rewards",
    ),
    "weights of several rewards ignored": (
        wrap(
            combined_advantages=lambda right, *args, **more: right(*args[:2], np.ones_like(args[2]), *args[3:], **more)
        ),
        "adv_gdpo_multi several_rewards",
    ),
    "several rewards in a batch ignored": (wrap(prepare=dropping("several")), "several_rewards"),
    "given baseline added": (
        m.given_baseline(np.negative),
        f"adv_remax adv_gae adv_optimal_token_baseline {ADVANTAGES}",
    ),
    "gamma ignored": (put("advantage", gamma=1.0), TO_GO),
    "lam ignored": (put("advantage", lam=1.0), "adv_gae token_advantages pipeline"),
    "values flow across responses": (wrap(token_advantages=m.one_long_response), f"{OF_TOKENS} token_advantages"),
    "rewards so far for rewards to go": (wrap(token_advantages=m.rewards_so_far), f"{OF_TOKENS} token_advantages"),
    "rewards at tokens lost": (wrap(prepare=changing("token_rewards", np.zeros_like)), f"{OF_TOKENS} pipeline"),
    "weights of the optimal baseline not squared": (wrap(optimal_token_baseline=changing("correction", np.sqrt)), OTB),
    "zero tail ignored": (wrap(optimal_token_baseline=dropping("zero_tail")), OTB),
    "columns ignored": (
        wrap(optimal_token_baseline=dropping("position")),
        "adv_optimal_token_baseline optimal_baseline",
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
    "window keeps the oldest": (wrap(push=m.oldest_kept), f"{WINDOWS} pipeline"),
    "decay ignored": (
        wrap(add=lambda right, *args: right(*args[:3], 1.0)),
        "averages",
    ),
    "unseen context is 0": (
        wrap(read_averages=lambda right, sums, at: np.where(sums[at, 1] > 0, right(sums, at), 0.0)),
        "averages",
    ),
    "difficulty without prior": (
        wrap(estimated_pass_rate=lambda right, sums, at: sums[at, 0] / sums[at, 1] if sums[at, 1] > 0 else 0.5),
        "averages",
    ),
    "difficulty is the average": (
        wrap(estimated_pass_rate=lambda right, sums, context: REAL.read_averages(sums, [context])[0]),
        "averages",
    ),
    "bonus at once": (wrap(empty_bonus=lambda right, start, target: right(start, 0.0)), "moving_bonus"),
    "bonus away from its target": (
        wrap(move_bonus=lambda right, bonus, target, step, entropy: right(bonus, target, step, 2 * target - entropy)),
        "moving_bonus",
    ),
    "bonus without bounds": (wrap(move_bonus=m.unbounded_bonus), "moving_bonus"),
    "equal rollouts": (wrap(allocate=lambda right, p, mean: np.full(len(p), mean)), "sampling"),
    "rollouts by variance": (wrap(allocate=m.by_variance), "sampling"),
    "one rollout too many": (wrap(allocate=lambda right, p, mean: right(p, mean + 1)), "sampling"),
    "longest kept": (wrap(keep_shortest=lambda right, lengths, first, keep: right(-lengths, first, keep)), "sampling"),
    "one fewer kept": (
        wrap(keep_shortest=lambda right, lengths, first, keep: right(lengths, first, max(1, keep - 1))),
        "sampling",
    ),
}

IDENTITIES = {
    "count eps always": "one_token",
    "token mean for response means": "shares_add_up",
    "abs for k1": "kl_in_reward",
    "k1 for k2": "kl_in_loss",
    "weight of the penalty ignored": "weighted_kl",
    "anchor is the base policy": "anchor ratio_to_the_sampler",
    "smallest weight too large": "correction_ends",
    "advantage sign flipped": "shift leave_one_out outcome_rewards",
    "eps 1e-4 for 1e-6": "window_of_one",
    "window one too short": "window_of_group",
    "groups mixed": "support order",
    "zscore not scaled": "equal_spreads",
    "group mean leaves itself out": "equal_lengths",
    "whitening ignored": "whitening",
    "pass@(k-1)": "pass_at_k_ends",
    "gamma ignored": "gae_ends",
    "a response alone is its own baseline": "optimal_shift",
    "decay ignored": "averages_ends",
    "one rollout too many": "equal_budgets",
    "clip low and high swapped": "unclipped two_sided clip_stops",
    "CISPO through its ratio": "fixed_ratios",
    "SAPO's tau swapped": "sapo_gate",
    "VESPO's signs swapped": "vespo_peak",
    "narrow bounds for responses": "geometric_mean length_one",
    "ratio of the token for GSPO-token's": "sequence_token",
    "mean for the product": "equal_ratios",
    "mask before the update": "masks_on_policy",
    "mask ignored": "sides cov_fractions",
}
"""The other equations that a wrong variant must break."""
EVERY = SIGNS | OF_ADVANTAGES | OF_SAMPLING | MUTANTS
PAIRS = [
    pytest.param(make, check, id=f"{name}-{check}")
    for name, (make, checks) in EVERY.items()
    for check in dict.fromkeys(f"{checks} {IDENTITIES.get(name, '')}".split())
]


@pytest.mark.parametrize(("make", "check"), PAIRS)
def test_refused(make, check):
    with pytest.raises(AssertionError):
        CHECKS[check](make())


def test_every_check_refuses_something():
    assert {pair.values[1] for pair in PAIRS} == set(CHECKS) and IDENTITIES.keys() <= EVERY.keys()


def test_names_are_unique():
    assert len(CHECKS) == len(GOLDEN) + sum(len(part.CHECKS) for part in PARTS)
    assert len(EVERY) == len(SIGNS) + len(OF_ADVANTAGES) + len(OF_SAMPLING) + len(MUTANTS)
