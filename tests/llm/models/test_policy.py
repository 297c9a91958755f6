"""Passes of a policy: log-probabilities from hidden states against plain autograd, heads that share keys and values,
and the weights of a reference in a mapped file."""

import copy
import ctypes
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import rftlab.llm.policy.policy
from rftlab.llm.engines.rollouts import Draws, HFEngine
from rftlab.llm.policy.head import token_log_probs
from rftlab.llm.policy.policy import ALIGNMENT, GROUPED, Frozen, grouped_attention, mapped_copies
from rftlab.llm.random import ROLLOUT
from rftlab.shared.plumbing.errors import UserError
from tests.support.estimators.vectors import ROOT
from tests.support.trainer.tiny_models import random_responses, small_model, small_policy

TOKENS, WIDTH, VOCABULARY = 23, 8, 50


def case(dtype=torch.float64, bias=True):
    """A head, hidden states and targets."""
    torch.manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=dtype)
    return head, torch.randn(TOKENS, WIDTH, dtype=dtype, requires_grad=True), torch.randint(0, VOCABULARY, (TOKENS,))


def plain(head, hidden, targets, temperature):
    """The same from all logits at once, which autograd differentiates."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    logp = torch.log_softmax(head(hidden).to(wide) / temperature, -1)
    return logp.gather(-1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def gradients(head, hidden, logp, entropy):
    """Those of a sum with a weight for each token."""
    weights = torch.linspace(-1, 2, TOKENS, dtype=logp.dtype)
    total = (weights * logp).sum() if entropy is None else (weights * logp).sum() + (weights.flip(0) * entropy).sum()
    wanted = [value for value in (hidden, head.weight, head.bias) if value is not None and value.requires_grad]
    return torch.autograd.grad(total, wanted)


@pytest.mark.parametrize("rows", [1, 5, 23, 1000])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_plain_autograd(rows, entropy, bias):
    head, hidden, targets = case(bias=bias)
    logp, entropies = token_log_probs(head, hidden, targets, 0.7, rows, entropy)
    wanted, wanted_entropy = plain(head, hidden, targets, 0.7)
    torch.testing.assert_close(logp, wanted, rtol=1e-12, atol=1e-13)
    assert (entropies is not None) == entropy
    if entropy:
        torch.testing.assert_close(entropies, wanted_entropy, rtol=1e-12, atol=1e-13)
    expected = gradients(head, hidden, wanted, wanted_entropy if entropy else None)
    for a, b in zip(gradients(head, hidden, logp, entropies), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("rows", [5, 1000])
def test_sums_of_squares_come_without_a_gradient(rows):
    head, hidden, targets = case()
    logp, squares = token_log_probs(head, hidden, targets, 0.7, rows, squares=True)
    wanted = torch.softmax(head(hidden) / 0.7, -1).square().sum(-1)
    torch.testing.assert_close(squares, wanted, rtol=1e-12, atol=1e-13)
    assert logp.requires_grad and not squares.requires_grad
    expected = gradients(head, hidden, plain(head, hidden, targets, 0.7)[0], None)
    for a, b in zip(gradients(head, hidden, logp, None), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


def test_a_frozen_head_gets_no_gradient_and_its_input_does():
    head, hidden, targets = case()
    head.requires_grad_(False)
    logp, _ = token_log_probs(head, hidden, targets, 0.7, 5)
    wanted, _ = plain(head, hidden, targets, 0.7)
    mine, expected = (gradients(head, hidden, column, None)[0] for column in (logp, wanted))
    torch.testing.assert_close(mine, expected, rtol=1e-11, atol=1e-13)


def test_under_autocast_products_are_narrow_and_sums_are_not():
    head, hidden, targets = case(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logp, _ = token_log_probs(head, hidden, targets, 0.7, 5)
        wanted, _ = plain(head, hidden, targets, 0.7)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp, wanted, rtol=1e-5, atol=1e-5)
    for a, b in zip(gradients(head, hidden, logp, None), gradients(head, hidden, wanted, None), strict=True):
        assert a.dtype == torch.float32 and float((a - b).norm() / b.norm()) < 0.02


def test_never_more_logits_than_a_chunk(monkeypatch):
    seen, linear = [], functional.linear
    monkeypatch.setattr(functional, "linear", lambda states, *rest: seen.append(len(states)) or linear(states, *rest))
    head, hidden, targets = case()
    logp, _ = token_log_probs(head, hidden, targets, 1.0, 5)
    logp.sum().backward()
    assert max(seen) == 5 and sum(seen) == 2 * TOKENS


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


RESIDENT = """
import ctypes, mmap, re, torch
from pathlib import Path
from rftlab.llm.meter import trim_heap
from rftlab.llm.policy.policy import mapped_copies

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
"""
MAPPED = """
memory, copies = mapped_copies([torch.ones(8 << 20), torch.ones(8 << 20)])
seen = [resident()]
for _ in range(2):
    assert sum(float(tensor.sum()) for tensor in copies) == 16 << 20
    seen.append(resident())
    memory.madvise(mmap.MADV_DONTNEED)
    seen.append(resident())
print(*seen)
"""


def megabytes(program):
    """Resident memory of a process at the moments that a program names."""
    command = [sys.executable, "-c", RESIDENT + program]
    return map(float, subprocess.check_output(command, text=True, cwd=ROOT).split())


def test_copies_have_the_bits_shapes_and_alignment_of_what_they_copy():
    torch.manual_seed(0)
    narrow, number = torch.randn(7).to(torch.bfloat16), torch.tensor(2.5, dtype=torch.float64)
    tensors = [torch.randn(3, 5), narrow, number, torch.randn(4, 6).T]
    for copied, tensor in zip(mapped_copies(tensors)[1], tensors, strict=True):
        assert copied.dtype == tensor.dtype and torch.equal(copied, tensor) and copied.data_ptr() % ALIGNMENT == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_comes_with_use_and_goes_at_rest():
    new, first, rested, again, last = megabytes(MAPPED)
    assert first - new > 60 and again - rested > 60 and abs(rested - new) < 8 and abs(last - new) < 8  # of 64 MB


def test_a_reference_stays_as_the_policy_was_through_updates_and_rests():
    policy, responses = small_policy(), random_responses(0)
    before, reference = policy.all_log_probs(responses), Frozen(policy)
    with torch.no_grad():
        for _, parameter in policy.named_parameters():
            parameter.add_(0.1)
    for _ in range(2):
        assert (reference.all_log_probs(responses) == before).all()
        assert (policy.all_log_probs(responses) != before).any()
        reference.rest()
    assert not any(parameter.requires_grad for parameter in reference.model.parameters())


def test_tied_weights_stay_tied():
    model = small_policy().model
    model.lm_head.weight = model.model.embed_tokens.weight
    copied = Frozen(small_policy(model=model)).model
    assert copied.lm_head.weight is copied.model.embed_tokens.weight


def test_a_full_disk_is_one_line_that_names_the_remedy(monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(UserError, match=r"cannot be written: the disk is full; set TMPDIR to a folder with room"):
        mapped_copies([torch.ones(1)])


FREED = """
def free(megabytes):
    arrays = [torch.ones(25_000) for _ in range(10 * megabytes)]
    return torch.ones(25_000)  # behind them, so that the C library alone keeps what they leave

ctypes.CDLL(None).malloc_trim(0)  # what the imports freed would else be used first
seen, held = [resident()], []
for megabytes in (20, 300):
    held.append(free(megabytes))
    seen.append(resident())
    trim_heap()
    seen.append(resident())
print(*seen)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another C library than glibc, or an old one")
def test_freed_memory_is_given_back_where_it_is_much():
    start, little, kept, much, rest = megabytes(FREED)
    assert little - start > 15 and abs(kept - little) < 2, "a little is not worth the time"
    assert much - start > 250 and rest - start < 50
