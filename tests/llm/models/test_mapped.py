"""Weights in a mapped file: equal bits, memory that comes and goes, and a reference that lives in it."""

import ctypes
import subprocess
import sys
import tempfile

import pytest
import torch

from rftlab.llm.policy.policy import ALIGNMENT, Frozen, mapped_copies
from rftlab.shared.plumbing.errors import UserError
from tests.support.estimators.vectors import ROOT
from tests.support.trainer.tiny_models import random_responses, small_policy

RESIDENT = """
import mmap, re, torch
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
