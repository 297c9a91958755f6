"""How rollouts are spent: dynamic sampling, group filtering, budgets by difficulty."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.shaping import Length
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.sampling import MAX, allocate
from rftlab.sim.environments import build
from rftlab.sim.run import GeneralLearner, batches, simulate
from rftlab.sim.state import no_totals
from tests.support.worlds.general import WORLD, styled_run
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import (
    equal_world,
    forced,
    gradients,
    learner_of,
    mixed_world,
    same,
    seen,
    styled,
)

CENTRED = Estimator(Advantage("group_mean"))


def rows(found, values):
    """One array of `values` for each row of a round."""
    return [values[a:b] for a, b in itertools.pairwise(found.first)]


def rounds_of(run, world, count):
    """The first rounds of a run, one at a time: what each left, and the contexts of all batches that it tried."""
    learner = GeneralLearner(run, world)
    n, size, seed = len(world.train.base_format), run.design.batch_size, run.seed
    for round_index in range(count):
        before = learner.memory.spent[2]
        assert learner.advance(round_index, 1, no_totals()) == 1
        yield seen(learner), batches(n, size, seed, before, learner.memory.spent[2])


def differ(found):
    return np.array([np.ptp(rewards) > 0 for rewards in rows(found, found.reward)])


# --- dynamic sampling ---


def test_with_many_tries_every_trained_group_has_rewards_that_differ():
    for tries, expected in ((50, True), (1, False)):
        run = styled_run(sampling=Sampling(tries=tries))
        assert all(differ(found).all() for found, _ in rounds_of(run, WORLD, 12)) == expected
        curve = simulate(run, WORLD).curve
        assert (np.nanmax(curve.zero_signal_fraction) == 0) == expected


def test_what_is_missing_after_the_last_try_is_filled_with_silent_groups_of_that_try():
    world = mixed_world()
    world = world._replace(train=world.train._replace(correct=world.train.correct * (np.arange(15) % 3 == 0)))
    filled = 0
    for found, tried in rounds_of(styled_run(sampling=Sampling(tries=2)), world, 12):
        signal = differ(found)
        assert len(found.context) == 6 and len(tried) == 2
        assert np.isin(found.context[~signal], tried[1]).all()
        filled += (~signal).sum()
        silent = [context for context in tried[1] if context not in found.context[signal]]
        assert found.context[~signal].tolist() == silent[: (~signal).sum()], "not the first ones"
    assert 0 < filled < 6 * 12


def test_without_any_signal_the_last_batch_is_trained_on_and_teaches_nothing():
    world = equal_world(np.zeros(4), np.zeros(4))
    learner = learner_of(world, CENTRED, 2, sampling=Sampling(tries=3))
    assert np.all(gradients(learner, 1) == 0)
    assert learner.memory.spent[0] == 3 * 256 * 2 and sorted(seen(learner).context) == list(range(256))


def test_a_context_that_comes_up_again_in_a_round_gets_new_rollouts():
    """All contexts are in every batch, so the tries of a round go through several epochs."""
    world = styled(equal_world(np.array([0.0, 2.0]), [True, False]), 24)
    learner = learner_of(world, CENTRED, 2, sampling=Sampling(tries=3))
    learner.advance(0, 1, no_totals())
    found = seen(learner)
    assert learner.memory.spent[2] == 3 and len(set(found.context)) < 0.95 * 256
    said = [tuple(coins) for coins in np.split(found.signs[:, 0] * (2 * found.coin - 1), found.starts[1:-1])]
    assert len({coins[1:] for coins in said}) == len(said)


def test_a_first_try_that_suffices_is_the_whole_round():
    """Long answers are penalised by their length, so rewards always differ."""
    world = mixed_world(tokens=20.0, jitter=0.8)
    once, again = (styled_run(sampling=Sampling(tries=tries), length=Length(1.0, 60, 60)) for tries in (1, 9))
    assert same(simulate(once, world).curve, simulate(again, world).curve)
    assert not same(simulate(styled_run(), world).curve, simulate(styled_run(sampling=Sampling(tries=9)), world).curve)


@pytest.mark.parametrize("sampling", [Sampling(tries=1), Sampling(keep=20)])
def test_one_try_and_keeping_all_are_off(monkeypatch, sampling):
    plain, world = run_of(DESIGNS["group"], seed=3), build(SMALL)
    run = replace(plain, design=replace(plain.design, sampling=sampling))
    assert same(simulate(plain, world).curve, forced(monkeypatch, run, world).curve)
    filtered = replace(plain, design=replace(plain.design, sampling=Sampling(keep=19)))
    assert not same(simulate(plain, world).curve, simulate(filtered, world).curve)


# --- group filtering ---


def test_filtering_makes_responses_shorter():
    """All answers are worth the same and lengths are arms: what is kept is short, but only rewards teach."""
    world = styled(equal_world(np.zeros(4), [True, True, False, False]), 8, by_style=0.75)
    drift = {}
    for keep in (0, 4):
        estimator = replace(CENTRED, aggregation=Aggregation())
        learner = learner_of(world, estimator, 8, sampling=Sampling(keep=keep))
        found = gradients(learner, 40)
        drift[keep] = found[:, 1] - found[:, 0], found[:, 1:].std()
    error = drift[4][0].std() / np.sqrt(len(drift[4][0]))
    assert drift[4][0].mean() < -5 * error
    assert abs(drift[0][0].mean()) < 4.5 * error


# --- budgets ---


def test_budgets_follow_the_difficulty_within_their_limits():
    rate = np.linspace(0, 1, 256)
    learner = learner_of(
        equal_world(np.zeros(4), [True, True, False, False]), CENTRED, 4, sampling=Sampling(budget="difficulty")
    )
    learner.memory.averages[:-1] = 1e6 * np.stack([rate, np.ones(256)], axis=1)
    learner.advance(0, 1, no_totals())
    found = seen(learner)
    count = np.diff(found.first)
    assert count.sum() == 256 * 4 and count.min() == 1 and count.max() <= MAX * 4
    spread = np.sqrt(rate * (1 - rate))[found.context]
    assert np.abs(count - spread / spread.mean() * 4).max() < 1.5
    assert count[np.argmin(np.abs(rate[found.context] - 0.5))] == count.max() > count[np.argmin(rate[found.context])]
    equal = learner_of(equal_world(np.zeros(4), [True, True, False, False]), CENTRED, 4)
    equal.advance(0, 1, no_totals())
    assert set(np.diff(seen(equal).first)) == {4}


@pytest.mark.parametrize("tries", [4, 30])
def test_tries_of_uneven_budgets_find_room(tries):
    """One context of eight takes half of every batch and is the only one that ever differs, so that a round holds
    many large groups."""
    world = equal_world(np.array([0.0, 0.0]), [True, False])
    hard = np.arange(256) % 8 != 0
    train = world.train._replace(correct=np.where(hard, 0, world.train.correct).astype(np.uint32))
    learner = learner_of(
        world._replace(train=train), CENTRED, 8, batch_size=8, sampling=Sampling(tries=tries, budget="difficulty")
    )
    learner.memory.averages[:-1, 1] = 1e6
    learner.memory.averages[:-1, 0] = np.where(hard, 0, 5e5)
    for _ in range(3):
        learner.advance(0, 1, no_totals())
        found = seen(learner)
        assert found.first[-1] <= learner.ragged.numbers.shape[1] and found.starts[-1] <= learner.ragged.tokens.shape[1]
    assert tries == 4 or found.first[-1] > 2 * 8 * 8, "no more than two batches of responses: no test of the room"


@pytest.mark.parametrize("p", [(0.5, 0.1, 0.02), (0.5, 0.5, 0.001), (0.9, 0.3, 0.6, 0.05), (0.0, 1.0, 0.2)])
@pytest.mark.parametrize("mean", [2, 4])
def test_allocations_are_nearly_the_best_of_all(p, mean):
    """No other allocation brings the neediest context nearer to its part, and hardly any a lower sum of variances p
    (1-p) / n (Neyman)."""
    spread = np.sqrt(np.array(p) * (1 - np.array(p)))
    counts = (
        np.array(c) for c in itertools.product(range(1, MAX * mean + 1), repeat=len(p)) if sum(c) == mean * len(p)
    )
    every = [((spread / c).max(), (spread**2 / c).sum()) for c in counts]
    found = allocate(p, mean)
    neediest, variance = (spread / found).max(), (spread**2 / found).sum()
    assert neediest <= min(need for need, _ in every) + 1e-12
    assert variance <= 1.06 * min(v for _, v in every)
    assert variance <= (spread**2 / mean).sum() + 1e-12 < max(v for _, v in every)


def test_designs_of_different_spending_share_their_first_rollouts():
    first = []
    for sampling in (Sampling(), Sampling(keep=2), Sampling(budget="difficulty")):
        found, _ = next(rounds_of(styled_run(sampling=sampling), WORLD, 1))
        first.append((found.arm, found.reward, found.length))
    for other in first[1:]:
        for a, b in zip(first[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert Design(8, 4).sampling == Sampling(tries=1, keep=0, budget="equal")
