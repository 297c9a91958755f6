"""Sample responses with style tokens by a policy that may differ from the trainer's, and replace zero-variance groups
where asked for.

Responses of a round are packed: those of row r of the batch are first[r] .. first[r+1]-1, support rollouts follow after
all trained ones, and response i holds the tokens starts[i] .. starts[i+1]-1, its answer first, which counts as one
token. Rewards may be partial, noisy, and flipped; Pass@1 is computed from the true answers.
"""

import math

import numpy as np

from rftlab.shared.memory import estimated_pass_rate
from rftlab.shared.plumbing.jit import kernel
from rftlab.shared.sampling import allocate_into
from rftlab.sim.lanes.random import LENGTH, MISMATCH, REWARDING, ROLLOUT, normals, uniforms
from rftlab.sim.policy.common import base_policy, remember_base
from rftlab.sim.policy.policy import cumulate
from rftlab.sim.policy.probabilities import find_probabilities
from rftlab.sim.policy.products import whole_blocks
from rftlab.sim.policy.style import (
    WORDS,
    mean_side,
    style_length,
    style_logit_at,
    style_logp,
    style_probability,
    words_into,
)
from rftlab.sim.round.answers import N, answer_logp, base_answer_logp, draw_answer
from rftlab.sim.round.plain import find_logits
from rftlab.sim.round.ragged import INT, MARK, NUMBER, ROW, TOKEN
from rftlab.sim.round.replays import recall


@kernel(forceinline=True)
def partial_credit(plan, part, correct, form, right, arms, at):
    """Return the reward of the answer arms[at : at + T]: `part` of it in proportion to the right tokens of a
    well-formed answer, the rest where all are right."""
    hits, tokens = 0, len(plan.token_starts)
    for s in range(tokens):
        hits += (correct >> np.uint32(arms[at + N(s)])) & np.uint32(1)
    return (1.0 - part) * right + part * form * hits / tokens


@kernel
def misjudge(plan, choices, round_index, batch, at, ragged):
    """Add a normal number of standard deviation choices.reward_noise to the reward of every response of a try, whose
    rows begin at `at`, or flip a reward of 0 or 1. The uniforms are stored in place of those for lengths."""
    first, gets, rewards = ragged.rows[ROW.first], ragged.rows[ROW.gets], ragged.numbers[NUMBER.reward]
    uniforms(plan.key, round_index, batch, choices.draws, REWARDING, ragged.lengths)
    support = first[at + batch.shape[0]]
    for row in range(batch.shape[0]):
        for j in range(gets[row] + plan.support):
            trained = j < gets[row]
            i = first[at + row] + j if trained else support + row * plan.support + j - gets[row]
            draw = row * choices.draws + j
            if choices.reward_noise == 0.0:
                chance = choices.false_negative if rewards[i] > 0.0 else choices.false_positive
                rewards[i] = 1.0 - rewards[i] if ragged.lengths[0, draw] < chance else rewards[i]
                continue
            # Box and Muller's transform; 1 - u lies in (0, 1], so that the logarithm is finite.
            size = math.sqrt(-2.0 * math.log(1.0 - ragged.lengths[0, draw]))
            rewards[i] += choices.reward_noise * size * math.cos(2.0 * math.pi * ragged.lengths[1, draw])


UNIT = 2.0**-24


@kernel
def sampler_forward(contexts, plan, choices, theta, round_index, batch, view, noise):
    """Compute the sampler's policy on a batch, from stale weights and with noisy logits."""
    base = base_policy(plan, theta)
    find_logits(contexts, plan, theta, batch, base, view)
    if choices.noise > 0.0:
        normals(plan.key, round_index, view.rows[: whole_blocks(batch.shape[0])], MISMATCH, noise)
        for r in range(batch.shape[0]):
            for a in range(plan.n_arms):
                view.logits[r, a] += choices.noise * noise[r, a]
    find_probabilities(contexts, plan, theta, batch, base, view)
    remember_base(base, view)


@kernel
def add_style_tokens(contexts, plan, choices, trainer, sampler, round_index, row, context, draw, n, ragged, i):
    """Sample the n style tokens of response i, which follow its answer."""
    old_logp, ref_logp, sampler_logp = (
        ragged.tokens[TOKEN.old_logp],
        ragged.tokens[TOKEN.ref_logp],
        ragged.tokens[TOKEN.sampler_logp],
    )
    signs_of, style_tokens, response = (
        ragged.marks[MARK.signs],
        ragged.marks[MARK.style_token],
        ragged.marks[MARK.response],
    )
    starts, t = ragged.ints[INT.start], ragged.ints[INT.start, i]
    for position in range(n):
        if position % WORDS == 0:
            words_into(plan.key, round_index, context, draw, position, ragged.words)
        t += 1
        # 24 bits make a uniform below 1; more would not fit into float32.
        signs, u = ragged.words[0, position % WORDS], UNIT * (ragged.words[1, position % WORDS] >> np.uint32(8))
        style_logit = style_logit_at(choices.style, signs, sampler, contexts, row, context, plan)
        style_token = u < style_probability(style_logit)
        signs_of[t], style_tokens[t], response[t] = signs, style_token, i
        sampler_logp[t], ref_logp[t] = style_logp(style_logit, style_token), style_logp(choices.style.base, style_token)
        old_logp[t] = style_logp(
            style_logit_at(choices.style, signs, trainer, contexts, row, context, plan), style_token
        )
    starts[i + 1] = t + 1


@kernel
def length_after(plan, style, arms, at, u):
    """Return the number of style tokens of a response with the answer arms[at : at + T]; u uniform in [0, 1)."""
    if style.tokens == 0.0:
        return 0
    return style_length(style, mean_side(style, len(plan.token_starts), arms, at), u)


@kernel(forceinline=True)
def respond(contexts, plan, choices, trainer, sampler, round_index, row, context, draw, at, ragged, i):
    """Sample and score response i, the draw'th rollout of a context. `ragged.cdf` holds the sampler's probabilities;
    at: place of the response among the rollouts of the batch."""
    tokens, t = len(plan.token_starts), ragged.ints[INT.start, i]
    arms, first = ragged.arms, N(i * tokens)
    formed, reward = draw_answer(
        plan, contexts.correct[context], sampler.formed[row], ragged.cdf, ragged.uniform, N(at * tokens), first, arms
    )
    form = int(formed)
    if choices.partial_credit > 0.0:
        reward = partial_credit(plan, choices.partial_credit, contexts.correct[context], form, reward, arms, first)
    ragged.ints[INT.form, i], ragged.numbers[NUMBER.reward, i], ragged.marks[MARK.response, t] = form, reward, i
    ragged.tokens[TOKEN.old_logp, t] = answer_logp(plan, trainer, row, arms, first, form)
    ragged.tokens[TOKEN.sampler_logp, t] = answer_logp(plan, sampler, row, arms, first, form)
    ragged.tokens[TOKEN.ref_logp, t] = base_answer_logp(plan, contexts, context, arms, first, form)
    n = length_after(plan, choices.style, arms, i * tokens, ragged.lengths[0, at])
    if n == 0:
        ragged.ints[INT.start, i + 1] = t + 1
        return
    add_style_tokens(contexts, plan, choices, trainer, sampler, round_index, row, context, draw, n, ragged, i)


@kernel(inline="always")
def roll_out_rows(contexts, plan, choices, averages, replays, trainer, sampler, round_index, batch, at, ragged):
    """Sample the contexts of a try as rows `at` and following of the round. Replayed responses follow the new ones of a
    row, and support rollouts follow all rows. Return the number of responses in use."""
    first, context_of, gets = ragged.rows[ROW.first], ragged.rows[ROW.context], ragged.rows[ROW.gets]
    group = ragged.ints[INT.group]
    n, count = batch.shape[0], choices.draws
    uniforms(plan.key, round_index, batch, count * len(plan.token_starts), ROLLOUT, ragged.uniform)
    if choices.style.tokens > 0.0:
        uniforms(plan.key, round_index, batch, count, LENGTH, ragged.lengths)
    gets[:n] = plan.rollouts
    if choices.by_difficulty:
        for row in range(n):
            ragged.difficulty[row] = estimated_pass_rate(averages, batch[row])
        allocate_into(ragged.difficulty[:n], plan.rollouts, gets[:n])
    i = first[at]
    for row in range(n):
        context_of[at + row] = batch[row]
        cumulate(sampler.probs, row, ragged.cdf)
        for j in range(gets[row]):
            group[i] = at + row
            respond(
                contexts, plan, choices, trainer, sampler, round_index, row, batch[row], j, row * count + j, ragged, i
            )
            i += 1
        i = recall(replays, batch[row], at + row, ragged, i)
        first[at + row + 1] = i
    # Support rollouts follow all trained ones, so that trained responses are one slice.
    for row in range(n if plan.support > 0 else 0):
        cumulate(sampler.probs, row, ragged.cdf)
        for j in range(gets[row], gets[row] + plan.support):
            respond(
                contexts, plan, choices, trainer, sampler, round_index, row, batch[row], j, row * count + j, ragged, i
            )
            i += 1
    if max(choices.reward_noise, choices.false_positive, choices.false_negative) > 0.0:
        misjudge(plan, choices, round_index, batch, at, ragged)
    if choices.several:
        for j in range(first[at], i):
            form_reward = choices.format_reward * ragged.ints[INT.form, j]
            ragged.numbers[NUMBER.first_reward, j] = ragged.numbers[NUMBER.reward, j]
            ragged.numbers[NUMBER.form_reward, j] = form_reward
            ragged.numbers[NUMBER.reward, j] += form_reward
    return i


@kernel
def differs(ragged, row):
    """Whether the rewards of a row's responses differ."""
    first, rewards, unequal = ragged.rows[ROW.first], ragged.numbers[NUMBER.reward], False
    for i in range(first[row] + 1, first[row + 1]):
        unequal = unequal or rewards[i] != rewards[i - 1]
    return unequal


@kernel
def move_response(plan, ragged, source, target):
    """Copy a response with its tokens to an earlier place, behind response target - 1."""
    starts, response, tokens = ragged.ints[INT.start], ragged.marks[MARK.response], len(plan.token_starts)
    ragged.ints[INT.form, target] = ragged.ints[INT.form, source]
    for field in (NUMBER.reward, NUMBER.given, NUMBER.first_reward, NUMBER.form_reward):
        ragged.numbers[field, target] = ragged.numbers[field, source]
    for s in range(tokens):
        ragged.arms[target * tokens + s] = ragged.arms[source * tokens + s]
    # Targets never lie behind their sources, so copying forwards overwrites nothing that is still needed.
    at = starts[target] - starts[source]
    for t in range(starts[source], starts[source + 1]):
        response[at + t] = target
        for field in (MARK.signs, MARK.style_token):
            ragged.marks[field, at + t] = ragged.marks[field, t]
        for field in (TOKEN.old_logp, TOKEN.ref_logp, TOKEN.sampler_logp, TOKEN.squares):
            ragged.tokens[field, at + t] = ragged.tokens[field, t]
    starts[target + 1] = at + starts[source + 1]


@kernel
def move_row(plan, ragged, source, target):
    """Copy a row with its responses to an earlier place, behind row target - 1."""
    first, context_of, group = ragged.rows[ROW.first], ragged.rows[ROW.context], ragged.ints[INT.group]
    context_of[target] = context_of[source]
    i = first[target]
    for j in range(first[source], first[source + 1]):
        group[i] = target
        move_response(plan, ragged, j, i)
        i += 1
    first[target + 1] = i


@kernel
def drop_silent(plan, ragged, at, n, room):
    """Keep the rows of at .. at+n-1 whose rewards differ, and as many others as fill up `room` rows. Return the number
    of rows in use."""
    spare = room
    for row in range(at, at + n):
        spare -= differs(ragged, row)
    target = at
    for row in range(at, at + n):
        wanted = differs(ragged, row)
        if not wanted and spare > 0:
            wanted, spare = True, spare - 1
        if wanted:
            if row != target:
                move_row(plan, ragged, row, target)
            target += 1
    return target
