"""vLLM for real, on a CPU: `make test-vllm`. What it samples, and with which log-probabilities, against the policy
that is trained."""

import importlib.util
import inspect
import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: make test-vllm", allow_module_level=True)

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from rftlab import Compute, LLMRun, LoRA, Model, UserError, train
from rftlab.llm.engines import vllm as vllm_engine
from rftlab.llm.engines.rollouts import Draws, ignore
from rftlab.llm.engines.vllm import BATCHED, IN_PROCESS, VLLMEngine, engine_arguments, engine_seeds
from rftlab.llm.policy.policy import Policy
from rftlab.llm.policy.tensors import turned_off, with_adapters
from rftlab.llm.random import EVALUATION, ROLLOUT
from rftlab.llm.truncation import Truncation
from tests.support.trainer.families import FAMILY
from tests.support.trainer.tiny_runs import TINY, one_cache, run_of, same  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")
STOPS = (1, 7)
PROMPTS = tuple(tuple(range(3, 3 + n)) for n in (5, 40, 9))
"""The longest has more than a block of the cache."""
COUNTS = np.array([4, 2, 3])
ARCHITECTURES = FAMILY | {"gpt2": (GPT2Config, GPT2LMHeadModel)}


def test_arguments_for_a_gpu_and_variables_are_those_of_this_version(tmp_path):
    from vllm import LLM, EngineArgs, envs

    known = {field.name for field in fields(EngineArgs)} | inspect.signature(LLM).parameters.keys()
    assert engine_arguments(LLMRun(compute=Compute("cuda", engine="vllm")), tmp_path, True).keys() <= known
    assert {name for name in IN_PROCESS if name.startswith("VLLM_")} <= envs.environment_variables.keys()


def model_of(name="llama", tied=True):
    """A random model of an architecture, with distributions that are far from flat."""
    config, kind = ARCHITECTURES[name]
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    return kind(config(**sizes, **ids, tie_word_embeddings=tied, initializer_range=0.2, max_position_embeddings=256))


def engine_of(model, kind=VLLMEngine, temperature=1.0, lora=LoRA(), **compute):  # noqa: B008  frozen
    """An engine beside the policy whose weights it has."""
    settings = Compute(engine="vllm", **{"cache_gb": 0.1, "sample_rows": 64} | compute)
    run = LLMRun(model=Model(max_prompt_length=64, max_response_length=32), compute=settings, lora=lora)
    policy = Policy(model, run.compute, temperature)
    return kind(run, policy, SimpleNamespace(stops=STOPS)), policy


def sample(engine, prompts=PROMPTS, contexts=None, counts=COUNTS, draws=None, temperature=1.0, limit=20, ended=ignore):
    """A call with defaults."""
    contexts = np.arange(len(prompts)) if contexts is None else contexts
    return engine.sample(
        prompts, contexts, np.asarray(counts), draws or Draws(0, ROLLOUT, 0), temperature, limit, ended
    )


def shift(model, size=0.02):
    """What an update does to every weight, only more of it."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))


def gap(policy, rollouts):
    """Largest difference between the log-probabilities of an engine and of the policy."""
    return np.abs(policy.all_log_probs(rollouts.responses) - rollouts.logp).max()


@pytest.mark.parametrize(("name", "tied"), [("llama", True), ("llama", False), ("qwen2", True), ("olmo2", False)])
def test_log_probs_are_those_of_the_policy_after_every_update(name, tied):
    model = model_of(name, tied)
    engine, policy = engine_of(model)
    for index in range(2):
        assert gap(policy, sample(engine, draws=Draws(0, ROLLOUT, index))) < 1e-4
        shift(model)
        assert gap(policy, sample(engine, draws=Draws(0, ROLLOUT, index))) > 0.1
        engine.sync(policy)
    assert gap(policy, sample(engine, temperature=0.0)) < 1e-4


def test_a_part_of_the_tokens_is_the_same_part_as_ours():
    """Each token is one that our sampler may draw, with our log-probability of it."""
    model = model_of("llama", True)
    engine, policy = engine_of(model)
    for spec in (Truncation(top_p=0.7), Truncation(top_k=3), Truncation(min_p=0.4), Truncation(0.8, 5, 0.2)):
        common = (PROMPTS, np.arange(len(PROMPTS)), np.asarray(COUNTS), Draws(0, ROLLOUT, 0), 1.0, 20, ignore)
        rollouts = engine.sample(*common, spec)
        responses, whole = rollouts.responses, policy.all_log_probs(rollouts.responses)
        for i in range(len(responses.group)):
            prompt, tokens = list(responses.prompts[responses.group[i]]), responses.response(i).tolist()
            with torch.no_grad():
                logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float()
            ours = torch.log_softmax(spec.of_logits(logits), -1)[torch.arange(len(tokens)), tokens].numpy()
            theirs = rollouts.logp[responses.starts[i] : responses.starts[i + 1]]
            np.testing.assert_allclose(theirs, ours, atol=1e-3)
        assert (rollouts.logp - whole).mean() > 0.05


def lose_weights(model):
    """What sleep on level 2 does: the memory of every parameter is another's."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))


@pytest.mark.parametrize(("name", "tied"), [("llama", True), ("qwen2", True), ("olmo2", False)])
def test_a_sync_restores_all_that_sleep_loses(name, tied, monkeypatch):
    model = model_of(name, tied)
    engine, policy = engine_of(model)
    engine.engine.apply_model(lose_weights)
    shift(model)
    engine.sync(policy)
    assert gap(policy, sample(engine)) < 1e-4
    engine.engine.apply_model(lose_weights)
    monkeypatch.setattr("rftlab.llm.engines.vllm.load_weights", lambda *given: None)
    engine.sync(policy)
    (left,) = engine.engine.apply_model(lambda model: [p.isnan().all().item() for p in model.parameters()])
    assert all(left)


@pytest.mark.parametrize("adapters", [False, True])
def test_a_compiled_engine_leaves_the_policy_as_it_is(adapters, monkeypatch):
    model = with_adapters(model_of("olmo2", False), LoRA(4), seed=0) if adapters else model_of("olmo2", False)
    arguments = engine_arguments
    monkeypatch.setattr(
        "rftlab.llm.engines.vllm.engine_arguments", lambda *given: arguments(*given) | {"enforce_eager": False}
    )
    engine, policy = engine_of(model)
    (compiled,) = engine.engine.apply_model(lambda model: not model.model.do_not_compile)
    assert compiled
    for _ in range(2):
        assert gap(policy, sample(engine)) < 1e-4
        shift(model)
        engine.sync(policy)
    assert not any(hasattr(module, "compiled") for module in policy.model.modules())
    model_of("olmo2", False)


def adapted(name="llama", tied=True, lora=LoRA(4), **compute):  # noqa: B008  frozen
    """An engine beside a policy with adapters, and how many loads of weights it had by its second sync."""
    model, seen, real = with_adapters(model_of(name, tied), lora, seed=0), [], vllm_engine.load_weights

    def listening(model, weights):
        seen.append(1)
        real(model, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_engine, "load_weights", listening)
        engine, policy = engine_of(model, lora=lora, **compute)
        engine.sync(policy)
    return engine, policy, len(seen)


def move_adapters(policy, size):
    with torch.no_grad():
        for _, parameter in policy.named_parameters():
            parameter.add_(size * torch.randn_like(parameter))


@pytest.mark.parametrize(
    ("name", "lora"),
    [("llama", LoRA(4)), ("qwen2", LoRA(9, 3.0, ("q_proj", "down_proj"))), ("olmo2", LoRA(4)), ("gpt2", LoRA(4))],
)
def test_adapters_stay_adapters_where_vllm_knows_them(name, lora):
    """Base weights come once, and adapters at every sync; GPT-2's come as whole weights."""
    engine, policy, loads = adapted(name, name not in ("qwen2", "olmo2"), lora)
    assert loads == (2 if name == "gpt2" else 1)
    for _ in range(2):
        assert gap(policy, sample(engine)) < 1e-4
        move_adapters(policy, 0.1)
        assert gap(policy, sample(engine)) > 0.01
        engine.sync(policy)
    assert gap(policy, sample(engine)) < 1e-4
    with turned_off(policy.model):
        assert gap(policy, sample(engine)) > 0.01


def test_temperature_divides_the_logits():
    engine, policy = engine_of(model_of(), temperature=0.6)
    assert gap(policy, sample(engine, temperature=0.6)) < 1e-4 < 0.1 < gap(policy, sample(engine))


def test_bfloat16_is_near():
    engine, policy = engine_of(model_of(), precision="bf16")
    rollouts = sample(engine)
    assert np.abs(policy.all_log_probs(rollouts.responses) - rollouts.logp).mean() < 0.06


def test_a_response_ends_at_every_stop_and_says_whether_it_ended():
    engine, _ = engine_of(model_of())
    told = []
    rollouts = sample(engine, counts=[30, 30, 30], ended=told.append)
    responses, lasts = rollouts.responses, set()
    for row, finished in enumerate(rollouts.finished):
        ids = responses.response(row)
        assert not np.isin(ids[:-1], STOPS).any() and finished == (ids[-1] in STOPS) and (finished or len(ids) == 20)
        lasts |= {int(ids[-1])} & set(STOPS)
    assert lasts == set(STOPS) and responses.group.tolist() == [0] * 30 + [1] * 30 + [2] * 30
    heard = sorted((int(g), list(tokens)) for step in told for g, tokens in step)
    assert heard == sorted((int(g), responses.response(row).tolist()) for row, g in enumerate(responses.group))
    assert len(told) >= 20


def test_a_response_depends_on_its_own_numbers_alone():
    engine, _ = engine_of(model_of())
    whole = sample(engine, contexts=np.array([10, 11, 12])).responses
    alone = sample(engine, PROMPTS[1:2], np.array([11]), [6]).responses
    assert [whole.response(row).tolist() for row in (4, 5)] == [alone.response(row).tolist() for row in (0, 1)]
    assert len({tuple(alone.response(row)) for row in range(6)}) == 6
    other = sample(engine, contexts=np.array([10, 11, 12]), draws=Draws(0, EVALUATION, 0)).responses
    assert not np.array_equal(whole.tokens, other.tokens)
    seeds = engine_seeds(Draws(3, ROLLOUT, 5), np.repeat(np.arange(100), 10), np.tile(np.arange(10), 100))
    assert len(set(seeds)) == 1000 and min(seeds) >= 0 and max(seeds) < 2**63


def test_more_prompts_than_are_read_at_a_time():
    engine, policy = engine_of(model_of(), sample_rows=512)
    rng = np.random.default_rng(0)
    prompts = tuple(tuple(int(i) for i in rng.integers(3, 64, 60)) for _ in range(2 * BATCHED // 60))
    rollouts = sample(engine, prompts, counts=np.ones(len(prompts), dtype=np.int64), limit=2)
    assert gap(policy, rollouts) < 1e-4 and len(rollouts.finished) == len(prompts)


def test_first_tokens_have_the_policy_s_distribution():
    engine, policy = engine_of(model_of())
    count = 3000
    first = sample(engine, PROMPTS[:1], np.array([0]), [count], limit=1).responses.tokens
    with torch.no_grad():
        probability = torch.softmax(policy.model(torch.tensor([PROMPTS[0]])).logits[0, -1].double(), -1).numpy()
    expected, seen = count * probability, np.bincount(first, minlength=64)
    often = expected >= 5
    squares = ((seen - expected) ** 2 / expected)[often].sum()
    freedom = often.sum() - 1
    assert abs(squares - freedom) < 5 * np.sqrt(2 * freedom)


def vllm_run(**more):
    """A run whose tiny model has heads that vLLM's kernels take."""
    run = run_of(engine="vllm", cache_gb=0.1, **more)
    return replace(run, model=replace(run.model, tiny=replace(run.model.tiny, width=64)))


def test_runs_are_equal_and_a_killed_one_goes_on_as_if_it_had_not_been(tmp_path):
    run = vllm_run(rounds=8)
    whole = train(run, tmp_path / "whole")
    assert whole.metrics.mismatch.iloc[-1] < 1e-4 and whole.curve.round.tolist() == [0, 4, 8]

    class Killed(Exception):
        """In place of a signal."""

    def dying(policy, codec):
        engine = VLLMEngine(run, policy, codec)
        plain, calls = engine.sync, []
        engine.sync = lambda policy: (
            calls.append(0) or (plain(policy) if len(calls) < 7 else (_ for _ in ()).throw(Killed()))
        )
        return engine

    with pytest.raises(Killed):
        train(run, tmp_path / "killed", engine_of=dying)
    assert same(train(run, tmp_path / "killed"), whole)


def test_a_model_that_vllm_cannot_run_is_one_line():
    class Unheard(LlamaForCausalLM):
        """An architecture of a name that nobody knows."""

    model = Unheard(
        LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    )
    model.config.model_type = "unheard"
    with pytest.raises(UserError, match="vLLM cannot be started"):
        engine_of(model)


SERVE = """
import json, sys
from vllm import LLM, SamplingParams
few = {"kv_cache_memory_bytes": 10_000_000, "gpu_memory_utilization": 0.01}  # else it wants nearly all memory
llm = LLM(sys.argv[1], dtype="float32", max_model_len=32, enforce_eager=True, **few)
prompt = {"prompt_token_ids": json.loads(sys.argv[2])}
(found,) = llm.generate([prompt], SamplingParams(temperature=1.0, max_tokens=4, logprobs=0, seed=1), use_tqdm=False)
tokens = list(found.outputs[0].token_ids)
print(json.dumps([tokens, [step[token].logprob for step, token in zip(found.outputs[0].logprobs, tokens)]]))
"""


def test_an_exported_folder_is_served_with_the_weights_that_were_trained(tmp_path):
    """vLLM, in a process that knows nothing of rftlab, gives the log-probabilities that transformers gives. On a CPU it
    has heads of 32 coordinates and more."""
    from transformers import AutoModelForCausalLM

    from rftlab.llm.export import export
    from rftlab.llm.stored import stored_run

    run = run_of(rounds=2, eval_every=2)
    train(replace(run, model=replace(run.model, tiny=replace(TINY, width=64))), tmp_path / "run")
    export(stored_run(tmp_path / "run"), tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32, trust_remote_code=False)
    prompt = [1, 5, 6, 13, 7]
    command = [sys.executable, "-c", SERVE, str(tmp_path / "out"), json.dumps(prompt)]
    served = subprocess.run(command, capture_output=True, text=True, env=os.environ | IN_PROCESS, timeout=1200)
    assert served.returncode == 0, served.stderr[-2000:]
    tokens, theirs = json.loads(served.stdout.splitlines()[-1])
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0].log_softmax(dim=-1)
    ours = [float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(tokens)]
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
