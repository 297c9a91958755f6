"""Measures of simulated curves against the enumeration of every response under the slow twin's policy."""

from collections import defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from rftlab.shared.curve import SPLITS
from rftlab.sim.config import Sampler, Tabular
from rftlab.sim.environments import build
from rftlab.sim.round.measures import KS, mean_lengths, mean_style_length, response_policy
from rftlab.sim.round.ragged import INT, TOKEN
from rftlab.sim.run import GeneralLearner, PlainLearner, simulate
from rftlab.sim.state import no_totals
from tests.support.naive.general import NaiveGeneral
from tests.support.worlds.simulations import DESIGNS, SMALL, TOLERANCE, run_of
from tests.support.worlds.small_worlds import same

WORLDS = {
    "plain": (SMALL, "group"),
    "damage and sharpening": (replace(SMALL, damage=2.0, sharpening=0.5), "raw"),
    "graded": (replace(SMALL, answer_tokens=2, partial_credit=0.4), "updates"),
    "formats": (replace(SMALL, answer_tokens=2, partial_credit=0.4, format_reward=0.4), "updates"),
    "flipped": (replace(SMALL, false_positive=0.2, false_negative=0.4), "updates"),
    "tabular": (Tabular(n_contexts=9, n_arms=5, n_correct=2, nuisance=0.3), "group"),
}
ROUNDS = 4
GRID = (np.arange(20_000) + 0.5) / 20_000


def trained(name):
    """Measures of a run after some rounds, and the slow twin after as many."""
    environment, design = WORLDS[name]
    run = run_of(DESIGNS[design], environment, rounds=ROUNDS, seed=3, evaluation="full")
    world = build(run.environment)
    naive, metrics = NaiveGeneral(run, world), simulate(run, world).metrics
    for _ in range(ROUNDS):
        naive.round(defaultdict(list))
    return run, metrics[metrics["round"] == ROUNDS].iloc[0], naive


def responses(naive, context):
    """Every response to a context: its chance, its tokens' right bits, and whether it is well formed."""
    policy = naive.view(context)
    tokens = np.split(policy.p, naive.world.answer_tokens)
    bits = np.split(naive.right_arms(context), naive.world.answer_tokens)
    for arms in product(*(range(len(part)) for part in tokens)):
        chance = np.prod([part[arm] for part, arm in zip(tokens, arms, strict=True)])
        right = [bool(part[arm]) for part, arm in zip(bits, arms, strict=True)]
        for form, of_form in ((1, policy.f), (0, 1 - policy.f)):
            if chance * of_form > 0:
                yield chance * of_form, right, form


def enumerated(run, naive, wrong=""):
    """The measures of the training set, from every response; `wrong` names what is computed wrongly."""
    credit, k = naive.world.partial_credit, run.design.rollouts + (wrong == "one more rollout")
    sums = defaultdict(float)
    n = len(naive.z0)
    for context in range(n):
        whole = list(responses(naive, context))
        strict = sum(chance for chance, right, form in whole if all(right) and form)
        flexible = sum(chance for chance, right, _ in whole if all(right))
        strict = flexible if wrong == "the format does not count" else strict
        for most in KS[:3]:  # of many tries float32 decides
            sums[f"strict_pass_at_{most}"] += 1 - (1 - strict) ** most
            sums[f"flexible_pass_at_{most}"] += 1 - (1 - flexible) ** most
        sums["format_rate"] += sum(chance for chance, _, form in whole if form)
        sums["entropy"] -= sum(chance * np.log(chance) for chance, _, _ in whole)
        by_reward = defaultdict(float)
        for chance, right, form in whole:
            reward = form * ((1 - credit) * all(right) + credit * np.mean(right))
            reward = reward if wrong != "rewards are 0 or 1" else float(all(right) and form)
            reward += naive.world.format_reward * form
            flip = naive.world.false_negative if reward == 1 else naive.world.false_positive
            for given, share in ((reward, 1 - flip), (1 - reward, flip)):
                by_reward[round(given, 9)] += chance * share
        sums["equal"] += sum(chance**k for chance in by_reward.values())
    means = {name: value / n for name, value in sums.items()}
    return means | {"zero_variance_fraction": means.pop("equal")}


@pytest.mark.parametrize("name", WORLDS)
def test_measures_are_those_of_every_response(name):
    run, metrics, naive = trained(name)
    for column, value in enumerated(run, naive).items():
        assert metrics[f"train_{column}"] == pytest.approx(value, abs=20 * TOLERANCE)


@pytest.mark.parametrize(
    ("wrong", "column", "name"),
    [
        ("the format does not count", "strict_pass_at_2", "plain"),
        ("one more rollout", "zero_variance_fraction", "tabular"),
        ("rewards are 0 or 1", "zero_variance_fraction", "graded"),
    ],
)
def test_a_wrong_enumeration_is_told_apart(wrong, column, name):
    run, metrics, naive = trained(name)
    assert abs(metrics[f"train_{column}"] - enumerated(run, naive, wrong)[column]) > 100 * TOLERANCE


def policy_of(learner):
    """What a learner says on its training set."""
    world = learner.world
    return response_policy(world.train, world.style, learner.plan, learner.state.theta, learner.work)


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize(("jitter", "style_tokens"), [(0.0, 6.3), (0.37, 6.3), (0.0, 0.0)])
def test_lengths_are_means_over_every_response(tokens, jitter, style_tokens):
    spelled = {"style_tokens": style_tokens, "length_by_style": 0.8, "length_jitter": jitter}
    environment = replace(SMALL, answer_tokens=tokens, **spelled)
    run, style = run_of(DESIGNS["group"], environment), build(environment).style
    learner = PlainLearner(run, build(run.environment))
    learner.train(0, 3, no_totals(), lambda: False)
    policy = policy_of(learner)
    sums = np.zeros((2, 2))
    for context in range(len(policy.formed)):
        for arms in product(range(environment.n_answers * 2), repeat=tokens):
            chance = np.prod([policy.probs[context, s, arm] for s, arm in enumerate(arms)])
            right = all(policy.correct[context, s, arm] for s, arm in enumerate(arms)) * policy.formed[context]
            side = np.mean([2.0 * (arm % 2) - 1 for arm in arms])
            drawn = style.tokens * (1 + style.by_style * side) * (1 + style.jitter * (2 * GRID - 1))
            length = tokens + np.floor(drawn + 0.5).mean() if style_tokens else tokens * (1 + style.by_style * side)
            sums += chance * np.outer([right, 1 - right], [1, length])
    right, wrong = mean_lengths(style, policy)
    np.testing.assert_allclose([right, wrong], sums[:, 1] / sums[:, 0], rtol=1e-4)
    assert abs(right - wrong) > 0.01
    if style_tokens:  # rounded token by token
        assert mean_style_length(style, np.array([0.0])) != pytest.approx(style.tokens, abs=1e-4)


@pytest.mark.parametrize("exploration", [0.0, 3.0])
def test_the_entropy_of_style_tokens_is_the_surprise_of_those_that_are_sampled(exploration):
    environment = replace(SMALL, style_tokens=15, exploration=exploration)
    design = replace(DESIGNS["group"], batch_size=SMALL.n_train, rollouts=60, minibatches=4)
    learner = GeneralLearner(run_of(design, environment, rounds=24), build(environment))
    at_first = policy_of(learner).style_entropy
    learner.train(0, 23, no_totals(), lambda: False)
    entropy = policy_of(learner).style_entropy
    learner.train(23, 1, no_totals(), lambda: False)  # which samples from that policy
    tokens = learner.ragged.tokens[TOKEN.old_logp], learner.ragged.ints[INT.start]
    n = SMALL.n_train * design.rollouts
    style = np.ones(tokens[1][n], dtype=bool)
    style[tokens[1][:n]] = False
    surprise = -tokens[0][: tokens[1][n]][style]
    assert entropy == pytest.approx(surprise.mean(), abs=5 * surprise.std() / surprise.size**0.5 + 0.01 * entropy)
    assert abs(entropy - at_first) > 0.05


def test_measures_change_no_bit_of_a_run_and_are_there_where_they_are_asked_for():
    run = run_of(DESIGNS["window"], seed=3)
    world = build(run.environment)
    plain, full = simulate(run, world), simulate(replace(run, evaluation="full"), world)
    assert same(plain.curve, full.curve) and plain.metrics is None
    np.testing.assert_array_equal(full.metrics["round"], full.curve.round)
    for split in SPLITS:
        assert (full.metrics[f"{split}_strict_pass_at_2"] > getattr(full.curve, f"{split}_pass_at_1")).all()


def test_measures_of_the_general_round_are_those_of_the_plain_one():
    run = run_of(DESIGNS["group"], evaluation="full")
    world = build(run.environment)
    plain, general = (simulate(each, world).metrics for each in (run, replace(run, sampler=Sampler(noise=1e-12))))
    np.testing.assert_allclose(general, plain, rtol=1e-6)
