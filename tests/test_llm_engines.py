"""Which engine a run gets, and what is said where it cannot have it. vLLM itself is tested in test_vllm.py."""

import sys
from types import SimpleNamespace

import pytest

from llm.config import Compute
from llm.rollouts import HFEngine
from llm.train import train
from shared.errors import UserError
from tests.tiny_runs import one_cache, run_of, same  # noqa: F401


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, r"compute.engine = 'vllm': .*; allowed: hf, or install vllm"),
        (SimpleNamespace(__version__="0.9.2"), r"compute.engine = 'vllm': vLLM 0\.9\.2 is installed; allowed: 0\.32 or newer"),
    ],
)
def test_vllm_that_is_not_there_or_too_old_is_one_line(module, message, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "vllm", module)
    with pytest.raises(UserError, match=message):
        train(run_of(engine="vllm"), tmp_path)


@pytest.mark.parametrize(("field", "value", "allowed"), [("engine", "sglang", "hf, vllm"), ("cache_gb", 0.0, "more than 0")])
def test_an_engine_s_settings_are_checked(field, value, allowed):
    with pytest.raises(UserError, match=rf"compute\.{field} = '?{value}'?.*; allowed: {allowed}"):
        Compute(**{field: value})


def test_the_engine_rests_between_sampling_and_the_sync_of_every_round(tmp_path):
    calls = []

    class Noting(HFEngine):
        """Notes what it is asked for."""

        def sample(self, *arguments):
            calls.append("sample")
            return super().sample(*arguments)

        def rest(self):
            calls.append("rest")
            super().rest()

        def sync(self, policy):
            calls.append("sync")
            super().sync(policy)

    noting = train(run_of(rounds=4), tmp_path / "noting", engine_of=lambda policy, codec: Noting(policy, codec.stops))
    rounds = " ".join(calls).split("sample rest sync")
    assert len(rounds) == 5 and not any("rest" in between for between in rounds)
    assert same(noting, train(run_of(rounds=4), tmp_path / "plain"))


def test_a_part_of_the_questions_is_evaluated_and_0_means_all(tmp_path):
    outcomes = [train(run_of(rounds=1, eval_every=1, train_subset=a, test_subset=b), tmp_path / f"{a}-{b}") for a, b in ((0, 0), (500, 500), (12, 5))]
    assert same(outcomes[0], outcomes[1])
    assert all(float(value * 5).is_integer() for value in outcomes[2].curve.test_pass_at_1)
