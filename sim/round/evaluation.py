"""Pass@1 of a policy on a set of contexts, exact or from one sampled response of each."""

import numpy as np

from rftlab.shared.jit import jit
from rftlab.sim.lanes.random import EVALUATION, uniforms
from rftlab.sim.policy.common import base_of
from rftlab.sim.policy.probabilities import find_formats
from rftlab.sim.policy.spelling import correct_probability
from rftlab.sim.round.plain import CHUNK, find_logits


@jit
def pass_at_1(contexts, plan, theta, work, round_index, sampled):
    """Mean probability that a response is correct, over all contexts; or the mean of one sampled response of each.
    nan where a probability is."""
    n, chance, base = contexts.base_format.shape[0], 0.0, base_of(plan, theta)
    for start in range(0, n, CHUNK):
        batch = np.arange(start, min(start + CHUNK, n))
        find_logits(contexts, plan, theta, batch, base, work)
        find_formats(contexts, plan, theta, batch, base.kept, work)
        if sampled:
            uniforms(plan.key, round_index, batch, np.int64(1), EVALUATION, work.uniform)
        for row in range(batch.shape[0]):
            p = work.formed[row] * correct_probability(plan, work.logits, row, contexts.correct[batch[row]])
            chance += (1.0 if work.uniform[0, row] < p else 0.0 * p) if sampled else p
    return chance / n
