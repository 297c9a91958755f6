"""The effective batch of designs, and the best split of a budget, against brute force."""

from dataclasses import replace
from math import inf, sqrt

import pytest

from rftlab import Advantage, Design, UserError, preset
from rftlab.shared.effective_batch import (
    Costs,
    NoiseRatios,
    baseline_noise,
    baseline_rewards,
    best_rollouts,
    best_split,
    design_batch,
    effective_batch,
    plain_batch,
    time_per_round,
    token_costs,
)

GRPO, RAW = preset("paper_text"), preset("minimalist")
NOISE = NoiseRatios(0.08, 0.5)


@pytest.mark.parametrize(
    ("design", "rewards"),
    [
        (Design(32, 8, estimator=RAW), 1),
        (Design(32, 1, estimator=GRPO), 1),
        (Design(32, 8, estimator=GRPO), 8),
        (Design(32, 1, 7, estimator=GRPO), 8),
        (Design(32, 2, replay_window=8, estimator=GRPO), 8),
        (Design(32, 8, estimator=replace(GRPO, advantage=Advantage("batch_mean"))), inf),
    ],
)
def test_rewards_behind_a_baseline(design, rewards):
    assert baseline_rewards(design) == rewards
    within = 1.0 if rewards == 1 else 0.5 if rewards == inf else 0.5 * rewards / (rewards - 1)
    assert baseline_noise(rewards, 0.5) == pytest.approx(within)
    assert design_batch(design, NOISE) == pytest.approx(32 / (0.08 + within / design.rollouts))
    assert plain_batch(design, NOISE) == pytest.approx(32 / (0.08 + 1 / design.rollouts))


def test_the_unit_of_tau_is_a_round_of_the_baseline():
    assert time_per_round(Design(32, 1, estimator=RAW), NOISE) == 1
    assert time_per_round(Design(128, 1, estimator=RAW), NOISE) == 2
    assert time_per_round(Design(128, 1, estimator=RAW, minibatches=4, epochs=3), NOISE) == 12


@pytest.mark.parametrize("baseline", [False, True])
def test_no_other_split_of_a_small_budget_is_better_but_for_whole_prompts(baseline):
    """D33 of the theory has other noise and costs, and money without end."""
    noise, costs, budget = NoiseRatios(0.08, 1.0), Costs(3.0, 1.0), 1e5
    result = best_split(noise, costs, budget, baseline)
    assert result.batch_size * (costs.prompt + result.rollouts * costs.rollout) <= budget
    sizes = {k: int(budget / (costs.prompt + k * costs.rollout)) for k in range(1 + baseline, 300)}
    within = {k: baseline_noise(k, noise.gain) if baseline else 1.0 for k in sizes}
    best = max(effective_batch(size, k, noise.between, within[k]) for k, size in sizes.items())
    assert result.effective >= 0.998 * best


def test_the_classical_form():
    assert best_rollouts(NoiseRatios(0.04), Costs(4.0, 1.0), False) == pytest.approx(10)
    assert best_rollouts(NoiseRatios(0.04, 0.5), Costs(1.0, 1.0), True) == pytest.approx(1 + sqrt(2 * 0.5 / 0.04))
    assert best_rollouts(NoiseRatios(0.0), Costs(0.0, 1.0), False) == 1
    assert best_rollouts(NoiseRatios(0.0), Costs(1.0, 1.0), False) == inf


def test_all_in_one_prompt_where_prompts_are_alike():
    assert best_split(NoiseRatios(0.0), Costs(10.0, 1.0), 110.0, True)[:2] == (1, 100)


def test_costs_of_tokens():
    assert token_costs(1.0, 2.0, 0.01, 100, 300) == Costs(2.0, 5.0)
    with pytest.raises(UserError, match="cost of a token = nan; allowed: 0 or more, finite"):
        token_costs(0.0, 1.0, float("nan"), 0, 0)


def test_a_budget_that_pays_for_no_group():
    with pytest.raises(UserError, match="budget = 5; allowed: 6 or more"):
        best_split(NOISE, Costs(4.0, 1.0), 5.0, True)
