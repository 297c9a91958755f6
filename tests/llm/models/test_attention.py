"""Heads that share keys and values: the same numbers, to rounding, as with a copy for every head, in what samples
and in what reads, and no copy."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import rftlab.llm.policy.policy
from rftlab.llm.engines.rollouts import Draws, HFEngine
from rftlab.llm.policy.policy import GROUPED, grouped_attention
from rftlab.llm.random import ROLLOUT
from tests.support.trainer.tiny_models import random_responses, small_model, small_policy

HEADS = {"width": 64, "num_key_value_heads": 1}


def policies(monkeypatch, **compute):
    """One policy twice: as it is, and with transformers' own attention."""
    model = small_model(**HEADS)
    grouped = small_policy(model=copy.deepcopy(model), **compute)
    monkeypatch.setattr(rftlab.llm.policy.policy, "group_heads", lambda model: None)
    return grouped, small_policy(model=model, **compute)


def sampled(policy):
    """Responses to prompts of two lengths, so that there is a mask."""
    return HFEngine(policy, (2,)).sample([(3, 4, 5), (6, 7)], np.arange(2), np.full(2, 3), Draws(0, ROLLOUT, 0), 1.0, 6)


@pytest.mark.parametrize(
    ("dtype", "resolution"), [(torch.float64, 2**-52), (torch.float32, 2**-23), (torch.bfloat16, 2**-7)]
)
def test_attention_is_that_of_a_copy_for_every_head_to_rounding(dtype, resolution):
    """To a few units in the last place of values of size 1; which bits, no library promises."""
    random = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(3, heads, length, 16, generator=random).to(dtype) for heads, length in ((6, 5), (2, 9), (2, 9))
    )
    mask = torch.rand(3, 1, 5, 9, generator=random) < 0.7
    mask[..., 0] = True
    module = SimpleNamespace(num_key_value_groups=3, is_causal=True, training=False)
    with torch.no_grad():
        found, _ = grouped_attention(module, query, key, value, mask)
        expected, _ = sdpa_attention_forward(module, query, key, value, mask)
    torch.testing.assert_close(found, expected, rtol=0, atol=16 * resolution)
    wrong, _ = grouped_attention(module, query, key.flip(1), value, mask)
    assert (found - wrong).abs().max() > 1000 * 2**-23


@pytest.mark.parametrize(("precision", "resolution"), [("fp32", 2**-23), ("bf16", 2**-7)])
def test_a_policy_reads_and_samples_as_with_a_copy_for_every_head(precision, resolution, monkeypatch):
    """Its log-probabilities to rounding, of given responses and of those that each samples; gradients need the copy,
    and are the same bits."""
    grouped, repeated = policies(monkeypatch, precision=precision)
    assert grouped.model.config._attn_implementation == GROUPED and repeated.model.config._attn_implementation == "sdpa"
    responses = random_responses(0)
    close = {"rtol": 0, "atol": 32 * resolution}
    assert grouped.sharing == repeated.sharing
    np.testing.assert_allclose(grouped.all_log_probs(responses), repeated.all_log_probs(responses), **close)
    own = sampled(grouped)
    np.testing.assert_allclose(own.logp, repeated.all_log_probs(own.responses), **close)
    gradients = []
    for policy in (grouped, repeated):
        policy.log_probs(responses, np.arange(15))[0].sum().backward()
        gradients.append([parameter.grad for _, parameter in policy.named_parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_nothing_is_copied_for_every_head_while_sampling(monkeypatch):
    seen, attend = [], torch.nn.functional.scaled_dot_product_attention

    def watched(query, key, value, *rest, **more):
        seen.append((query.shape[1], key.shape[1]))
        return attend(query, key, value, *rest, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    sampled(policies(monkeypatch)[0])
    assert set(seen) == {(2, 1)}


def test_a_model_that_attends_otherwise_is_left_alone():
    model = LlamaForCausalLM._from_config(small_model(**HEADS).config, attn_implementation="eager")
    assert small_policy(model=model).model.config._attn_implementation == "eager"
