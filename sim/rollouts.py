"""The rollouts of a round: answers and formats sampled and scored, with their log-probabilities. `work` is a `sim.rounds.Work`."""

import numpy as np

from shared.jit import kernel
from sim.policy import cumulate
from sim.random import ROLLOUT, uniforms
from sim.spelling import pick


@kernel
def respond(contexts, plan, row, context, draw, at, count, work):
    """Sample and score `count` rollouts of a context as those from `at` on; work.cdf holds its cumulative probabilities, `draw` is their first uniform.

    Slices, because an index that may be below 0 costs two instructions more at each of the arrays.
    """
    tokens, correct = len(plan.token_starts), contexts.correct[context]
    coins, turns = work.uniform[0, draw : draw + count * tokens], work.uniform[1, draw : draw + count * tokens]
    arms, forms, rewards = work.arm[at * tokens : (at + count) * tokens], work.form[at : at + count], work.reward[at : at + count]
    old_logp, ref_logp = work.old_logp[at : at + count], work.ref_logp[at : at + count]
    logits, base_logits = work.logits[row], contexts.base_logits[context]
    malformed, well_formed, base_format_logp = work.format_logp[0, row], work.format_logp[1, row], contexts.base_format_logp[context]
    formed, offset, base_offset = work.formed[row], -work.lse[row], -contexts.base_lse[context]
    for j in range(count):
        form, right, logp, base_logp = int(coins[j * tokens] < formed), np.uint32(1), offset, base_offset
        for s in range(tokens):
            arm = pick(plan, work.cdf, s, turns[j * tokens + s])
            arms[j * tokens + s] = arm
            right &= correct >> np.uint32(arm)
            logp += logits[arm]
            base_logp += base_logits[arm]
        forms[j] = form
        rewards[j] = form * (right & np.uint32(1))
        old_logp[j] = logp + (well_formed if form else malformed)
        ref_logp[j] = base_logp + base_format_logp[form]


@kernel(forceinline=True)
def roll_out(contexts, plan, round_index, batch, work):
    """Sample and score K + M rollouts of each context, with their log-probabilities under the policy and the base policy."""
    n, k, m, tokens = batch.shape[0], plan.rollouts, plan.support, len(plan.token_starts)
    uniforms(plan.key, round_index, batch, (k + m) * tokens, ROLLOUT, work.uniform)
    for row in range(n):
        cumulate(work.probs, row, work.cdf)
        draw = row * (k + m) * tokens
        respond(contexts, plan, row, batch[row], draw, row * k, k, work)
        if m > 0:
            respond(contexts, plan, row, batch[row], draw + k * tokens, n * k + row * m, m, work)
