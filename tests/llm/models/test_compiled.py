"""Passes through torch.compile: the same numbers to rounding, with gradients and with adapters."""

import copy
import shutil

import numpy as np
import pytest
import torch
from torch._dynamo.exc import TorchDynamoException

from rftlab import LoRA, UserError
from rftlab.llm.policy.tensors import turned_off, with_adapters
from tests.support.trainer.tiny_models import random_responses, small_model, small_policy

compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs the C++ compiler g++")


def read(policy, responses):
    """Log-probabilities and entropies (T,), and the gradient of the sum of both."""
    logp, entropy = policy.log_probs(responses, np.arange(len(responses.group)), with_entropy=True)
    (logp.sum() + entropy.sum()).backward()
    gradient = torch.cat([weight.grad.flatten() for weight in policy.model.parameters() if weight.grad is not None])
    policy.model.zero_grad()
    return logp.detach(), entropy.detach(), gradient


@compiler
@pytest.mark.filterwarnings("ignore")
def test_numbers_are_those_of_plain_passes_before_and_after_an_update():
    model = with_adapters(small_model(layers=1), LoRA(2, 8.0), 0)
    plain, policy = small_policy(model=copy.deepcopy(model)), small_policy(model=model, compile=True)
    for groups in (6, 4):
        responses = random_responses(groups, groups=groups)
        for expected, found in zip(read(plain, responses), read(policy, responses), strict=True):
            assert expected.abs().max() > 0.1
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for each in (plain, policy):
            with torch.no_grad():
                for weight in (p for p in each.model.parameters() if p.requires_grad):
                    weight.add_(0.1)
    adapted = policy.all_log_probs(responses)
    with turned_off(policy.model), turned_off(plain.model):
        base = policy.all_log_probs(responses)
        np.testing.assert_allclose(base, plain.all_log_probs(responses), atol=1e-5)
    assert np.abs(base - adapted).max() > 0.01
    np.testing.assert_allclose(policy.all_log_probs(responses), plain.all_log_probs(responses), atol=1e-5)
    assert [name for name, _ in policy.weights()] == [name for name, _ in plain.weights()]


def test_a_model_that_torch_cannot_compile_is_one_line(monkeypatch):
    def broken(**arguments):
        raise TorchDynamoException("no compiler\nand a long trace")

    monkeypatch.setattr(torch, "compile", lambda body, dynamic: broken)
    with pytest.raises(UserError, match=r"compute.compile: no compiler; allowed: --compute.no-compile"):
        small_policy(compile=True).all_log_probs(random_responses(3))
