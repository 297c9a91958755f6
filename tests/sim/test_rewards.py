"""Rewards that are not 0 or 1, or not the true ones: partial credit, noise and flips, against the slow twin and against
what they must be."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab import CARDS, Linear, Sampling, Simulation
from rftlab.sim.environments import build
from rftlab.sim.setup import is_general
from rftlab.studies.data.runs.points import RunSpec
from tests.support.naive.general import NaiveGeneral, differences, general_curve
from tests.support.worlds.general import BASE, styled_run
from tests.support.worlds.simulations import SMALL
from tests.support.worlds.small_worlds import spelt_world, styled

SPELT = spelt_world(15, 2, 4, partial_credit=0.6, reward_noise=0.4)
FLIPPED = spelt_world(15, 2, 4, false_positive=0.2, false_negative=0.3)
FORMATS = spelt_world(15, 2, 4, partial_credit=0.6, format_reward=0.3)
GDPO = replace(CARDS["gdpo"].estimator.advantage, whiten="responses")
SUPPORTED = styled_run(design=replace(BASE, support_rollouts=2))
RUNS = {
    "flips": (styled_run(), FLIPPED),
    "flips of support": (SUPPORTED, FLIPPED),
    "both": (styled_run(), SPELT),
    "with style tokens and support": (SUPPORTED, styled(SPELT, 5.0, 0.6, 0.3)),
    "two rewards": (styled_run(), FORMATS),
    "advantages of two rewards": (styled_run(advantage=GDPO), FORMATS),
    "advantages of two rewards, tries": (styled_run(advantage=GDPO, sampling=Sampling(tries=3)), FORMATS),
    "the advantage of one reward": (styled_run(advantage=GDPO), SPELT),
    "tries by difficulty": (styled_run(sampling=Sampling(tries=3, budget="difficulty")), SPELT),
}
OF_TWO = "advantages of two rewards"
WRONG = [("both", {}, {"partial_credit": value}) for value in (0.0, 0.7)]
WRONG += [("both", {}, {"reward_noise": value}) for value in (0.0, 0.5)]
WRONG += [("flips", {}, {"false_positive": 0.0}), ("flips", {}, {"false_negative": 0.0})]
WRONG += [("flips", {}, {"false_positive": 0.3, "false_negative": 0.2}), (OF_TWO, {}, {"format_reward": 0.0})]
WRONG += [(OF_TWO, {"combine": "rewards"}, {}), (OF_TWO, {"whiten": "none"}, {})]


@pytest.mark.parametrize("name", RUNS)
def test_it_follows_its_slow_twin(name):
    run, world = RUNS[name]
    assert is_general(run, world) and max(differences(run, general_curve(run, world), world).values()) < 1e-9


@pytest.mark.parametrize(("name", "advantage", "numbers"), WRONG)
def test_the_twin_tells_them_apart(name, advantage, numbers):
    run, world = RUNS[name]
    other = styled_run(advantage=replace(run.design.estimator.advantage, **advantage))
    assert max(differences(run, general_curve(other, world._replace(**numbers)), world).values()) > 1e-4


def test_the_twin_scores_as_it_says():
    naive = NaiveGeneral(RUNS["both"][0], SPELT)
    sampler = naive.view(3)
    found = [naive.respond(0, 3, draw, sampler, sampler, sampler) for draw in range(400)]
    right = np.array([(naive.world.train.correct[3] >> each.arms.astype(np.uint32)) & 1 for each in found])
    credit = np.array([each.form for each in found]) * (0.4 * right.all(axis=1) + 0.6 * right.mean(axis=1))
    noise = np.array([each.scored for each in found]) - credit
    assert len(set(np.round(credit, 6))) == 3, "nothing, half and all"
    assert abs(noise.mean()) < 4 * 0.4 / 20 and noise.std() == pytest.approx(0.4, rel=0.15)


def test_sticky_flips_are_errors_in_the_labels_of_training():
    clean = build(SMALL)
    world = build(replace(SMALL, false_positive=0.1, false_negative=0.4, sticky_flips=True))
    arms = np.arange(SMALL.n_arms, dtype=np.uint32)
    truth, given = ((part.train.correct[:, None] >> arms) & 1 for part in (clean, world))
    assert abs((given[truth == 1] == 0).mean() - 0.4) < 0.1 and abs((given[truth == 0] == 1).mean() - 0.1) < 0.03
    assert (given[:, :: SMALL.n_styles] == given[:, 1 :: SMALL.n_styles]).all(), "an answer in all its styles"
    assert (world.test.correct == clean.test.correct).all() and world.false_positive == world.false_negative == 0
    assert not is_general(Simulation(SMALL), world), "the fast round runs them"


def test_runs_without_them_keep_their_identity():
    old = RunSpec("qwen-gsm8k", Simulation()).config
    new = RunSpec("qwen-gsm8k", Simulation(Linear(reward_noise=0.1))).config
    assert "reward_noise" not in old["environment"] and new["environment"]["reward_noise"] == 0.1
    later = {"partial_credit", "false_positive", "sticky_flips", "format_reward", "unknown"}
    assert not later & new["environment"].keys() and "combine" not in new["design"]["estimator"]["advantage"]


def test_the_base_policy_knows_nothing_of_a_second_task():
    """Its contexts have a correct answer that is as likely as any other; the others are as they were."""
    plain, mixed = (build(replace(SMALL, n_train=4000, unknown=part)).train for part in (0.0, 0.25))
    means = []
    for contexts in (plain, mixed):
        logits = contexts.base_logits[:1000, : SMALL.n_arms].astype(float)
        chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        means.append((chance * ((contexts.correct[:1000, None] >> np.arange(SMALL.n_arms)) & 1)).sum(axis=1).mean())
    assert means[0] > 1 / SMALL.n_answers + 0.15 and abs(means[1] - 1 / SMALL.n_answers) < 0.06, means
    np.testing.assert_array_equal(plain.base_logits[1000:], mixed.base_logits[1000:])
    np.testing.assert_array_equal(plain.correct, mixed.correct)
