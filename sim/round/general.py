"""The compiled round with everything in it: responses of several tokens, a sampler that is not the trainer, groups that
are replaced, masks, importance corrections, baselines from elsewhere, an entropy bonus. Where none of these is asked
for it does, bit for bit, what `rftlab.sim.round.plain` does; that one is faster.
"""

import numpy as np

from rftlab.shared.advantage import advantages_into
from rftlab.shared.aggregation import shares_into
from rftlab.shared.averages import add_into
from rftlab.shared.config.advantage import GREEDY, VALUE
from rftlab.shared.config.correction import NONE as UNCORRECTED
from rftlab.shared.config.correction import RATIO
from rftlab.shared.config.mask import CLIP_COV, KL_COV, UNMASKED
from rftlab.shared.correction import correction_into
from rftlab.shared.jit import inner, jit
from rftlab.shared.mask import mask_into
from rftlab.shared.objective import objective_and_weights_into
from rftlab.shared.prepare import Batch
from rftlab.shared.replay import push_into, window_into
from rftlab.shared.sampling import keep_shortest_into
from rftlab.shared.shaping import shape_into
from rftlab.sim.lanes.random import MASKING, uniforms
from rftlab.sim.policy.products import backward, whole_blocks
from rftlab.sim.policy.style import length_of, style_logit_of, style_logp
from rftlab.sim.round.baselines import find_baseline, teach_critic
from rftlab.sim.round.plain import (
    CLIPPED,
    CONTEXTS,
    KL,
    REWARD,
    ROLLOUTS,
    TOKENS,
    ZERO_SIGNAL,
    optimizer_step,
    policy_forward,
    reward_and_silence,
)
from rftlab.sim.round.ragged import (
    ADVANTAGE,
    ARM,
    CONTEXT,
    CORRECTION,
    CREDIT,
    FIRST,
    FORM,
    GIVEN,
    GROUP,
    KL_SHARE,
    NOW,
    OLD,
    PLAIN,
    REF,
    RESPONSE,
    SAMPLED,
    SCORE,
    SELECTED,
    SET,
    SHARE,
    SIGNS,
    START,
    STYLE_LOGIT,
    STYLE_TOKEN,
    WEIGHT,
)
from rftlab.sim.round.responses import answer_logp, drop_silent, roll_out_rows, sampler_forward
from rftlab.sim.round.scores import set_scores


@inner
def sample_try(contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batch, at, ragged):
    """Sample a batch of contexts as rows at .. of the round, find baselines that precede its rewards, remember its
    rewards.

    Random numbers are those of the batch, not of the round: within a round a context may come up again, in a later
    epoch.
    """
    first = ragged.rows[FIRST]
    starts = ragged.ints[START]
    rewards, given_of = ragged.numbers[SCORE], ragged.numbers[GIVEN]
    old_logp, ref_logp = ragged.tokens[OLD], ragged.tokens[REF]
    stream = memory.spent[2] - 1
    policy_forward(contexts, plan, state.theta, batch, trainer)
    if choices.lag > 0 or choices.noise > 0.0:
        behind = memory.history[max(0, round_index - choices.lag) % (choices.lag + 1)]
        sampler_forward(contexts, plan, choices, behind, stream, batch, sampler, ragged.noise)
    start = first[at]
    stop = roll_out_rows(contexts, plan, choices, memory.averages, trainer, sampler, stream, batch, at, ragged)
    memory.spent[0] += stop - start
    memory.spent[1] += starts[stop] - starts[start]
    if rule.shaping.active:
        shape_into(rule, rewards[start:stop], starts[start : stop + 1], old_logp, ref_logp)
    for row in range(batch.shape[0]):
        given = find_baseline(contexts, plan, rule.advantage.baseline, memory, trainer, row, batch[row])
        given_of[first[at + row] : first[at + row + 1]] = given
        if rule.advantage.baseline == GREEDY:
            memory.spent[0] += 1
            memory.spent[1] += 1 + length_of(choices.style, np.argmax(trainer.probs[row]), 0.5)
    for row in range(batch.shape[0]):
        a, b = first[at + row], first[at + row + 1]
        if choices.averages:
            add_into(memory.averages, batch[row], choices.decay, rewards, a, b)
        if rule.advantage.baseline == VALUE:
            teach_critic(contexts, choices.critic_learning_rate, memory.critic, batch[row], rewards[a:b].mean())
        if plan.replays:
            push_into(state.windows, batch[row], rewards, a, b)


@inner
def sample_round(contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batches, ragged):
    """Fill the rows of a round, with as many of `batches` (tries, B) as it takes."""
    n, rows = batches.shape[1], np.int64(0)  # a plain 0 would compile what it is passed to twice
    for attempt in range(choices.tries):
        memory.spent[2] += 1
        sample_try(
            contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batches[attempt], rows, ragged
        )
        if choices.tries == 1:
            return
        rows = drop_silent(ragged, rows, n, n - rows if attempt + 1 == choices.tries else 0)
        if rows >= n:
            return


@inner
def find_advantages(plan, choices, rule, windows, n, ragged):
    """Baseline sets, then advantages, of responses and of their tokens."""
    first, context_of, sets = ragged.rows[FIRST], ragged.rows[CONTEXT], ragged.rows[SET]
    starts, group, selected = ragged.ints[START], ragged.ints[GROUP], ragged.ints[SELECTED]
    rewards, given_of, advantage = ragged.numbers[SCORE], ragged.numbers[GIVEN], ragged.numbers[ADVANTAGE]
    credit = ragged.tokens[CREDIT]
    end, support = 0, first[n]
    for row in range(n):
        a, b = first[row], first[row + 1]
        sets[row] = end
        selected[a:b] = True
        if choices.keep > 0:
            keep_shortest_into(starts[1:] - starts[:-1], a, b, choices.keep, selected)
        if plan.replays:
            end = window_into(windows, context_of[row], ragged.pool, end)
        else:
            for i in range(a, b):
                if selected[i]:
                    ragged.pool[end] = rewards[i]
                    end += 1
        for i in range(support + row * plan.support, support + (row + 1) * plan.support):
            ragged.pool[end] = rewards[i]
            end += 1
    sets[n] = end
    trained = slice(0, support)
    rewards, given, group, out = rewards[trained], given_of[trained], group[trained], advantage[trained]
    advantages_into(rule.advantage, rewards, starts[: support + 1], group, ragged.pool, sets[: n + 1], given, out)
    for i in range(support):
        if not selected[i]:
            out[i] = 0.0
        credit[starts[i] : starts[i + 1]] = out[i]


@inner
def count(n, ragged, totals):
    """Add a round's rewards and contexts without signal to the totals."""
    first = ragged.rows[FIRST]
    rewards, advantage = ragged.numbers[SCORE], ragged.numbers[ADVANTAGE]
    for row in range(n):
        part = slice(first[row], first[row + 1])
        reward, silent = reward_and_silence(rewards[part], advantage[part])
        totals[REWARD] += reward
        totals[ZERO_SIGNAL] += silent
    totals[CONTEXTS] += n
    totals[ROLLOUTS] += first[n]


@inner
def freeze_round(rule, n, ragged):
    """Importance weights of the round's tokens, and what the KL penalty compares with; with `ratio` the sampler then
    takes the old policy's place."""
    first = ragged.rows[FIRST]
    starts = ragged.ints[START]
    old_logp, ref_logp, sampled, correction = (
        ragged.tokens[OLD],
        ragged.tokens[REF],
        ragged.tokens[SAMPLED],
        ragged.tokens[CORRECTION],
    )
    stop = first[n]
    tokens = starts[stop]
    if rule.correction.kind == UNCORRECTED:
        correction[:tokens] = 1.0
    else:
        correction_into(rule.correction, starts[: stop + 1], old_logp, sampled, correction)
    if rule.kl.from_old:
        ref_logp[:tokens] = old_logp[:tokens]
    if rule.correction.kind == RATIO:
        old_logp[:tokens] = sampled[:tokens]


@inner
def find_logp(contexts, plan, choices, view, low, high, ragged):
    """Log-probabilities of the tokens of rows low .. high-1 under a view of these rows."""
    first, context_of = ragged.rows[FIRST], ragged.rows[CONTEXT]
    starts, arms, forms = ragged.ints[START], ragged.ints[ARM], ragged.ints[FORM]
    logp, style_logits = ragged.tokens[NOW], ragged.tokens[STYLE_LOGIT]
    signs_of, style_tokens = ragged.marks[SIGNS], ragged.marks[STYLE_TOKEN]
    for row in range(low, high):
        for i in range(first[row], first[row + 1]):
            t = starts[i]
            logp[t] = answer_logp(view, row - low, arms[i], forms[i])
            for s in range(t + 1, starts[i + 1]):
                style_logit = style_logit_of(
                    choices.style,
                    np.uint32(signs_of[s]),
                    view.logits,
                    contexts.base_logits,
                    row - low,
                    context_of[row],
                    plan.n_arms,
                )
                style_logits[s], logp[s] = style_logit, style_logp(style_logit, style_tokens[s] != 0)


@inner
def find_weights(plan, rule, update, low, high, ragged):
    """Weights of the tokens of rows low .. high-1, one optimiser batch; returns clipped tokens, sum of KL values,
    tokens."""
    first = ragged.rows[FIRST]
    starts = ragged.ints[START]
    weights, logp, plain, share = ragged.tokens[WEIGHT], ragged.tokens[NOW], ragged.tokens[PLAIN], ragged.tokens[SHARE]
    kl_share, old_logp, ref_logp, correction = (
        ragged.tokens[KL_SHARE],
        ragged.tokens[OLD],
        ragged.tokens[REF],
        ragged.tokens[CORRECTION],
    )
    credit = ragged.tokens[CREDIT]
    response = ragged.marks[RESPONSE]
    start, stop = first[low], first[high]
    a, b = starts[start], starts[stop]
    shares_into(rule.aggregation, starts[start : stop + 1], float(b - a), float(stop - start), plain)
    tokens = slice(a, b)
    share[tokens] = plain[tokens] * correction[tokens]
    kl_share[tokens] = rule.kl.in_loss * (share[tokens] if rule.mask.kind == KL_COV else plain[tokens])
    batch = Batch(credit[tokens], share[tokens], kl_share[tokens], old_logp[tokens], ref_logp[tokens], response[tokens])
    if rule.mask.kind == CLIP_COV:
        uniforms(plan.key, update, np.arange(b - a), 1, MASKING, ragged.keys)
    if rule.mask.kind != UNMASKED:
        mask_into(
            rule, batch, logp[tokens], ragged.keys[0, : b - a].astype(np.float64), share[tokens], kl_share[tokens]
        )
    _, clipped, _, kl = objective_and_weights_into(rule, batch, logp[tokens], weights[tokens])
    return clipped, kl, b - a


@inner
def update_policy(contexts, plan, choices, rule, state, view, round_index, n, ragged, totals):
    """The updates of a round, each on its rows; False where a gradient is not finite."""
    context_of = ragged.rows[CONTEXT]
    size, updates = n // plan.minibatches, plan.epochs * plan.minibatches
    for u in range(updates):
        low = u % plan.minibatches * size
        high = low + size
        if u > 0 or size < n or choices.tries > 1:
            policy_forward(contexts, plan, state.theta, context_of[low:high], view)
        rows = view.rows[: whole_blocks(size)]
        find_logp(contexts, plan, choices, view, low, high, ragged)
        clipped, kl, tokens = find_weights(plan, rule, round_index * updates + u, low, high, ragged)
        set_scores(plan, choices, rule, round_index, low, high, rows, view, ragged, state.grad)
        backward(contexts, rows, ragged.scores, state.grad)
        totals[KL] += kl
        totals[CLIPPED] += clipped
        totals[TOKENS] += tokens
        if not optimizer_step(plan, state, totals):
            return False
    return True


@jit
def general_rounds(
    contexts, plan, choices, rule, state, memory, trainer, sampler, batches, first_round, rounds, ragged, totals
):
    """Train for some rounds on batches (at least rounds x tries, B) of context indices; returns the rounds done,
    fewer where the run diverged."""
    n, tried = batches.shape[1], 0
    for r in range(rounds):
        memory.history[(first_round + r) % (choices.lag + 1)] = state.theta
        before = memory.spent[2]
        stream = batches[tried : tried + choices.tries]
        sample_round(contexts, plan, choices, rule, state, memory, trainer, sampler, first_round + r, stream, ragged)
        tried += memory.spent[2] - before
        find_advantages(plan, choices, rule, state.windows, n, ragged)
        count(n, ragged, totals)
        freeze_round(rule, n, ragged)
        if not update_policy(contexts, plan, choices, rule, state, trainer, first_round + r, n, ragged, totals):
            return r
    return rounds
