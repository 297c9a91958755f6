"""The engine that a run gets, a refusal where it cannot have it, and planted faults of an engine that a run would
survive, and learn from. vLLM itself is tested in test_vllm.py."""

import copy
import json
import sys
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rftlab import Compute, Correction, LoRA, UserError, prepare, preset, train
from rftlab.llm.engines.rollouts import Draws, HFEngine
from rftlab.llm.engines.vllm import VLLMEngine
from rftlab.llm.policy.policy import Policy
from rftlab.llm.policy.tensors import with_adapters
from rftlab.llm.random import ROLLOUT
from rftlab.llm.training import trainer
from rftlab.llm.training.update import check_mismatch
from rftlab.llm.truncation import Truncation
from tests.support.trainer.tiny_models import small_model
from tests.support.trainer.tiny_runs import one_cache, run_of, same  # noqa: F401


@pytest.mark.parametrize("version", [None, "0.9.2", "0.33.0", "0.320.1", "dev"])
def test_vllm_that_is_not_there_or_of_another_version_is_one_line(version, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "vllm", version and SimpleNamespace(__version__=version))
    said = rf"vLLM {version} is installed; allowed: 0\.32," if version else ".*; allowed: hf, or"
    with pytest.raises(UserError, match=rf"compute.engine = 'vllm': {said} pip install 'vllm==0\.32\.\*'"):
        train(run_of(engine="vllm"), tmp_path)


class FakeLLM:
    """In vLLM's place on a GPU: notes what it is asked for, in order."""

    calls: list
    arguments: dict
    emptied = True
    """Whether it empties its prefix cache when asked to."""

    def __init__(self, **arguments):
        type(self).calls, type(self).arguments = [], arguments
        self.llm_engine = SimpleNamespace(
            add_lora=lambda request: self.calls.append(("add_lora", request.load_inplace))
        )

    def __getattr__(self, name):
        def call(*arguments, **more):
            self.calls.append((name, more.get("tags") or more.get("level")))
            return name != "reset_prefix_cache" or self.emptied

        return call

    def enqueue(self, requests, settings, lora_request, use_tqdm):
        """Requests end a step each, the first one last; a response is its number and a stop."""
        self.calls.append(("enqueue", lora_request and lora_request.lora_name))
        names = [str(10 + i) for i in range(len(requests))]
        late = range(len(names) - 1)
        steps = [[self.output(names, i, finished=False), self.output(names, i + 1)] for i in late]
        steps.append([self.output(names, 0)])
        vars(self.llm_engine).update(has_unfinished_requests=lambda: bool(steps), step=lambda: steps.pop(0))
        return [f"{name}-4f3a" for name in names]

    def output(self, names, i, finished=True):
        logprobs = [{i: SimpleNamespace(logprob=-1.0)}, {1: SimpleNamespace(logprob=-2.0)}]
        made = SimpleNamespace(token_ids=[i, 1], logprobs=logprobs, finish_reason="stop")
        return SimpleNamespace(request_id=names[i], finished=finished, outputs=[made])


FakeRequest = namedtuple("FakeRequest", "lora_name lora_int_id lora_path load_inplace", defaults=[False])


def gpu_engine(monkeypatch, lora=LoRA(), **compute):  # noqa: B008  frozen
    """An engine as on a GPU, on the fake, beside its policy."""
    models = SimpleNamespace(ModelRegistry=SimpleNamespace(models={}), supports_lora=None)
    package = SimpleNamespace(__version__="0.32.0", LLM=FakeLLM, SamplingParams=lambda **fields: fields)
    monkeypatch.setitem(sys.modules, "vllm.model_executor.models", models)
    monkeypatch.setitem(sys.modules, "vllm.lora.request", SimpleNamespace(LoRARequest=FakeRequest))
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setattr("rftlab.llm.engines.vllm.for_a_cpu", lambda: False)
    run = replace(run_of(), compute=Compute("cuda", engine="vllm", cache_gb=0.5, precision="bf16", **compute))
    policy = Policy(with_adapters(small_model(), lora, seed=0), Compute())
    return VLLMEngine(replace(run, lora=lora), policy, SimpleNamespace(stops=(1,))), policy


LOAD, FORGET = ("apply_model", None), ("reset_prefix_cache", None)


def two_responses(engine, *ended):
    """Two of one prompt."""
    return engine.sample(((3, 4),), np.array([0]), np.array([2]), Draws(0, ROLLOUT, 0), 1.0, 4, *ended)


def test_on_a_gpu_vllm_leaves_room_for_the_policy_that_is_there_already(monkeypatch):
    """Bytes are named, because a share of the whole GPU would not be free."""
    gpu_engine(monkeypatch)
    found = FakeLLM.arguments
    assert found["gpu_memory_utilization"] < 0.05 and found["kv_cache_memory_bytes"] == 5e8
    assert found["enable_sleep_mode"] and not found["enforce_eager"]
    assert (found["dtype"], found["logprobs_mode"]) == ("bfloat16", "processed_logprobs")


def test_on_a_gpu_vllm_sleeps_between_sampling_and_the_sync(monkeypatch):
    engine, policy = gpu_engine(monkeypatch)
    two_responses(engine)
    engine.rest()
    engine.sync(policy)
    engine.sync(policy)
    awake = [("wake_up", ["weights"]), LOAD, ("wake_up", ["kv_cache"]), FORGET]
    assert FakeLLM.calls == [LOAD, FORGET, ("enqueue", None), ("sleep", 2), *awake, LOAD, FORGET]


def test_on_a_gpu_the_host_keeps_the_weights_under_adapters(monkeypatch):
    """So that the base weights come once, and what a sync brings are the adapters."""
    engine, policy = gpu_engine(monkeypatch, LoRA(5))
    weight = dict(policy.named_parameters())["model.layers.0.mlp.up_proj.lora_B.default.weight"]
    with torch.no_grad():
        weight.fill_(3.0)
    two_responses(engine)
    engine.rest()
    engine.sync(policy)
    adapters = ("add_lora", True)
    awake = [("wake_up", ["weights"]), adapters, ("wake_up", ["kv_cache"]), FORGET]
    assert FakeLLM.calls == [LOAD, adapters, FORGET, ("enqueue", "policy"), ("sleep", 1), *awake]
    assert (FakeLLM.arguments["enable_lora"], FakeLLM.arguments["max_lora_rank"]) == (True, 8)
    layers = [f"{name}_proj" for name in ("down", "gate", "k", "o", "q", "up", "v")]
    assert FakeLLM.arguments["lora_target_modules"] == layers
    written = load_file(Path(engine.adapters.request.lora_path) / "adapter_model.safetensors")
    assert (written["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"] == 3.0).all()


def test_a_prefix_cache_that_vllm_keeps_ends_the_run(monkeypatch):
    engine, policy = gpu_engine(monkeypatch)
    monkeypatch.setattr(FakeLLM, "emptied", False)
    with pytest.raises(UserError, match="keeps keys and values of the old weights"):
        engine.sync(policy)


def test_an_engine_that_has_room_stays_awake(monkeypatch):
    engine, policy = gpu_engine(monkeypatch, sleep=False)
    engine.rest()
    engine.sync(policy)
    assert FakeLLM.calls == [LOAD, FORGET] * 2 and not FakeLLM.arguments["enable_sleep_mode"]


def test_vllm_s_responses_are_told_as_they_end_and_returned_in_order(monkeypatch):
    engine, _ = gpu_engine(monkeypatch)
    told = []
    rollouts = engine.sample(((3, 4), (5,)), np.arange(2), np.array([2, 1]), Draws(0, ROLLOUT, 0), 1.0, 4, told.append)
    assert told == [[(0, [1, 1])], [(1, [2, 1])], [(0, [0, 1])]]
    assert rollouts.responses.tokens.tolist() == [0, 1, 1, 1, 2, 1] and rollouts.responses.group.tolist() == [0, 0, 1]

    with pytest.raises(UserError, match=r"^math-verify does not start$"):
        two_responses(engine, Mock(side_effect=UserError("math-verify does not start")))


def test_equal_architectures_share_a_folder_because_compiled_kernels_go_by_its_name(monkeypatch, model_cache):
    folders = []
    for _ in range(2):
        gpu_engine(monkeypatch)
        folders.append(FakeLLM.arguments["model"])
    assert folders[0] == folders[1] and Path(folders[0]).is_relative_to(model_cache)
    assert json.loads((Path(folders[0]) / "config.json").read_bytes())["architectures"] == ["LlamaForCausalLM"]


ADVICE = "update: out of memory: .*; `rftlab train --dry-run` .*; finished rounds .* are kept"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nto allocate 2 GiB"), UserError, ADVICE),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), UserError, ADVICE),
        (RuntimeError("a bug"), RuntimeError, "a bug$"),
    ],
)
def test_too_little_memory_is_one_line_that_says_where_and_what_to_do(error, kind, message, monkeypatch, tmp_path):
    monkeypatch.setattr("rftlab.llm.training.trainer.accumulate", Mock(side_effect=error))
    with pytest.raises(kind, match=message):
        train(run_of(), tmp_path)


def test_the_engine_rests_between_sampling_and_the_sync_of_every_round(tmp_path):
    calls = []

    class Noting(HFEngine):
        """Notes what it is asked for."""

        def __getattribute__(self, name):
            calls.extend([name] * (name in ("sample", "rest", "sync")))
            return super().__getattribute__(name)

    noting = train(run_of(rounds=4), tmp_path / "noting", engine_of=lambda policy, codec: Noting(policy, codec.stops))
    rounds = " ".join(calls).split("sample rest sync")
    assert len(rounds) == 5 and not any("rest" in between for between in rounds)
    assert same(noting, train(run_of(rounds=4), tmp_path / "plain"))


def test_a_part_of_the_questions_is_evaluated_and_0_means_all(tmp_path):
    outcomes = [
        train(run_of(rounds=1, eval_every=1, train_subset=a, test_subset=b), tmp_path / f"{a}-{b}")
        for a, b in ((0, 0), (500, 500), (12, 5))
    ]
    assert same(outcomes[0], outcomes[1])
    assert all(float(value * 5).is_integer() for value in outcomes[2].curve.test_pass_at_1)


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


@pytest.mark.parametrize(("engine", "round_index"), [(Stale, 2), (Hot, 1)])
def test_a_faulty_engine_stops_the_run(engine, round_index, tmp_path):
    said = rf"mismatch: in round {round_index} the log-probabilities of sampler and trainer differ by 0\..*"
    with pytest.raises(UserError, match=said + "allowed: 0.001; the sampler may hold old weights or sample at another"):
        train(run_of(), tmp_path, engine_of=lambda policy, codec: engine(policy, codec.stops))


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
