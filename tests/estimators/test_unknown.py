"""A choice that no kernel computes is an error wherever an estimator runs, never another estimator."""

from dataclasses import replace
from typing import Literal, get_args, get_origin

import numpy as np
import pytest

import rftlab as rl
from rftlab.shared.advantage import advantages
from rftlab.shared.config import advantage, aggregation, correction, kl, mask, ratio
from rftlab.shared.objective import apply_mask
from rftlab.shared.plumbing.pool import make_pool
from rftlab.sim.environments import build
from tests.support.estimators.random_batches import baseline_for, random_batch
from tests.support.estimators.unknown import CASES, CHOICES, planted
from tests.support.estimators.vectors import seeds


def prepared(estimator):
    """What the trainer calls."""
    rng = np.random.default_rng(0)
    logp = -rng.exponential(1.0, 24)
    rest = {"sampler_logp": logp - 0.1} if estimator.correction.kind != "none" else {}
    starts, rewards, group = np.arange(0, 25, 3), np.arange(8) % 3 % 2, np.arange(8) // 4
    batch = rl.prepare(estimator, rewards, group, starts, logp, logp - 0.1, **rest)
    return rl.objective_and_weights(estimator, apply_mask(estimator, batch, logp + 0.1), logp + 0.1)


def simulated(estimator):
    run = rl.start_at("qwen-gsm8k", "sim")
    design = rl.Design(batch_size=8, rollouts=4, rounds=2, eval_every=2, estimator=estimator)
    run = replace(run, environment=rl.Linear(n_train=16, n_test=16, n_features=16), design=design)
    return rl.simulate(run, build(run.environment))


@pytest.mark.parametrize("path", [prepared, simulated])
@pytest.mark.parametrize(("part", "listed", "field", "as_code"), CASES)
def test_an_unknown_choice_is_refused(part, listed, field, as_code, path, monkeypatch):
    with pytest.raises(rl.UserError, match=r"that no kernel computes|unknown"):
        path(planted(part, listed, field, as_code, monkeypatch))


def test_every_choice_with_a_name_is_planted():
    found = {
        name
        for module in (advantage, aggregation, correction, kl, mask, ratio)
        for name, value in vars(module).items()
        if get_origin(value) is Literal and name not in ("GroupBaseline", "GivenBaseline")
    }
    assert found == {listed for _, listed, field in CHOICES if field}


@pytest.mark.parametrize("baseline", sorted(set(get_args(advantage.BaselineKind)) - set(advantage.PER_TOKEN)))
@pytest.mark.parametrize("whiten", get_args(advantage.WhitenKind))
def test_what_looks_at_lengths_says_so(baseline, whiten):
    """`rl.losses` hands lengths over to those alone."""
    spec, found = rl.Advantage(baseline, whiten=whiten), set()
    for rng in seeds(0, 20):
        batch = random_batch(rng, fewest=3, shortest=1, longest=9)
        given = baseline_for(spec, batch)
        pool = make_pool(batch.n_groups, (batch.rewards, batch.group))
        a, b = (
            advantages(spec, batch.rewards, batch.group, pool, starts=starts, baseline=given)
            for starts in (batch.starts, None)
        )
        found.add(bool(np.allclose(a, b)))
    assert (False in found) == spec.of_lengths
