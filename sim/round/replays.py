"""Keep right responses that join the groups of later visits, with their log-probabilities when they were sampled."""

from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.round.ragged import INT, MARK, NUMBER, TOKEN

COLUMNS = (TOKEN.old_logp, TOKEN.ref_logp, TOKEN.sampler_logp)


class ReplayBuffer(NamedTuple):
    """Ring buffers of at most m right responses for each of n contexts; m is 0 where a run replays none."""

    pushed: np.ndarray
    """(n,) number of responses ever pushed; the next one is written to slot pushed % m."""
    arms: np.ndarray
    """(n, m, T)"""
    ints: np.ndarray
    """(n, m, 2) format and number of tokens."""
    reward: np.ndarray
    """(n, m) rewards before penalties, which are computed again."""
    marks: np.ndarray
    """(n, m, tokens, 2) directions and values of style tokens."""
    logp: np.ndarray
    """(n, m, tokens, 3) log-probabilities under the trainer's, the base and the sampler's policy of their round."""


def empty_replays(n: int, m: int, answer_tokens: int, longest: int) -> ReplayBuffer:
    """Return an empty buffer; longest: largest number of tokens of a response."""
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
    """Push the responses first .. last-1 of a context with a reward of at least 1."""
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
    """Copy a context's buffered responses, oldest first, to its row behind response i - 1; return the end of the
    copy."""
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
