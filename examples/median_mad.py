"""An estimator of your own: `rftlab suite examples/median_mad.py:median_mad grpo`."""

import numpy as np

import rftlab as rl


@rl.advantage("median_mad", batched=True)
def median_mad(rewards, pool):
    """Return advantages (G, K) of rewards (G, K): distance to the group's median, over its median deviation."""
    distance = rewards - np.median(pool, axis=1, keepdims=True)
    spread = np.median(np.abs(pool - np.median(pool, axis=1, keepdims=True)), axis=1, keepdims=True)
    return distance / (spread + 0.5)
