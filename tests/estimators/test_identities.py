"""Equations that hold whatever the numbers are: of advantages, of objectives, of batches; and presets."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.cards import PRESETS, estimator_name, preset
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator
from tests.support.checks import identities, identities_advantages, identities_objective
from tests.support.estimators.random_batches import baseline_for, random_batch
from tests.support.estimators.vectors import REAL

CHECKS = identities.CHECKS | identities_advantages.CHECKS | identities_objective.CHECKS


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_identity(check):
    check(REAL)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_names(name):
    assert PRESETS[estimator_name(preset(name))] == preset(name)
    changed = estimator_name(replace(preset(name), entropy=0.7))
    assert changed not in PRESETS and changed.startswith(preset(name).advantage.baseline)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_run(name):
    """Each gives finite weights on a batch that it allows, and other weights where the policy moves."""
    estimator, batch = preset(name), random_batch(np.random.default_rng(7), shortest=2, fewest=5, spreads=(0.5,))
    rewards = np.sin(np.arange(batch.group.size))
    rewards = (rewards > 0.5).astype(np.float64) if estimator.advantage.credit == "pass_at_k" else rewards
    rest = {
        "baseline": baseline_for(estimator.advantage, batch),
        "ref_logp": batch.ref_logp,
        "sampler_logp": batch.sampler_logp,
    }
    prepared = REAL.prepare(estimator, **identities.arguments(batch, rewards), **rest)
    policies = (batch.old_logp, np.minimum(batch.logp, 0.0))
    weights = [
        REAL.objective_and_weights(estimator, REAL.apply_mask(estimator, prepared, logp, batch.keys), logp).weight
        for logp in policies
    ]
    assert np.isfinite(weights).all() and np.abs(weights[0]).max() > 0
    assert isinstance(estimator.surrogate, Reinforce) or not np.array_equal(*weights)


def test_presets_are_what_their_papers_say():
    """A preset that is changed by accident would change every table that names it."""
    clip, k3 = Clip(0.2, 0.2), KL("k3", 0.001)
    zscore = Advantage("group_mean", "group_std", ddof=1, eps=1e-6, singleton="raw")
    expected = {
        "minimalist": Estimator(Advantage("none"), clip, k3, Aggregation("seq_mean_token_sum")),
        "grpo": Estimator(zscore, clip, KL("k3", 0.04), Aggregation("seq_mean_token_mean")),
        "dr_grpo": Estimator(Advantage("group_mean"), clip, KL("none"), Aggregation("seq_mean_token_sum", length=1024)),
        "rloo": Estimator(Advantage("leave_one_out"), Reinforce(), KL("none"), Aggregation("seq_mean_token_sum")),
        "paper_text": Estimator(zscore, clip, k3, Aggregation("seq_mean_token_sum")),
        "paper_code": Estimator(zscore, Clip(0.2, 0.2, 3.0), k3, Aggregation("micro_batch_token_mean", micro_batch=4)),
    }
    assert {name: PRESETS[name] for name in expected} == expected
