"""What the base policy knew fades as the parameters move away from it (docs/simulator.md says why). Off by default."""

import math

import numpy as np

from rftlab.shared.plumbing.jit import entry

_MIN = 1e-6
"""The least factor: arms that do not exist have a logit of -1e30, which must stay out of reach."""


@entry
def base_logit_scale(forgetting, theta, n_common=0):
    """exp(-forgetting |W|^2), at least 1e-6: the factor of the base policy's logits and format logits.

    theta: W, flat, then n_common parameters (`rftlab.sim.policy.common`) and that of the format; forgetting:
    `Linear.forgetting` over the number of arms, so that |W|^2 / A is the mean square of the change of a logit.
    """
    if forgetting == 0.0:
        return 1.0
    moved = 0.0
    for i in range(theta.shape[0] - 1 - n_common):
        moved += np.float64(theta[i]) * np.float64(theta[i])
    return max(math.exp(-forgetting * moved), _MIN)
