"""Rewards such as users write; `tests/llm/training/test_rewards.py` gives them to the trainer."""

import asyncio
import os
import re
import time

import numpy as np
import torch

PATTERN, SCALE = re.compile("[0-9]"), 0.25


def digits(responses):
    """A graded reward: a quarter for each digit."""
    return [SCALE * count(response) for response in responses]


def count(text):
    return len(PATTERN.findall(text))


def short(completions, **others):
    """As TRL calls it: responses to prompts that are text come as text."""
    assert {"prompts", "completion_ids", "truths", "responses"} <= others.keys()
    return [-float(len(completion)) for completion in completions]


def near(responses, truths):
    """A negative reward: minus the distance from the truth."""
    return -np.array([abs(len(r) - len(t)) for r, t in zip(responses, truths, strict=True)], dtype=np.float32)


def steps(pieces):
    """One number for each token: that of digits, minus one where it has no text."""
    return [[count(piece) - (piece == "") for piece in tokens] for tokens in pieces]


def cancelled(responses):
    raise asyncio.CancelledError("gone")


def moves(responses):
    """Works in another folder and with other settings of torch, and leaves them so."""
    os.chdir("/")
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    return digits(responses)


def sleeps(responses):
    while True:
        try:
            time.sleep(60)
        except Exception:
            continue
