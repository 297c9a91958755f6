"""The buffer of right responses that join the groups of later visits, with what they were sampled with."""

from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.round.ragged import INT, MARK, NUMBER, TOKEN

COLUMNS = (TOKEN.old_logp, TOKEN.ref_logp, TOKEN.sampler_logp)


class ReplayBuffer(NamedTuple):
    """Right responses of n contexts, m each at most, in ring buffers; m is 0 where a run replays none."""

    pushed: np.ndarray
    """(n,) responses ever pushed, so slot pushed % m is next."""
    arms: np.ndarray
    """(n, m, T)"""
    ints: np.ndarray
    """(n, m, 2) format, tokens."""
    reward: np.ndarray
    """(n, m) before penalties, which are found again."""
    marks: np.ndarray
    """(n, m, tokens, 2) direction and value of style tokens."""
    logp: np.ndarray
    """(n, m, tokens, 3) under the trainer's, the base and the sampler's policy of their round."""


def empty_replays(n: int, m: int, answer_tokens: int, longest: int) -> ReplayBuffer:
    """No response yet; longest: tokens of a response at most."""
    room = (n if m else 1, m)
    return ReplayBuffer(
        np.zeros(room[0], dtype=np.int64),
        np.zeros((*room, answer_tokens), dtype=np.int64),
        np.zeros((*room, 2), dtype=np.int64),
        np.zeros(room),
        np.zeros((*room, longest, 2), dtype=np.int64),
        np.zeros((*room, longest, len(COLUMNS))),
    )


@kernel
def remember_right(replays, context, ragged, first, last):
    """Push the responses first .. last-1 of a context whose reward is at least 1."""
    starts, size, tokens = ragged.ints[INT.start], replays.reward.shape[1], replays.arms.shape[2]
    for i in range(first, last):
        if ragged.numbers[NUMBER.reward, i] < 1.0:
            continue
        slot, length = replays.pushed[context] % size, starts[i + 1] - starts[i]
        replays.pushed[context] += 1
        replays.reward[context, slot] = ragged.numbers[NUMBER.reward, i]
        replays.ints[context, slot, 0], replays.ints[context, slot, 1] = ragged.ints[INT.form, i], length
        for s in range(tokens):
            replays.arms[context, slot, s] = ragged.arms[i * tokens + s]
        for t in range(length):
            replays.marks[context, slot, t, 0] = ragged.marks[MARK.signs, starts[i] + t]
            replays.marks[context, slot, t, 1] = ragged.marks[MARK.style_token, starts[i] + t]
            for c in range(3):
                replays.logp[context, slot, t, c] = ragged.tokens[COLUMNS[c], starts[i] + t]


@kernel
def recall(replays, context, row, ragged, i):
    """Put the responses that a context has in the buffer, oldest first, into its row behind response i - 1; returns
    where they end."""
    starts, size, tokens = ragged.ints[INT.start], replays.reward.shape[1], replays.arms.shape[2]
    pushed = replays.pushed[context] if size > 0 else np.int64(0)
    for k in range(max(0, pushed - size), pushed):
        slot, start = k % size, starts[i]
        ragged.numbers[NUMBER.reward, i] = replays.reward[context, slot]
        ragged.ints[INT.form, i], ragged.ints[INT.group, i] = replays.ints[context, slot, 0], row
        for s in range(tokens):
            ragged.arms[i * tokens + s] = replays.arms[context, slot, s]
        starts[i + 1] = start + replays.ints[context, slot, 1]
        for t in range(starts[i + 1] - start):
            ragged.marks[MARK.response, start + t] = i
            ragged.marks[MARK.signs, start + t] = replays.marks[context, slot, t, 0]
            ragged.marks[MARK.style_token, start + t] = replays.marks[context, slot, t, 1]
            for c in range(3):
                ragged.tokens[COLUMNS[c], start + t] = replays.logp[context, slot, t, c]
        i += 1
    return i
