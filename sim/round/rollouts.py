"""The rollouts of a fast round: answers drawn and scored, with their log-probabilities. `work` is a
`rftlab.sim.state.Work`."""

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.random import ROLLOUT, uniforms
from rftlab.sim.policy.policy import cumulate
from rftlab.sim.round.answers import N, add_logits, draw_answer


@kernel(forceinline=True)
def respond(contexts, plan, row, context, draw, at, count, work):
    """Sample and score `count` rollouts of a context as those from `at` on; work.cdf holds its cumulative
    probabilities, `draw` is their first uniform.

    What they have in common is read once, because stores into `work` would have it read again for each of them.
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
        i, first = N(at + j), N(at + j) * N(tokens)
        form, reward = draw_answer(plan, correct, formed, work.cdf, work.uniform, N(draw + j * tokens), first, work.arm)
        logp = add_logits(plan, work.logits, row, work.arm, first, offset)
        base_logp = add_logits(plan, contexts.base_logits, context, work.arm, first, base_offset)
        work.form[i], work.reward[i] = form, reward
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
