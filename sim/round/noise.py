"""What makes a round's gradient noisy besides the luck of its rollouts: nuisance that goes with surprise, interference
between contexts.

Both are off by default (docs/simulator.md says why they are here).
"""

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.random import INTERFERENCE, uniforms
from rftlab.sim.policy.products import backward
from rftlab.sim.policy.spelling import squared_length


@kernel
def squared_weights(plan, probs, row, weights, arms):
    """sum_k w_k^2 v_k over a context's rollouts, weights (K,), arms (K T,); v = 1 - q + q |e - pi|^2 is the variance of
    a rollout's nuisance relative to plan.nuisance^2, q the surprise, |e - pi|^2 = sum over its tokens of 1 - 2 pi_a +
    sum_b pi_b^2.
    """
    total, tokens = 0.0, len(plan.token_starts)
    sharpness = squared_length(probs, row)
    for k in range(weights.shape[0]):
        distance = tokens + sharpness
        for i in range(k * tokens, (k + 1) * tokens):
            distance -= 2.0 * probs[row, arms[i]]
        variance = (
            1.0 - plan.surprise + plan.surprise * max(distance, 0.0)
        )  # a sure response's distance may round to below 0
        total += weights[k] ** 2 * variance
    return total


@kernel
def find_others(contexts, plan, round_index, batch, uniform, others):
    """Fill others (n,) with the context that each of a batch interferes with in a round. uniform: scratch, as of
    `uniforms`."""
    uniforms(plan.key, round_index, batch, np.int64(1), INTERFERENCE, uniform)
    for row in range(batch.shape[0]):
        others[row] = int(uniform[0, row] * contexts.base_format.shape[0])


@kernel
def interfere(contexts, plan, round_index, batch, rows, scores, uniform, grad):
    """Add plan.interference x_j s_i^T to the gradient for every context i of the batch, s_i its score, j a random
    context of its round.

    Overwrites the scores and `rows`, the padded batch.
    """
    find_others(contexts, plan, round_index, batch, uniform, rows)
    for row in range(batch.shape[0]):
        for a in range(plan.n_arms):
            scores[row, a] *= plan.interference
    backward(contexts, rows, scores, grad)
