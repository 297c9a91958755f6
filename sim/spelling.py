"""Answers of several tokens: each token is a softmax of its own over its part of the lanes, and an answer is right where all its tokens are.

Lanes of token s are s A .. s A + A - 1, A the arms of a token. With one token this is the softmax of sim/policy.py, which is faster.
"""

import math

import numpy as np

from shared.jit import jit


@jit
def softmax_by_token(logits, row, tokens, n_arms, probs):
    """Fill probs[row] from logits[row], token by token; returns the sum of their log-normalisers."""
    width, total = n_arms // tokens, 0.0
    for s in range(tokens):
        low, high = s * width, (s + 1) * width
        top = logits[row, low]
        for a in range(low + 1, high):
            top = max(top, logits[row, a])
        norm = 0.0
        for a in range(low, high):
            probs[row, a] = math.exp(logits[row, a] - top)
            norm += probs[row, a]
        for a in range(low, high):
            probs[row, a] /= norm
        total += top + math.log(norm)
    return total


@jit
def pick_by_token(probs, row, token, width, u):
    """Lane of a token whose interval of the cumulative probabilities holds u in [0, 1)."""
    low = token * width
    lane, running = low, probs[row, low]
    while running <= u and lane < low + width - 1:
        lane += 1
        running += probs[row, lane]
    return lane


@jit
def correct_by_token(logits, row, tokens, n_arms, correct):
    """Probability that every token of an answer is one whose bit is set in `correct`."""
    width, chance = n_arms // tokens, 1.0
    for s in range(tokens):
        low, high = s * width, (s + 1) * width
        top = logits[row, low]
        for a in range(low + 1, high):
            top = max(top, logits[row, a])
        norm = right = 0.0
        for a in range(low, high):
            e = math.exp(logits[row, a] - top)
            norm += e
            if (correct >> np.uint32(a)) & np.uint32(1):
                right += e
        chance *= right / norm
    return chance
