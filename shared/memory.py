"""Keep the memory of a run: a moving average of each context's rewards, a window of the most recent ones, and the
coefficient of an entropy bonus with a target. A checkpoint holds them as plain arrays.

The moving average serves as a baseline, or as an estimate of a context's difficulty. sums (n_contexts + 1, 2):
discounted sum of rewards and number of rewards of each context; the last row is for all contexts together.

A replay window holds the most recent rewards of a context, the current ones included, and only feeds the baseline set;
its rollouts are never trained on again. Rewards enter before windows are read, so a window always holds the current
rewards (unless more than `size` arrive at once).
"""

from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import check, check_labels
from rftlab.shared.plumbing.jit import entry, jit
from rftlab.shared.plumbing.pool import Pool


def empty_averages(n_contexts: int) -> np.ndarray:
    """Return moving averages without any reward, (n_contexts + 1, 2)."""
    return np.zeros((n_contexts + 1, 2))


@jit
def add_into(sums, context, decay, rewards, start, stop):
    """Add a visit of a context: earlier rewards keep `decay` of their weight, and rewards[start:stop] have weight 1."""
    for row in (context, sums.shape[0] - 1):
        # Sum and count decay alike, so that their ratio is a mean in which recent visits weigh more.
        sums[row, 0] *= decay
        sums[row, 1] *= decay
        for i in range(start, stop):
            sums[row, 0] += rewards[i]
        sums[row, 1] += stop - start


@jit
def read_average(sums, context):
    """Return the moving average of a context, or of all contexts if it was never seen, or 0 if none was."""
    for row in (context, sums.shape[0] - 1):
        if sums[row, 1] > 0.0:
            return sums[row, 0] / sums[row, 1]
    return 0.0


@jit
def estimated_pass_rate(sums, context):
    """Return a context's estimated pass rate: the average with one success and one failure added, or 1/2 if it was
    never seen. It is clipped to 0 .. 1, because penalties can move rewards beyond."""
    return min(max((sums[context, 0] + 1.0) / (sums[context, 1] + 2.0), 0.0), 1.0)


def difficulty_within(sums: np.ndarray, context: int, low: float, high: float) -> float:
    """Return `estimated_pass_rate` for rewards from `low` to `high`: the average, rescaled to 0 .. 1.

    p (1 - p) (high - low)^2 is the largest variance that rewards of that mean and that range can have.
    """
    total, count = sums[context]
    return float(min(max(((total - count * low) / (high - low) + 1.0) / (count + 2.0), 0.0), 1.0))


def read_averages(sums: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Return baselines (n,) of contexts (n,), before the rewards of this visit are added."""
    contexts = np.asarray(contexts, dtype=np.int64)
    check_labels("contexts", contexts, len(sums) - 1)
    return np.array([read_average(sums, context) for context in contexts], dtype=np.float64)


def add(sums: np.ndarray, contexts: np.ndarray, rewards: np.ndarray, decay: float) -> None:
    """Add one visit of each context (n,) with its rewards (n, K)."""
    contexts, rewards = np.asarray(contexts, dtype=np.int64), np.asarray(rewards, dtype=np.float64)
    check(
        rewards.ndim == 2 and rewards.shape[0] == contexts.size,
        f"rewards {rewards.shape} must have one row per context ({contexts.size})",
    )
    check(0 <= decay <= 1, f"decay = {decay}; allowed: 0 to 1")
    check_labels("contexts", contexts, len(sums) - 1)
    for context, row in zip(contexts, rewards, strict=True):
        add_into(sums, context, decay, row, 0, row.size)


class Windows(NamedTuple):
    """Replay windows of all contexts: ring buffers of rewards (n_contexts, size), and the number of rewards ever pushed
    (n_contexts,); the next one is written to slot pushed % size."""

    rewards: np.ndarray
    pushed: np.ndarray


def empty_windows(n_contexts: int, size: int) -> Windows:
    """Return empty windows of `size` >= 1 rewards for each of `n_contexts` contexts."""
    check(size >= 1, f"window size = {size!r}; allowed: 1 or more")
    return Windows(np.zeros((n_contexts, size)), np.zeros(n_contexts, dtype=np.int64))


@entry(inline="always")
def push_into(windows, context, rewards, start, stop):
    """Append rewards[start:stop] to the window of a context, in order; the oldest leaves when the window is full.

    It is inlined, as is `window_into`, because a call would pass every number of every array, which takes longer than
    copying a short window.
    """
    held, new = windows.rewards[context], rewards[start:stop]
    size = held.shape[0]
    slot = windows.pushed[context] % size
    for i in range(new.shape[0]):
        held[slot] = new[i]
        # The comparison replaces the remainder of a division, which takes longer than the store.
        slot = slot + 1 if slot + 1 < size else 0
    windows.pushed[context] += new.shape[0]


@entry(inline="always")
def window_into(windows, context, out, start):
    """Copy a context's window, oldest first, to out[start:], and return the end. Each slot is computed from its own
    index, so that no copy waits for another."""
    held, pushed = windows.rewards[context], windows.pushed[context]
    size = np.uint64(held.shape[0])
    # Before the window is full its oldest reward lies in slot 0; afterwards in the slot that comes next.
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
    """Return the baseline sets of groups with contexts (G,): their windows, oldest reward first."""
    contexts = np.asarray(contexts, dtype=np.int64)
    check_labels("contexts", contexts, windows.pushed.shape[0])
    size = windows.rewards.shape[1]
    starts = np.concatenate([[0], np.cumsum(np.minimum(windows.pushed[contexts], size))]).astype(np.int64)
    rewards = np.empty(starts[-1])
    for g, context in enumerate(contexts):
        window_into(windows, context, rewards, starts[g])
    return Pool(rewards, starts)


def empty_bonus(coefficient: float, target: float) -> np.ndarray:
    """Return the state (2,) of an entropy bonus before the first update: its coefficient, and 1 where it is in force. A
    bonus with a target is in force only after an update at an entropy that is not above the target."""
    return np.array([coefficient, float(target == 0)])


@jit
def move_bonus(bonus, target, step, entropy):
    """Move the coefficient after an update whose tokens have the mean entropy `entropy` (nats): up by `step` at or
    below the target, down above it, between 0 and 1. Without a target nothing moves.

    Source: Skywork-OR1 (arXiv 2505.22312, section 4), with the bounds of TRL 1.16, which also lets an update decide
    about the next one.
    """
    if target > 0.0:
        bonus[1] = 1.0 if entropy <= target else 0.0
        bonus[0] = min(max(bonus[0] + (step if entropy <= target else -step), 0.0), 1.0)
