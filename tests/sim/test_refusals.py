"""Bad input of simulations: a line that names what is wrong, its value and what is allowed."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab import Advantage, Design, Estimator, Linear, Optimizer, Sampler, Sampling, Simulation, Tabular, UserError
from rftlab.sim.environments import build
from rftlab.sim.policy.style import token_style
from rftlab.sim.run import GeneralLearner
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of

NUMBERS = [
    ("answer_tokens", 0, "1 or more"),
    ("surprise", 1.1, "0 to 1"),
    ("margin", 0.6, "0 to 0.5"),
    ("rho", 1.1, "0 to 1"),
    ("correctness_parts", 16, "1 to 15"),
    ("correctness_parts", 0, "1 or more"),
    ("familiarity", 1e21, "a size of at most"),
    ("style_tokens", -1.0, "0 to 1000"),
    ("style_tokens", 1001.0, "0 to 1000"),
    ("length_by_style", 1.5, "0 to 1"),
    ("length_jitter", -0.5, "0 to 1"),
    ("short_right", 1.5, "0 to 1"),
    ("false_negative", 1.5, "0 to 1"),
    ("unknown", 2.0, "0 to 1"),
    ("reward_noise", float("inf"), "0 or more, finite"),
    *((name, -0.1, "0 or more") for name in ("interference", "forgetting", "sharpening", "correctness")),
    *((name, -1.0, "0 or more") for name in ("verbosity_noise", "format_reward", "reward_noise")),
]
"""Single numbers of an environment."""


@pytest.mark.parametrize(("name", "value", "allowed"), NUMBERS)
def test_a_number_of_an_environment_has_its_limits(name, value, allowed):
    with pytest.raises(UserError) as error:
        Linear(**{name: value})
    assert f"environment.{name} = {value}; allowed: {allowed}" in str(error.value)


@pytest.mark.parametrize("field", ["kappa", "base_format"])
def test_logits_that_float32_cannot_hold_are_refused(field):
    """When they are named, so that no results folder is made for them; the largest that are allowed stay far from
    arms that do not exist."""
    for value in (1.01e20, 1e39):
        with pytest.raises(UserError, match=rf"environment.{field} = .*; allowed: a size of at most 1e\+20"):
            replace(SMALL, **{field: value})
    contexts = build(replace(SMALL, **{field: 1e20})).train
    found = {"kappa": contexts.base_logits[:, : SMALL.n_arms], "base_format": contexts.base_format}[field]
    assert np.abs(found).max() < 1e22


STYLED = build(replace(SMALL, style_tokens=4.0))
DIFFICULTY, LONELY = Sampling(budget="difficulty"), Estimator(Advantage(singleton="error"))
PASS_3 = Estimator(Advantage("none", credit="pass_at_k", k=3))
PASS_2, OPTIMAL = Advantage("leave_one_out", credit="pass_at_k", k=2), Advantage("optimal")
BY_LENGTH = Estimator(Advantage("length_weighted"))
SURPRISED = "environment.surprise = 0.5 with environment.style_tokens = 4.0; allowed: one or the other"


def of(advantage, **environment):
    """A simulation of groups with an advantage, in an environment."""
    return Simulation(Linear(**environment), Design(32, 4, estimator=Estimator(advantage)))


ROWS = [
    (lambda: Linear(n_answers=9), "= 18; allowed: at most 16"),
    (lambda: Linear(n_answers=5, answer_tokens=2), "n_styles x environment.answer_tokens = 20; allowed: at most 16"),
    (lambda: Linear(n_answers=1, margin=0.1), "with n_answers = 1; allowed: 0, or 2 answers"),
    (lambda: Linear(verbosity=1.0, n_styles=1), "verbosity = 1.0 with n_styles = 1"),
    (lambda: Linear(short_right=0.5, n_styles=1), "short_right = 0.5 with n_styles = 1"),
    (lambda: Linear(exploration=1.0), "exploration = 1.0 with style_tokens = 0"),
    (lambda: Linear(length_by_style=1.0), "allowed: below 1"),
    (lambda: Linear(correctness_parts=11, damage=1.0, verbosity=1.0), "allowed: 1 to 10"),
    (lambda: Linear(partial_credit=0.5), "partial_credit = 0.5 with answer_tokens = 1; allowed: 0, or 2"),
    (lambda: Linear(partial_credit=1.5, answer_tokens=2, n_answers=4), "environment.partial_credit = 1.5; allowed: 0"),
    (lambda: Linear(false_positive=0.1, reward_noise=0.1), "false_positive, false_negative with partial_credit"),
    (lambda: Tabular(n_arms=17), "environment.n_arms = 17; allowed: 2 to 16"),
    (lambda: token_style(-2.0, 0.0, 0.0, 2, 1.0), "style tokens = -2.0; allowed: 0 or more"),
    (lambda: Sampler(lag=-1), "sampler.lag = -1; allowed: 0 or more"),
    (lambda: Sampler(noise=-0.1), "sampler.noise = -0.1; allowed: 0 or more"),
    (lambda: Optimizer(learning_rate=-1.0), "optimizer.learning_rate = -1.0; allowed: 0 or more"),
    (lambda: Optimizer(beta1=1.0), "optimizer.beta1 = 1.0; allowed: 0 to below 1"),
    (lambda: Optimizer("adamw"), "optimizer.kind = 'adamw' is unknown; allowed: adam, sgd"),
    (lambda: Optimizer("sgd", bf16_rate=1e-6), "bf16_rate = 1e-06 with optimizer.kind = sgd, learning_rate = 0.002"),
    # designs
    (lambda: Design(rollouts=0), "rollouts = 0; allowed: 1 or more"),
    (lambda: Design(8, 2, 1, sampling=Sampling(tries=2)), "tries = 2; allowed: 1, or more where rollouts > 1"),
    (lambda: Design(8, 2, replay_window=4, sampling=Sampling(tries=2)), "sampling.tries = 2; allowed: 1"),
    (lambda: Design(8, 2, replay_window=4, sampling=Sampling(keep=1)), "sampling.keep = 1; allowed: 0 with support"),
    (lambda: Design(8, 2, 1, sampling=DIFFICULTY), "sampling.budget = 'difficulty'; allowed: equal"),
    (lambda: Design(8, 3, sampling=Sampling(keep=2), estimator=BY_LENGTH), "baseline = length_weighted; allowed"),
    (lambda: Design(8, 4, sampling=Sampling(keep=1), estimator=LONELY), "smallest baseline set = 1"),
    (lambda: Design(8, 4, sampling=DIFFICULTY, estimator=LONELY), "smallest baseline set = 1"),
    (lambda: Design(8, 4, sampling=Sampling(keep=2), estimator=PASS_3), "advantage.k = 3; allowed: at most "),
    # simulations
    (lambda: Simulation(SMALL, Design(41)), "batch_size = 41 is larger than the training set; allowed: 1 to 40"),
    (lambda: Simulation(seed=-1), "seed = -1; allowed"),
    (lambda: Simulation(seed=2**63), "seed = 9223372036854775808; allowed: 0 to 2^63 - 1"),
    (lambda: Simulation(evaluation="greedy"), "evaluation = 'greedy' is unknown; allowed: exact, sampled, full"),
    (lambda: Simulation(critic_learning_rate=0.0), "critic_learning_rate = 0.0; allowed: more than 0"),
    (lambda: Simulation(critic_learning_rate=2.0), "critic_learning_rate = 2.0; allowed: more than 0"),
    (lambda: of(Advantage("none", gamma=0.9)), "advantage.gamma, lam = 0.9, 1.0; allowed: 1 in the sim"),
    (lambda: of(Advantage("value", lam=0.9)), "advantage.gamma, lam = 1.0, 0.9; allowed: 1 in the sim"),
    (lambda: of(OPTIMAL, false_positive=0.1), "false_positive with advantage.baseline = optimal, which knows true"),
    (lambda: of(OPTIMAL, reward_noise=1.0), "reward_noise with advantage.baseline = optimal, which takes rewards"),
    (lambda: of(Advantage("greedy"), reward_noise=1.0), "reward_noise with advantage.baseline = greedy, which takes"),
    (lambda: of(PASS_2, reward_noise=1.0), "reward_noise with advantage.credit = pass_at_k, which takes rewards"),
    (lambda: replace(SMALL, surprise=0.5, style_tokens=4.0), SURPRISED),
    (lambda: GeneralLearner(run_of(DESIGNS["raw"]), STYLED._replace(surprise=0.5)), SURPRISED),
]


@pytest.mark.parametrize(("make", "message"), ROWS, ids=[f"{i}-{row[1][:30]}" for i, row in enumerate(ROWS)])
def test_bad_input_is_named_with_what_is_allowed(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert message in str(error.value)


def test_what_borders_on_bad_input_is_allowed():
    assert Design(8, 2, sampling=Sampling(tries=9, keep=2, budget="difficulty")).smallest_set == 1
    pass_5 = Estimator(Advantage("none", credit="pass_at_k", k=5))
    assert Design(8, 4, 1, replay_window=4, estimator=pass_5).smallest_set == 5
    assert Design(8, 4, sampling=Sampling(keep=2), estimator=LONELY).smallest_set == 2
    assert Linear(style_tokens=1000.0, length_by_style=1.0, length_jitter=1.0).style_tokens == 1000
    assert Simulation(critic_learning_rate=1.99) and Sampler(0, 0.0) == Sampler()
