"""The replay window: per context, the most recent rewards, the current ones included.

A window only feeds the baseline set; its rollouts are never trained on again. Rewards enter before windows are read, so
a window always holds the current rewards (unless more than `size` arrive at once). State is two plain arrays, so a
checkpoint is two arrays.
"""

from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import check, check_labels
from rftlab.shared.plumbing.jit import entry
from rftlab.shared.plumbing.pool import Pool


class Windows(NamedTuple):
    """rewards (n_contexts, size): ring buffers; pushed (n_contexts,): rewards ever pushed, so slot pushed % size is
    next."""

    rewards: np.ndarray
    pushed: np.ndarray


def empty_windows(n_contexts: int, size: int) -> Windows:
    """Windows of `size` >= 1 rewards for each of `n_contexts` contexts, all empty."""
    check(size >= 1, f"window size = {size!r}; allowed: 1 or more")
    return Windows(np.zeros((n_contexts, size)), np.zeros(n_contexts, dtype=np.int64))


@entry(inline="always")
def push_into(windows, context, rewards, start, stop):
    """Append rewards[start:stop] to the window of a context, in order; the oldest leaves when the window is full.

    Inlined, as is `window_into`: a call would pass every number of every array, which takes longer than a short window
    does.
    """
    held, new = windows.rewards[context], rewards[start:stop]
    size = held.shape[0]
    slot = windows.pushed[context] % size
    for i in range(new.shape[0]):
        held[slot] = new[i]
        slot = slot + 1 if slot + 1 < size else 0
    windows.pushed[context] += new.shape[0]


@entry(inline="always")
def window_into(windows, context, out, start):
    """Copy a context's window, oldest first, to out[start:]; return where it ends. Each slot from its own number, so
    that none waits for another."""
    held, pushed = windows.rewards[context], windows.pushed[context]
    size = np.uint64(held.shape[0])
    count, oldest = min(pushed, held.shape[0]), np.uint64(pushed % held.shape[0] if pushed > held.shape[0] else 0)
    copy = out[start : start + count]
    for i in range(count):
        slot = oldest + np.uint64(i)
        copy[i] = held[slot if slot < size else slot - size]
    return start + count


def push(windows: Windows, contexts: np.ndarray, rewards: np.ndarray) -> None:
    """Append rewards (n,) to the windows of contexts (n,), in order. Call it for a whole batch before any window is
    read."""
    contexts, rewards = np.asarray(contexts, dtype=np.int64), np.asarray(rewards, dtype=np.float64)
    check(
        contexts.shape == rewards.shape,
        f"contexts {contexts.shape} and rewards {rewards.shape} must have one entry per reward",
    )
    check_labels("contexts", contexts, windows.pushed.shape[0])
    for i, context in enumerate(contexts):
        push_into(windows, context, rewards, i, i + 1)


def window_pool(windows: Windows, contexts: np.ndarray) -> Pool:
    """Baseline sets of the groups whose contexts (G,) are given: their windows, oldest reward first."""
    contexts = np.asarray(contexts, dtype=np.int64)
    check_labels("contexts", contexts, windows.pushed.shape[0])
    size = windows.rewards.shape[1]
    starts = np.concatenate([[0], np.cumsum(np.minimum(windows.pushed[contexts], size))]).astype(np.int64)
    rewards = np.empty(starts[-1])
    for g, context in enumerate(contexts):
        window_into(windows, context, rewards, starts[g])
    return Pool(rewards, starts)
