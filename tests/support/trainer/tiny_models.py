"""Models small enough for a test: random Llamas, and random responses to random prompts."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rftlab.llm.config import Compute
from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.policy.policy import Policy

VOCABULARY = 20


def small_model(seed=0, width=16, vocabulary=VOCABULARY, spread=0.1, layers=2, **more):
    """A random Llama with weights large enough that its distributions are not flat."""
    sizes = {"vocab_size": vocabulary, "hidden_size": width, "intermediate_size": 2 * width}
    depth = {"num_hidden_layers": layers, "num_attention_heads": 2, "initializer_range": spread}
    config = LlamaConfig(**sizes, **depth, bos_token_id=1, eos_token_id=2, pad_token_id=0, **more)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def small_policy(seed=0, temperature=1.0, dtype=torch.float32, model=None, **compute):
    """A policy around a small model."""
    return Policy((model or small_model(seed)).to(dtype), Compute(**compute), temperature)


def random_responses(seed, groups=5, rollouts=3, longest=9):
    """Responses of 1 .. longest tokens to prompts of 2 .. 7."""
    rng = np.random.default_rng(seed)
    prompts = tuple(tuple(int(i) for i in rng.integers(3, VOCABULARY, rng.integers(2, 8))) for _ in range(groups))
    tokens, starts = packed(
        [rng.integers(2, VOCABULARY, rng.integers(1, longest + 1)).tolist() for _ in range(groups * rollouts)]
    )
    return Responses(prompts, np.repeat(np.arange(groups), rollouts), tokens, starts)


@pytest.fixture
def exact_norms(monkeypatch):
    """Norms and rotations of these models are float32 whatever their weights are, which would hide differences below
    1e-7."""
    monkeypatch.setattr(torch.Tensor, "to", _not_narrower(torch.Tensor.to))
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self.to(torch.float32))


def _not_narrower(to):
    def kept(self, *args, **more):
        narrower = self.dtype == torch.float64 and torch.float32 in (*args, *more.values())
        return self if narrower else to(self, *args, **more)

    return kept
