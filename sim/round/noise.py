"""What makes a round's gradient noisy besides the luck of its rollouts: nuisance that goes with surprise, interference
between contexts.

Both are off by default (docs/simulator.md says why they are here).
"""

import numpy as np

from rftlab.shared.jit import kernel
from rftlab.sim.lanes.random import INTERFERENCE, uniforms
from rftlab.sim.policy.products import backward
from rftlab.sim.policy.spelling import squared_length


@kernel
def squared_weights(plan, work, row, first):
    """sum_k w_k^2 v_k over a context's rollouts, the first of them `first` among the sampled; v = 1 - q + q |e - pi|^2
    is the variance of a rollout's nuisance relative to plan.nuisance^2, q the surprise, |e - pi|^2 = sum over its
    tokens of 1 - 2 pi_a + sum_b pi_b^2.
    """
    total, tokens = 0.0, len(plan.token_starts)
    sharpness = squared_length(work.probs, row)
    for j in range(plan.rollouts):
        distance = tokens + sharpness
        for i in range((first + j) * tokens, (first + j + 1) * tokens):
            distance -= 2.0 * work.probs[row, work.arm[i]]
        variance = (
            1.0 - plan.surprise + plan.surprise * max(distance, 0.0)
        )  # a sure response's distance may round to below 0
        total += work.weight[row * plan.rollouts + j] ** 2 * variance
    return total


@kernel
def interfere(contexts, plan, round_index, batch, rows, work, grad):
    """Add plan.interference x_j s_i^T to the gradient for every context i of the batch, s_i its score, j a random
    context of its round.

    Overwrites the scores and `rows`, the padded batch.
    """
    uniforms(plan.key, round_index, batch, np.int64(1), INTERFERENCE, work.uniform)
    for row in range(batch.shape[0]):
        rows[row] = int(work.uniform[0, row] * contexts.base_format.shape[0])
        for a in range(plan.n_arms):
            work.scores[row, a] *= plan.interference
    backward(contexts, rows, work.scores, grad)
