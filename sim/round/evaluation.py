"""Pass@1 of a policy on a set of contexts, strict and flexible, exact or from one sampled response of each."""

import numpy as np

from rftlab.shared.plumbing.jit import jit
from rftlab.sim.lanes.random import EVALUATION, uniforms
from rftlab.sim.policy.common import base_policy
from rftlab.sim.policy.probabilities import find_formats
from rftlab.sim.policy.spelling import correct_probability
from rftlab.sim.round.plain import CHUNK, find_logits


@jit
def pass_at_1(contexts, plan, theta, work, round_index, sampled):
    """Mean probability over all contexts that a response is correct, and that its answer is, in the format or not; or
    the means of one sampled response of each. nan where a probability is."""
    n, strict, flexible, base = contexts.base_format.shape[0], 0.0, 0.0, base_policy(plan, theta)
    for start in range(0, n, CHUNK):
        batch = np.arange(start, min(start + CHUNK, n))
        find_logits(contexts, plan, theta, batch, base, work)
        find_formats(contexts, plan, theta, batch, base, work)
        if sampled:
            uniforms(plan.key, round_index, batch, np.int64(1), EVALUATION, work.uniform)
        for row in range(batch.shape[0]):
            right = correct_probability(plan, work.logits, row, contexts.correct[batch[row]])
            p, u = work.formed[row] * right, work.uniform[0, row]
            strict += (1.0 if u < p else 0.0 * p) if sampled else p
            flexible += (1.0 if u < right else 0.0 * right) if sampled else right
    return strict / n, flexible / n
