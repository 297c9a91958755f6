"""Draw counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011), with the seed as key and the draw as counter.

A uniform depends only on (seed, stream, round, prompt, rollout, position). So there is no generator's state for a
checkpoint to store, and neither the split of a batch nor the order of work changes a token's numbers. The problems that
are evaluated are the same for every run.
"""

import numpy as np

ROLLOUT, EVALUATION, MASKING, PROBE = range(4)
"""Streams of random numbers: for training, evaluations, masks that draw, and measurements of the base model."""
_MULTIPLY = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(seed: int, counters: np.ndarray) -> np.ndarray:
    """Return four random words of 32 bits for each of n counters: (4, n) uint64 to (4, n) uint64, all below 2^32; seed
    0 .. 2^64 - 1."""
    x0, x1, x2, x3 = np.asarray(counters, dtype=np.uint64)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = _MULTIPLY[0] * x0, _MULTIPLY[1] * x2
        x0, x1, x2, x3 = (p1 >> _HIGH) ^ x1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _HIGH) ^ x3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3])


def uniforms(
    seed: int, stream: int, round_index: int, prompts: np.ndarray, rollouts: np.ndarray, first: int, count: int
) -> np.ndarray:
    """Return uniforms (n, count) in [0, 1) with 53 bits, for positions first .. first+count-1 of rollouts (n,) of
    prompts (n,)."""
    n = len(prompts)
    counters = np.empty((4, n, count), dtype=np.uint64)
    counters[0], counters[1], counters[2] = round_index, np.asarray(prompts)[:, None], np.asarray(rollouts)[:, None]
    counters[3] = np.arange(first, first + count, dtype=np.uint64) + np.uint64(stream << 28)
    words = philox(seed, counters.reshape(4, -1))
    # 27 bits of one word and 26 of another, as in the doubles of MT19937 and NumPy.
    return (((words[0] >> np.uint64(5)) * 67108864.0 + (words[1] >> np.uint64(6))) / 9007199254740992.0).reshape(
        n, count
    )


def batch_rows(n: int, size: int, seed: int, index: int) -> np.ndarray:
    """Return the indices (size,) of batch `index`: in the order of the epoch, reshuffled for each epoch, without its
    last partial batch. No state is kept between batches."""
    per_epoch = n // size
    order = np.random.Generator(
        np.random.Philox(key=np.array([seed, index // per_epoch], dtype=np.uint64))
    ).permutation(n)
    at = index % per_epoch * size
    return order[at : at + size]


def subset(n: int, size: int) -> np.ndarray:
    """Return the problems that are evaluated, the same for every run and every seed."""
    return np.sort(np.random.Generator(np.random.Philox(n)).permutation(n)[:size])
