"""Heads that share keys and values: the same bits as with a copy for every head, in what samples and in what reads, and no copy."""

import copy

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import llm.policy
from llm.attention import GROUPED
from llm.random import ROLLOUT
from llm.rollouts import Draws, HFEngine
from tests.tiny_models import random_responses, small_model, small_policy

HEADS = {"width": 64, "num_key_value_heads": 1}


def policies(monkeypatch, **compute):
    """One policy twice: as it is, and with transformers' own attention."""
    model = small_model(**HEADS)
    grouped = small_policy(model=copy.deepcopy(model), **compute)
    monkeypatch.setattr(llm.policy, "group_heads", lambda model: None)
    return grouped, small_policy(model=model, **compute)


def sampled(policy):
    """Responses to prompts of two lengths, so that there is a mask."""
    return HFEngine(policy, (2,)).sample([(3, 4, 5), (6, 7)], np.arange(2), np.full(2, 3), Draws(0, ROLLOUT, 0), 1.0, 6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bits_are_those_of_a_copy_for_every_head(precision, monkeypatch):
    grouped, repeated = policies(monkeypatch, precision=precision)
    assert grouped.model.config._attn_implementation == GROUPED and repeated.model.config._attn_implementation == "sdpa"
    one, other = sampled(grouped), sampled(repeated)
    assert (one.responses.tokens == other.responses.tokens).all() and (one.logp == other.logp).all()
    responses = random_responses(0)
    assert grouped.sharing == repeated.sharing and (grouped.all_log_probs(responses) == repeated.all_log_probs(responses)).all()
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
