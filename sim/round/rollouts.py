"""The rollouts of a round: answers and formats sampled and scored, with their log-probabilities. `work` is a
`rftlab.sim.state.Work`."""

import numpy as np

from rftlab.shared.jit import kernel
from rftlab.sim.lanes.random import ROLLOUT, uniforms
from rftlab.sim.policy.policy import cumulate
from rftlab.sim.policy.spelling import pick

N = np.uintp


@kernel(forceinline=True)
def respond(contexts, plan, row, context, draw, at, count, work):
    """Sample and score `count` rollouts of a context as those from `at` on; work.cdf holds its cumulative
    probabilities, `draw` is their first uniform.

    Unsigned indices, because those that may be below 0 cost two instructions more at each of the arrays.
    """
    row, context, tokens = N(row), N(context), len(plan.token_starts)
    correct, formed, offset, base_offset = (
        contexts.correct[context],
        work.formed[row],
        -work.lse[row],
        -contexts.base_lse[context],
    )
    malformed, well_formed = work.format_logp[0, row], work.format_logp[1, row]
    base_malformed, base_well_formed = contexts.base_format_logp[context, 0], contexts.base_format_logp[context, 1]
    for j in range(count):
        first, i = N(draw + j * tokens), N(at + j)
        form, right, logp, base_logp = work.uniform[0, first] < formed, np.uint32(1), offset, base_offset
        for s in range(tokens):
            arm = N(pick(plan, work.cdf, s, work.uniform[1, first + N(s)]))
            work.arm[i * N(tokens) + N(s)] = arm
            right &= correct >> np.uint32(arm)
            logp += work.logits[row, arm]
            base_logp += contexts.base_logits[context, arm]
        work.form[i] = form
        work.reward[i] = right & np.uint32(form)
        work.old_logp[i] = logp + (well_formed if form else malformed)
        work.ref_logp[i] = base_logp + (base_well_formed if form else base_malformed)


@kernel(inline="always")
def roll_out(contexts, plan, round_index, batch, work):
    """Sample and score K + M rollouts of each context, with their log-probabilities under the policy and the base
    policy."""
    n, k, m, tokens = batch.shape[0], plan.rollouts, plan.support, len(plan.token_starts)
    uniforms(plan.key, round_index, batch, (k + m) * tokens, ROLLOUT, work.uniform)
    for row in range(n):
        cumulate(work.probs, row, work.cdf)
        draw = row * (k + m) * tokens
        respond(contexts, plan, row, batch[row], draw, row * k, k, work)
        if m > 0:
            respond(contexts, plan, row, batch[row], draw + k * tokens, n * k + row * m, m, work)
