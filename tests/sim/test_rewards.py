"""Rewards that are not 0 or 1: partial credit and noise, against the slow twin and against what they must be."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError
from rftlab.sim.config import Linear, Simulation
from rftlab.sim.run import simulate
from rftlab.sim.setup import is_general
from rftlab.studies.data.runs.points import RunSpec
from tests.support.naive.general import METRICS, NaiveGeneral, general_curve
from tests.support.worlds.general import styled_run
from tests.support.worlds.simulations import SMALL
from tests.support.worlds.small_worlds import spelt_world, styled

EXACT = 1e-9
SPELT = spelt_world(15, 2, 4, partial_credit=0.6, reward_noise=0.4)
RUNS = {
    "both": (styled_run(), SPELT),
    "with style tokens and support": (
        replace(styled_run(), design=replace(styled_run().design, support_rollouts=2)),
        styled(SPELT, 5.0, 0.6, 0.3),
    ),
    "tries by difficulty": (styled_run(sampling=Sampling(tries=3, budget="difficulty")), SPELT),
}
WRONG = {
    "no partial credit": SPELT._replace(partial_credit=0.0),
    "more of it": SPELT._replace(partial_credit=0.7),
    "no noise": SPELT._replace(reward_noise=0.0),
    "more of it too": SPELT._replace(reward_noise=0.5),
}


def differences(run, world, columns):
    curve = simulate(run, world).curve
    return max(np.nanmax(np.abs(getattr(curve, name) - columns[name]), initial=0.0) for name in METRICS)


@pytest.mark.parametrize("name", RUNS)
def test_it_follows_its_slow_twin(name):
    run, world = RUNS[name]
    assert is_general(run, world) and differences(run, world, general_curve(run, world)) < EXACT


@pytest.mark.parametrize("name", WRONG)
def test_the_twin_tells_them_apart(name):
    run, _ = RUNS["both"]
    assert differences(run, SPELT, general_curve(run, WRONG[name])) > 1e-4


def test_the_twin_scores_as_it_says():
    naive = NaiveGeneral(RUNS["both"][0], SPELT)
    sampler = naive.view(3)
    found = [naive.respond(0, 3, draw, sampler, sampler) for draw in range(400)]
    right = np.array([(naive.world.train.correct[3] >> each.arms.astype(np.uint32)) & 1 for each in found])
    credit = np.array([each.form for each in found]) * (0.4 * right.all(axis=1) + 0.6 * right.mean(axis=1))
    noise = np.array([each.scored for each in found]) - credit
    assert len(set(np.round(credit, 6))) == 3, "nothing, half and all"
    assert abs(noise.mean()) < 4 * 0.4 / 20 and noise.std() == pytest.approx(0.4, rel=0.15)


def first_reward(**more):
    """Mean reward of the first round of the linear environment."""
    world = replace(SMALL, answer_tokens=2, base_format=1.0, **more)
    design = Design(32, 16, rounds=1, eval_every=1, estimator=Estimator(Advantage("group_mean")))
    return simulate(Simulation(world, design)).curve


def test_credit_mixes_parts_and_whole_and_noise_adds_to_it():
    """Equal seeds sample the same responses, so that the mean is linear in the part."""
    whole, mixed, parts = (first_reward(partial_credit=part).reward[1] for part in (0.0, 0.25, 1.0))
    assert mixed == pytest.approx(0.75 * whole + 0.25 * parts) and parts > whole + 0.1
    noisy = first_reward(reward_noise=0.5)
    assert abs(noisy.reward[1] - whole) < 4 * 0.5 / np.sqrt(512) and noisy.reward[1] != whole
    assert noisy.zero_signal_fraction[1] == 0 < first_reward().zero_signal_fraction[1]
    assert noisy.train_pass_at_1[0] == first_reward().train_pass_at_1[0], "Pass@1 has neither"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Linear(partial_credit=0.5),
            "environment.partial_credit = 0.5 with answer_tokens = 1; allowed: 0, or 2",
        ),
        (
            lambda: Linear(partial_credit=1.5, answer_tokens=2, n_answers=4),
            "environment.partial_credit = 1.5; allowed: 0",
        ),
        (lambda: Linear(reward_noise=-1), "environment.reward_noise = -1; allowed: 0 or more"),
        (lambda: Linear(reward_noise=float("inf")), "environment.reward_noise = inf"),
        *(
            (
                lambda spec=spec: Simulation(Linear(reward_noise=1.0), Design(32, 4, estimator=Estimator(spec))),
                f"environment.reward_noise with advantage.{name}, which takes rewards for 0 or 1",
            )
            for name, spec in {
                "baseline = optimal": Advantage("optimal"),
                "baseline = greedy": Advantage("greedy"),
                "credit = pass_at_k": Advantage("leave_one_out", credit="pass_at_k", k=2),
            }.items()
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert message in str(error.value)


def test_runs_without_them_keep_their_identity():
    old = RunSpec("qwen-gsm8k", Simulation()).config
    new = RunSpec("qwen-gsm8k", Simulation(Linear(reward_noise=0.1))).config
    assert "reward_noise" not in old["environment"] and new["environment"]["reward_noise"] == 0.1
    assert "partial_credit" not in new["environment"]
