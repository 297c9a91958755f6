"""An estimator of your own: `rftlab suite median_mad grpo --plugins examples/median_mad.py`."""

import numpy as np

import rftlab as rl


@rl.advantage("median_mad")
def median_mad(rewards, pool):
    """Return advantages (K,) of a group's rewards (K,): distance to the median, over the median deviation."""
    middle = np.median(pool)
    return (rewards - middle) / (np.median(np.abs(pool - middle)) + 0.5)
