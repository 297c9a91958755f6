"""The rollouts of a fast round: answers drawn and scored, with their log-probabilities. `work` is a `rftlab.sim.state.Work`."""

from rftlab.shared.jit import kernel
from rftlab.sim.lanes.random import ROLLOUT, uniforms
from rftlab.sim.policy.policy import cumulate
from rftlab.sim.round.answers import N, answer_logp, base_answer_logp, draw_answer


@kernel(forceinline=True)
def respond(contexts, plan, row, context, draw, at, count, work):
    """Sample and score `count` rollouts of a context as those from `at` on; work.cdf holds its cumulative probabilities, `draw` is their first uniform."""
    row, context, tokens = N(row), N(context), len(plan.token_starts)
    correct, formed = contexts.correct[context], work.formed[row]
    for j in range(count):
        i, first = N(at + j), N((at + j) * tokens)
        form, work.reward[i] = draw_answer(plan, correct, formed, work.cdf, work.uniform, N(draw + j * tokens), first, work.arm)
        work.form[i] = form
        work.old_logp[i] = answer_logp(plan, work, row, work.arm, first, form)
        work.ref_logp[i] = base_answer_logp(plan, contexts, context, work.arm, first, form)


@kernel(inline="always")
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
