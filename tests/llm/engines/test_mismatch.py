"""Mismatch of sampler and trainer: planted faults of an engine that a run would survive, and learn from."""

import copy
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from rftlab import Correction, UserError, prepare, preset, train
from rftlab.llm.engines.rollouts import HFEngine
from rftlab.llm.policy.policy import Policy
from rftlab.llm.training import trainer
from rftlab.llm.training.update import check_mismatch
from rftlab.llm.truncation import Truncation
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401


class Copying(HFEngine):
    """An engine with weights of its own, which it takes over as it should."""

    def sync(self, policy):
        self.policy = Policy(copy.deepcopy(policy.model), policy.compute, policy.temperature)


class Stale(Copying):
    """Takes over the weights once, and never again."""

    def sync(self, policy):
        if not hasattr(self, "policy"):
            super().sync(policy)


class Hot(HFEngine):
    """Samples at another temperature than it is told."""

    def sample(self, prompts, contexts, counts, draws, temperature, *more):
        return super().sample(prompts, contexts, counts, draws, temperature * 1.1, *more)


class Rounded(HFEngine):
    """Reports log-probabilities that are right to 1e-5: other kernels, the same policy."""

    def sample(self, *arguments):
        rollouts = super().sample(*arguments)
        return rollouts._replace(logp=np.round(rollouts.logp, 4))


@pytest.mark.parametrize(("engine", "round_index"), [(Stale, 1), (Hot, 0)])
def test_a_faulty_engine_stops_the_run(engine, round_index, tmp_path):
    with pytest.raises(UserError) as caught:
        train(run_of(), tmp_path, engine_of=lambda policy, codec: engine(policy, codec.stops))
    message = str(caught.value)
    assert f"mismatch: in round {round_index + 1} the log-probabilities of sampler and trainer differ by 0." in message
    assert "allowed: 0.001; the sampler may hold old weights or sample at another temperature" in message


@pytest.mark.parametrize("engine", [Copying, Rounded])
def test_a_good_engine_does_not(engine, tmp_path):
    outcome = train(run_of(rounds=4), tmp_path, engine_of=lambda policy, codec: engine(policy, codec.stops))
    assert outcome.metrics.mismatch.iloc[-1] < 1e-4


def test_the_threshold_is_a_mean_and_nan_is_above_it():
    assert check_mismatch(np.array([-1.0, -2.0]), np.array([-1.2, -2.0]), 0.11, 0) == pytest.approx(0.1)
    for wrong in (-1.3, np.nan):
        with pytest.raises(UserError, match="mismatch: in round 5"):
            check_mismatch(np.array([-1.0, -2.0]), np.array([wrong, -2.0]), 0.11, 4)


def test_a_sampler_that_leaves_out_tokens_may_be_above_the_policy_but_not_below():
    above, policy = np.array([-0.5, -2.0]), np.array([-1.2, -2.0])
    assert check_mismatch(above, policy, 0.11, 0, Truncation(top_p=0.5)) == 0.0
    for sampler, other in ((policy, above), (np.array([np.nan, -2.0]), policy)):
        with pytest.raises(UserError, match="mismatch: in round 1"):
            check_mismatch(sampler, other, 0.11, 0, Truncation(top_p=0.5))


def test_a_run_whose_sampler_leaves_out_tokens(tmp_path):
    """Weights of tokens are the policy's probability over the sampler's, which is higher; without truncation, 1."""
    estimator = replace(preset("rloo"), correction=Correction("truncate", high=1.0))
    weights = {}
    for top_p in (1.0, 0.7):
        run = run_of(rounds=1, eval_every=1, minibatches=1, estimator=estimator, top_p=top_p)
        with patch.object(trainer, "prepare", wraps=prepare) as seen:
            train(run, tmp_path / str(top_p))
        (call,) = seen.call_args_list
        weights[top_p] = np.exp(call.args[4] - call.kwargs["sampler_logp"])
        assert len(weights[top_p]) > 100
    assert np.abs(weights[1.0] - 1).max() < 1e-4
    assert weights[0.7].max() < 1 + 1e-4 and weights[0.7].min() > 0.7 - 1e-4 and weights[0.7].mean() < 0.95
