"""Responses of several tokens, sampled by a policy that may differ from the trainer's; groups that teach nothing may be
replaced.

Responses of a round are packed: those of row r of the batch are first[r] .. first[r+1]-1, support rollouts follow after
all trained ones, and response i holds the tokens starts[i] .. starts[i+1]-1, its answer first.
"""

import numpy as np

from rftlab.shared.averages import difficulty_of
from rftlab.shared.jit import inner
from rftlab.shared.sampling import allocate_into
from rftlab.sim.lanes.random import LENGTH, MISMATCH, ROLLOUT, normals, uniforms
from rftlab.sim.policy.policy import cumulate, pick
from rftlab.sim.policy.probabilities import find_probabilities
from rftlab.sim.policy.products import whole_blocks
from rftlab.sim.policy.style import HALF, WORDS, length_of, style_logit_of, style_logp, style_probability, words_into
from rftlab.sim.round.plain import find_logits
from rftlab.sim.round.ragged import (
    ARM,
    CONTEXT,
    FIRST,
    FORM,
    GETS,
    GIVEN,
    GROUP,
    OLD,
    REF,
    RESPONSE,
    SAMPLED,
    SCORE,
    SIGNS,
    START,
    STYLE_TOKEN,
)

UNIT = 2.0**-24


@inner
def sampler_forward(contexts, plan, choices, theta, round_index, batch, view, noise):
    """The sampler's view of a batch: stale weights and noisy logits."""
    find_logits(contexts, theta, batch, 1.0, view)
    if choices.noise > 0.0:
        normals(plan.key, round_index, view.rows[: whole_blocks(batch.shape[0])], MISMATCH, noise)
        for r in range(batch.shape[0]):
            for a in range(plan.n_arms):
                view.logits[r, a] += choices.noise * noise[r, a]
    find_probabilities(contexts, plan, theta, batch, 1.0, view)


@inner
def answer_logp(view, row, arm, form):
    """Log-probability of an answer token with its format."""
    return view.logits[row, arm] - view.lse[row] + view.format_logp[form, row]


@inner
def respond(contexts, plan, choices, trainer, sampler, round_index, row, context, draw, at, ragged, i):
    """Sample and score response i, the draw'th rollout of a context; `ragged.cdf` holds the sampler's. at: its place
    among the uniforms."""
    starts, arms, forms = ragged.ints[START], ragged.ints[ARM], ragged.ints[FORM]
    rewards = ragged.numbers[SCORE]
    old_logp, ref_logp, sampled = ragged.tokens[OLD], ragged.tokens[REF], ragged.tokens[SAMPLED]
    signs_of, style_tokens, response = ragged.marks[SIGNS], ragged.marks[STYLE_TOKEN], ragged.marks[RESPONSE]
    form = int(ragged.uniform[0, at] < sampler.formed[row])
    arm = pick(ragged.cdf, ragged.uniform[1, at])
    t = starts[i]
    arms[i], forms[i] = arm, form
    rewards[i] = form * ((contexts.correct[context] >> np.uint32(arm)) & np.uint32(1))
    old_logp[t] = answer_logp(trainer, row, arm, form)
    sampled[t] = answer_logp(sampler, row, arm, form)
    ref_logp[t] = (
        contexts.base_logits[context, arm] - contexts.base_lse[context] + contexts.base_format_logp[context, form]
    )
    response[t] = i
    n = length_of(choices.style, arm, ragged.lengths[0, at]) if choices.style.tokens > 0.0 else 0
    for position in range(n):
        if position % WORDS == 0:
            words_into(plan.key, round_index, context, draw, position, ragged.words)
        t += 1
        signs, u = ragged.words[0, position % WORDS], UNIT * (ragged.words[1, position % WORDS] >> np.uint32(8))
        style_logit = style_logit_of(
            choices.style, signs, sampler.logits, contexts.base_logits, row, context, plan.n_arms
        )
        style_token = u < style_probability(style_logit)
        signs_of[t], style_tokens[t], response[t] = signs, style_token, i
        sampled[t], ref_logp[t] = style_logp(style_logit, style_token), HALF
        old_logp[t] = style_logp(
            style_logit_of(choices.style, signs, trainer.logits, contexts.base_logits, row, context, plan.n_arms),
            style_token,
        )
    starts[i + 1] = t + 1


@inner
def roll_out_rows(contexts, plan, choices, averages, trainer, sampler, round_index, batch, at, ragged):
    """Sample the contexts of a try as rows at .. of the round, support rollouts behind them; returns the responses
    in use."""
    first, context_of, gets = ragged.rows[FIRST], ragged.rows[CONTEXT], ragged.rows[GETS]
    group = ragged.ints[GROUP]
    n, count = batch.shape[0], choices.draws
    uniforms(plan.key, round_index, batch, count, ROLLOUT, ragged.uniform)
    if choices.style.tokens > 0.0:
        uniforms(plan.key, round_index, batch, count, LENGTH, ragged.lengths)
    gets[:n] = plan.rollouts
    if choices.by_difficulty:
        for row in range(n):
            ragged.difficulty[row] = difficulty_of(averages, batch[row])
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
        first[at + row + 1] = i
    for row in range(n if plan.support > 0 else 0):
        cumulate(sampler.probs, row, ragged.cdf)
        for j in range(gets[row], gets[row] + plan.support):
            respond(
                contexts, plan, choices, trainer, sampler, round_index, row, batch[row], j, row * count + j, ragged, i
            )
            i += 1
    return i


@inner
def differs(ragged, row):
    """Whether the rewards of a row's responses differ."""
    first = ragged.rows[FIRST]
    rewards = ragged.numbers[SCORE, first[row] : first[row + 1]]
    return rewards.max() > rewards.min()


@inner
def move_row(ragged, source, target):
    """Copy a row with its responses and tokens to an earlier place, behind row target - 1."""
    first, context_of = ragged.rows[FIRST], ragged.rows[CONTEXT]
    starts, arms, forms, group = ragged.ints[START], ragged.ints[ARM], ragged.ints[FORM], ragged.ints[GROUP]
    rewards, given_of = ragged.numbers[SCORE], ragged.numbers[GIVEN]
    old_logp, ref_logp, sampled = ragged.tokens[OLD], ragged.tokens[REF], ragged.tokens[SAMPLED]
    signs_of, style_tokens, response = ragged.marks[SIGNS], ragged.marks[STYLE_TOKEN], ragged.marks[RESPONSE]
    context_of[target] = context_of[source]
    i = first[target]
    for j in range(first[source], first[source + 1]):
        arms[i], forms[i], rewards[i], given_of[i] = arms[j], forms[j], rewards[j], given_of[j]
        group[i] = target
        t = starts[i]
        for s in range(starts[j], starts[j + 1]):
            signs_of[t], style_tokens[t], response[t] = signs_of[s], style_tokens[s], i
            old_logp[t], ref_logp[t], sampled[t] = old_logp[s], ref_logp[s], sampled[s]
            t += 1
        i += 1
        starts[i] = t
    first[target + 1] = i


@inner
def drop_silent(ragged, at, n, room):
    """Keep the rows of at .. at+n-1 whose rewards differ, and as many others as fill up `room` rows; returns the
    rows in use."""
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
                move_row(ragged, row, target)
            target += 1
    return target
