"""A sampler that is not the trainer: what importance correction repairs, what is lost without it, and how stale and
noisy it is."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Optimizer, Sampler
from rftlab.sim.environments import build
from rftlab.sim.round.ragged import TOKEN
from rftlab.sim.run import simulate
from rftlab.sim.setup import is_general
from rftlab.sim.state import no_totals
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import (
    equal_world,
    forced,
    gradients,
    learner_of,
    same,
    seen,
    softmax,
    styled,
    z_scores,
)

LOGITS, RIGHT = np.array([0.4, -0.3, 0.8, 0.0]), np.array([True, False, False, True])
NOW, STALE = np.array([0.5, -0.2, 0.1, -0.5]), np.array([-0.4, 0.5, 0.3, -0.2])
UNCLIPPED = Clip(low=1.0, high=np.inf)
WHOLE = Correction("truncate", "sequence", high=np.inf)


def policy(theta):
    return softmax(LOGITS + theta)


def gradient_of(sampling):
    """Mean of r (e_a - pi) where arms come from `sampling` (A,), pi is the policy now."""
    return sampling * RIGHT - (sampling @ RIGHT) * policy(NOW)


ON_POLICY = gradient_of(policy(NOW))
SAMPLERS = {"lag": Sampler(lag=1), "noise": Sampler(noise=0.7), "both": Sampler(lag=1, noise=0.5)}


def raw(correction=None, surrogate=None):
    return Estimator(Advantage("none"), surrogate or Reinforce(), correction=correction or Correction())


def average(estimator, sampler, rounds=150, rollouts=1, tokens=0, **more):
    world = equal_world(LOGITS, RIGHT, 0.6 if tokens else 0.0)
    world = styled(world, tokens, by_style=0.5) if tokens else world
    return gradients(learner_of(world, estimator, rollouts, sampler=sampler, **more), rounds, NOW, STALE)


def z_limit(found, expected):
    """The largest z-score of means that are known to 5 percent of the largest expected one."""
    assert (found.std(axis=0) / np.sqrt(len(found))).max() < 0.05 * np.abs(expected).max()
    return z_scores(found, expected).max()


REPAIRS = {
    "sequence": raw(WHOLE),
    "token": raw(replace(WHOLE, level="token")),
    "ratio to the sampler": raw(Correction("ratio"), UNCLIPPED),
    "through the ratio": raw(WHOLE, UNCLIPPED),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", REPAIRS)
def test_corrected_gradients_are_those_of_the_trainers_policy(name, sampler):
    found = average(REPAIRS[name], SAMPLERS[sampler])
    assert z_limit(found, ON_POLICY) < 4.5
    assert z_scores(found, 1.2 * ON_POLICY).max() > 4.5


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    "correction", [Correction(), Correction("truncate", high=1.1), Correction("mask", low=0.9, high=1.1)]
)
def test_without_or_with_half_a_correction_they_are_not(correction, sampler):
    assert z_scores(average(raw(correction), SAMPLERS[sampler]), ON_POLICY).max() > 6


def test_uncorrected_gradients_of_a_stale_sampler_are_those_of_its_arms():
    assert z_limit(average(raw(), SAMPLERS["lag"]), gradient_of(policy(STALE))) < 4.5


def test_corrections_of_whole_responses_repair_several_tokens_too():
    """The weight of a whole response repairs all of it; weights of its tokens leave style tokens with reward and no
    score, on average."""
    for level in ("sequence", "token", "geometric"):
        found = average(raw(replace(WHOLE, level=level)), SAMPLERS["lag"], rounds=400, tokens=4)
        if level == "geometric":
            assert z_scores(found, ON_POLICY).max() > 4.5
        else:
            assert z_limit(found, ON_POLICY) < 4.5


def test_leave_one_out_stays_unbiased_where_its_baseline_is_the_samplers():
    estimator = replace(raw(WHOLE), advantage=Advantage("leave_one_out"))
    assert z_limit(average(estimator, SAMPLERS["both"], rollouts=4), ON_POLICY) < 4.5


# --- how stale, how noisy ---


def sampled_logp(learner, found):
    return learner.ragged.tokens[TOKEN.sampler_logp, : found.starts[-1]][found.starts[:-1]]


@pytest.mark.parametrize(("lag", "every"), [(1, 1), (3, 1), (0, 3), (2, 2)])
def test_a_lag_is_counted_in_rounds_and_a_queue_holds_rollouts_of_one_policy(lag, every):
    """Arms are sampled, and scored, by the policy of `lag` rounds before the queue began; before that by the first
    one."""
    learner = learner_of(equal_world(LOGITS, RIGHT), raw(), 2, sampler=Sampler(lag, every=every), rate=40.0)
    past = []
    for round_index in range(7):
        past.append(learner.state.theta[:-1].reshape(256, 4).copy())
        learner.advance(round_index, 1, no_totals())
        found = seen(learner)

        def logp_at(age, found=found, now=round_index // every * every):
            rows = np.repeat(found.context, 2)
            thetas = past[max(0, now - age)]
            return np.log([softmax(LOGITS + thetas[row])[arm] for row, arm in zip(rows, found.arm, strict=True)])

        for age in (lag, lag + 1, *([lag - 1] if lag and every == 1 else [])):
            if age == lag or round_index > lag + every - 1:
                assert np.allclose(sampled_logp(learner, found), logp_at(age), atol=1e-12) == (age == lag)
        np.testing.assert_allclose(found.old, logp_at(0, now=round_index), atol=1e-12)


def test_noise_has_the_stated_deviation_and_is_new_in_every_round_and_context():
    logits = np.array([0.0, 0.0])
    learner, noise = learner_of(equal_world(logits, [True, False]), raw(), sampler=Sampler(noise=0.3)), []
    for round_index in range(12):
        learner.state.theta[:] = 0.0
        learner.advance(round_index, 1, no_totals())
        found = seen(learner)
        logp, side = sampled_logp(learner, found), 1 - 2 * found.arm
        noise.append((side * (logp - np.log1p(-np.exp(logp))))[np.argsort(found.context)])
    noise = np.array(noise)  # the difference of two logits' noises
    assert z_scores(noise.ravel(), 0.0) < 4.5 and z_scores(noise.ravel() ** 2, 2 * 0.3**2) < 4.5
    assert z_scores(noise.ravel() ** 2, 2 * 0.33**2) > 4.5
    for products in (noise[1:] * noise[:-1], noise[:, 1:] * noise[:, :-1]):
        assert z_scores(products.ravel(), 0.0) < 4.5


# --- what makes no difference ---


def test_no_lag_and_no_noise_is_no_sampler():
    run = run_of(DESIGNS["group"], sampler=Sampler(0, 0.0))
    assert run == run_of(DESIGNS["group"]) and not is_general(run, build(SMALL))


@pytest.mark.parametrize("design", ["raw", "window", "updates", "kl in reward"])
@pytest.mark.parametrize("correction", [Correction(), WHOLE, Correction("mask", "geometric"), Correction("ratio")])
def test_a_sampler_that_looks_again_but_sees_the_same_changes_nothing(monkeypatch, design, correction):
    """Noise that float32 cannot hold, and a lag where nothing moves."""
    design = replace(DESIGNS[design], estimator=replace(DESIGNS[design].estimator, correction=correction))
    world, run = build(SMALL), run_of(design, seed=3)
    plain = forced(monkeypatch, run, world).curve
    assert same(plain, simulate(run, world).curve)
    assert same(plain, simulate(replace(run, sampler=Sampler(noise=1e-30)), world).curve)
    assert not same(plain, simulate(replace(run, sampler=Sampler(noise=0.3)), world).curve)
    assert not same(plain, simulate(replace(run, sampler=Sampler(lag=1)), world).curve)
    still = replace(run, optimizer=Optimizer(learning_rate=0.0))
    assert same(simulate(still, world).curve, simulate(replace(still, sampler=Sampler(lag=3)), world).curve)
