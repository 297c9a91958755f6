"""LoRA: only adapters are trained, the base is the reference for free, and whole weights come out for engines that
take them."""

import sys

import numpy as np
import pytest
import torch

from rftlab import AdamW, Compute, LoRA, UserError, train
from rftlab.llm.models.load import load_model
from rftlab.llm.policy.policy import Frozen, Policy
from rftlab.llm.policy.tensors import with_adapters
from rftlab.llm.training.update import make_optimizer, step
from tests.support.trainer.tiny_models import exact_norms, random_responses, small_model, small_policy  # noqa: F401
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of, same, same_weights, weights_of  # noqa: F401

pytest.importorskip("peft", reason="peft is not installed (pip install '.[lora]' in rftlab's folder)")

RESPONSES = random_responses(0)
ALL = np.arange(len(RESPONSES.group))
RANK_4 = LoRA(4, 8.0)
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapted_policy(lora=RANK_4, seed=0, dtype=torch.float32, moved=True, model=None, **compute):
    """A policy with adapters, away from where they start."""
    model = with_adapters(small_model(0, **model or {}).to(dtype), lora, seed)
    if moved:
        generator = torch.Generator().manual_seed(7)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return Policy(model, Compute(**compute))


def plain_policy(policy, **model):
    """A policy without adapters that has the weights of another."""
    plain = small_model(3, **model).to(policy.model.dtype)
    found = dict(policy.weights())
    assert found.keys() == dict(plain.named_parameters()).keys()
    plain.load_state_dict(found, strict="tie_word_embeddings" not in model)
    return Policy(plain, policy.compute)


def difference(a, b):
    return np.abs(a.all_log_probs(RESPONSES) - b.all_log_probs(RESPONSES)).max()


def updated(policy):
    """The policy after updates towards the responses."""
    spec = AdamW(learning_rate=1e-2)
    optimizer = make_optimizer(policy, spec)
    for index in range(3):
        (-policy.log_probs(RESPONSES, ALL)[0].mean()).backward()
        step(policy, optimizer, spec, index)
    return policy


def test_adapters_alone_are_trained_and_the_first_policy_is_the_base():
    """And the base stays the reference, with no weights of its own."""
    policy, base = adapted_policy(moved=False), small_policy()
    trained, reference = dict(policy.named_parameters()), policy.reference()
    assert len(trained) == 2 * 2 * len(LAYERS) and all(".lora_" in name for name in trained)
    assert type(policy.model) is type(base.model) and policy.sharing == base.sharing and reference.policy is policy
    assert difference(policy, base) == 0 and with_adapters(base.model, LoRA(), 0) is base.model
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    updated(policy)
    moved = {name for name, tensor in policy.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == trained.keys() and difference(policy, base) > 0.01 and difference(reference, base) == 0


def test_adapters_are_a_function_of_the_seed_and_draw_nothing_else():
    torch.manual_seed(11)
    a, b, c = (adapted_policy(seed=seed, moved=False).model.state_dict() for seed in (5, 5, 6))
    drawn = torch.rand(3)
    torch.manual_seed(11)
    assert torch.equal(drawn, torch.rand(3))
    assert all(torch.equal(a[name], b[name]) for name in a)
    differ = {name for name in a if not torch.equal(a[name], c[name])}
    assert differ == {name for name in a if "lora_A" in name}


def test_targets_name_the_layers_that_get_adapters():
    policy = adapted_policy(LoRA(2, targets=("q_proj", "down_proj")))
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name, _ in policy.named_parameters()}
    assert layers == {"q_proj", "down_proj"}
    with pytest.raises(UserError, match=f"^lora.targets = 'query' is unknown; allowed: {', '.join(sorted(LAYERS))}$"):
        adapted_policy(LoRA(2, targets=("q_proj", "query")))


def test_adapters_are_on_again_after_an_error():
    policy = adapted_policy()
    before, names = policy.all_log_probs(RESPONSES), [name for name, _ in policy.named_parameters()]
    with pytest.raises(AttributeError):
        policy.reference().all_log_probs(None)
    assert (policy.all_log_probs(RESPONSES) == before).all()
    assert [name for name, _ in policy.named_parameters()] == names


@pytest.mark.parametrize("model", [{}, {"tie_word_embeddings": True}, {"attention_bias": True}])
@pytest.mark.parametrize("targets", [(), ("v_proj", "up_proj")])
def test_whole_weights_are_the_same_policy(model, targets):
    policy = adapted_policy(LoRA(4, 8.0, targets), model=model)
    assert difference(plain_policy(policy, **model), policy) < 1e-5 and difference(policy, policy.reference()) > 0.1


def test_whole_weights_come_one_at_a_time_without_a_gradient():
    policy = adapted_policy()
    layer = policy.model.model.layers[0].self_attn.q_proj
    own = {parameter.data_ptr() for parameter in policy.model.parameters()}
    found = list(policy.weights())
    made = [name for name, tensor in found if tensor.data_ptr() not in own]
    assert len(made) == 2 * len(LAYERS) and all(name.endswith("_proj.weight") for name in made)
    expected = layer.base_layer.weight + 2 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    weight = dict(found)["model.layers.0.self_attn.q_proj.weight"]
    assert not weight.requires_grad and torch.equal(weight, expected)


def test_what_is_computed_again_has_the_same_gradients_of_adapters_alone(exact_norms):
    gradients = []
    for compute in ({}, {"gradient_checkpointing": True, "logit_rows": 7}):
        policy = adapted_policy(dtype=torch.float64, **compute)
        policy.log_probs(RESPONSES, ALL)[0].sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for _, parameter in policy.named_parameters()]))
        assert all(p.grad is None for p in policy.model.parameters() if not p.requires_grad)
    assert (gradients[0] - gradients[1]).norm() < 1e-10 * gradients[0].norm() and gradients[0].norm() > 1e-3


def lora_run(**more):
    usual = {"rounds": 8, "checkpoint_every": 2, "epochs": 2, "rank": 8, "learning_rate": 1e-2, "greedy": False}
    return run_of(**usual | more)


def test_equal_runs_are_equal_and_a_killed_one_goes_on(tmp_path):
    whole = train(lora_run(), tmp_path / "whole")
    for rounds in (3, 5):
        killed_at(lora_run(), tmp_path / "parts", rounds)
    assert same(whole, train(lora_run(), tmp_path / "parts")) and whole.curve.kl[-1] > 0
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    assert all(".lora_" in name for name in weights_of(tmp_path / "whole"))
    assert not same(whole, train(lora_run(rank=4), tmp_path / "other"))


def test_the_kl_of_a_run_is_that_of_a_frozen_copy(tmp_path, monkeypatch):
    """The same run with a second model in the reference's place."""
    run = lora_run(rounds=4)
    shared = train(run, tmp_path / "a")
    monkeypatch.setattr(Policy, "reference", lambda policy: Frozen(policy))
    assert same(shared, train(run, tmp_path / "b"))


def test_bf16_runs_beside_fp32_adapters(tmp_path):
    outcome = train(lora_run(rounds=2, eval_every=2, precision="bf16"), tmp_path)
    assert 1e-5 < outcome.metrics.mismatch[1] < 0.06
    assert {tensor.dtype for tensor in weights_of(tmp_path, 2).values()} == {torch.float32}


def test_a_missing_package_is_one_line_before_anything_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr("rftlab.llm.models.load.pretrained", lambda *a: pytest.fail("it was loaded"))
    with pytest.raises(UserError, match=r"lora\.rank = 8 needs the package peft: .*; pip install '\.\[lora\]'"):
        load_model(lora_run())
