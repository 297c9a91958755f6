"""Compute the probabilities of arms and of the format from logits, for all contexts of a batch.

Logarithms and formats of 16 contexts are computed together in the linear environment (float32), one by one in the
tabular one (float64). `work` is a `rftlab.sim.state.Work` or a `rftlab.sim.state.View`.
"""

import math

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.simd import LANES, absolute, fma, load, maximum, splat, store
from rftlab.sim.lanes.vectormath import exp, log
from rftlab.sim.policy.policy import F
from rftlab.sim.policy.spelling import softmax
from rftlab.sim.policy.versions import for_linear


@kernel
def find_probabilities(contexts, plan, theta, batch, base, work):
    """Compute probabilities, log-normaliser and format of a batch's contexts from their logits. base: the result of
    `rftlab.sim.policy.common.base_policy`."""
    for r in range(batch.shape[0]):
        work.lse[r], work.norm[r] = softmax(plan, work.logits, r, work.probs)
    add_logs(work.norm, batch.shape[0], work.lse)
    find_formats(contexts, plan, theta, batch, base, work)


@kernel
def find_formats(contexts, plan, theta, batch, base, work):
    """Compute the log-probability of each format, and the probability of a well-formed response, for a batch's
    contexts. base: the result of `rftlab.sim.policy.common.base_policy`."""
    for r in range(batch.shape[0]):
        work.formed[r] = contexts.base_format[batch[r]]
    squash(work.formed, batch.shape[0], base.kept, plan.format_scale * theta[-1] - base.damage, work.format_logp)


@for_linear
def add_logs(norms, n, lse):
    """Add log norms[:n] to lse[:n]. Entries behind n, up to a multiple of LANES, are overwritten."""
    for r in range(0, n, LANES):
        store(lse, r, load(lse, r) + log(load(norms, r)))


@add_logs.for_tabular
def _(norms, n, lse):
    for r in range(n):
        lse[r] += math.log(norms[r])


@for_linear
def squash(logits, n, scale, shift, logp):
    """Replace logits[:n] by the probabilities sigmoid(h) with h = scale logits + shift, and fill logp (2, n or more)
    with the log-probabilities of 0 and 1. Entries behind n are overwritten as in `add_logs`."""
    zero, one = splat(F(0.0)), splat(F(1.0))
    for r in range(0, n, LANES):
        h = fma(load(logits, r), splat(F(scale)), splat(F(shift)))
        # log sigmoid(h) = min(h, 0) - log(1 + exp(-|h|)): neither overflows nor loses small probabilities.
        rest = log(one + exp(zero - absolute(h)))
        well = zero - maximum(zero - h, zero) - rest
        store(logp, r, zero - maximum(h, zero) - rest)
        store(logp, logp.shape[1] + r, well)
        store(logits, r, exp(well))


@squash.for_tabular
def _(logits, n, scale, shift, logp):
    for r in range(n):
        h = scale * logits[r] + shift
        small = math.exp(-abs(h))
        rest = math.log1p(small)
        logits[r] = (1.0 if h >= 0.0 else small) / (1.0 + small)
        logp[0, r], logp[1, r] = min(-h, 0.0) - rest, min(h, 0.0) - rest
