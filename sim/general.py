"""The compiled round with everything in it: responses of several tokens, a sampler that is not the trainer, groups that are replaced,
masks, importance corrections, baselines from elsewhere, an entropy bonus. Where none of these is asked for it does, bit for bit, what
`sim.rounds` does; that one is faster.
"""

import math
from typing import NamedTuple

import numpy as np

from shared.advantage import GREEDY, VALUE, advantages_into
from shared.aggregation import shares_into
from shared.averages import add_into
from shared.correction import NONE as UNCORRECTED
from shared.correction import RATIO, correction_into
from shared.jit import jit
from shared.mask import CLIP_COV, UNMASKED, mask_into
from shared.prepare import Batch
from shared.replay import push_into, window_into
from shared.sampling import keep_shortest_into
from shared.shaping import shape_into
from shared.weigh import weigh_into
from sim.baselines import find_baseline, teach_critic
from sim.policy import BLOCK, backward, start_score
from sim.random import MASKING, NUISANCE, normals, uniforms
from sim.responses import answer_logp, drop_silent, look_as_sampler, roll_out_rows
from sim.rounds import CLIPPED, CONTEXTS, KL, REWARD, ROLLOUTS, TOKENS, ZERO_SIGNAL, look, step
from sim.style import coin_logp, coin_probability, lean_of


class Memory(NamedTuple):
    """What a run with further choices remembers besides `sim.rounds.State`."""

    history: np.ndarray
    """(lag + 1, parameters): the latest parameters, those of round r in row r % (lag + 1)."""
    averages: np.ndarray
    critic: np.ndarray
    spent: np.ndarray
    """(3,) rollouts sampled, tokens sampled, batches tried."""


@jit
def sample_try(contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batch, at, work, ragged):
    """Sample a batch of contexts as rows at .. of the round, find baselines that precede its rewards, remember its rewards."""
    look(contexts, plan, state.theta, batch, trainer)
    if choices.lag > 0 or choices.noise > 0.0:
        behind = memory.history[max(0, round_index - choices.lag) % (choices.lag + 1)]
        look_as_sampler(contexts, plan, choices, behind, round_index, batch, sampler, work.counters, work.noise)
    start = ragged.first[at]
    stop = roll_out_rows(contexts, plan, choices, memory.averages, trainer, sampler, round_index, batch, at, work, ragged)
    memory.spent[0] += stop - start
    memory.spent[1] += ragged.starts[stop] - ragged.starts[start]
    if rule.shaping.active:
        shape_into(rule, ragged.reward[start:stop], ragged.starts[start : stop + 1], ragged.old_logp, ragged.ref_logp)
    for row in range(batch.shape[0]):
        given = find_baseline(contexts, plan, rule.advantage.baseline, memory, trainer, row, batch[row])
        ragged.given[ragged.first[at + row] : ragged.first[at + row + 1]] = given
    if rule.advantage.baseline == GREEDY:
        memory.spent[0] += batch.shape[0]
    for row in range(batch.shape[0]):
        a, b = ragged.first[at + row], ragged.first[at + row + 1]
        if choices.averages:
            add_into(memory.averages, batch[row], choices.decay, ragged.reward, a, b)
        if rule.advantage.baseline == VALUE:
            teach_critic(contexts, choices.critic_rate, memory.critic, batch[row], ragged.reward[a:b].mean())
        if plan.replays:
            push_into(state.windows, batch[row], ragged.reward, a, b)


@jit
def sample_round(contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batches, work, ragged):
    """Fill the rows of a round, with as many of `batches` (tries, B) as it takes."""
    n, rows = batches.shape[1], 0
    for attempt in range(choices.tries):
        memory.spent[2] += 1
        sample_try(contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batches[attempt], rows, work, ragged)
        if choices.tries == 1:
            return
        rows = drop_silent(ragged, rows, n, n - rows if attempt + 1 == choices.tries else 0)
        if rows >= n:
            return


@jit
def find_advantages(plan, choices, rule, windows, n, ragged):
    """Baseline sets, then advantages, of responses and of their tokens."""
    end, support = 0, ragged.first[n]
    for row in range(n):
        a, b = ragged.first[row], ragged.first[row + 1]
        ragged.pool_starts[row] = end
        ragged.kept[a:b] = True
        if choices.keep > 0:
            keep_shortest_into(ragged.starts[1:] - ragged.starts[:-1], a, b, choices.keep, ragged.kept)
        if plan.replays:
            end = window_into(windows, ragged.contexts[row], ragged.pool, end)
        else:
            for i in range(a, b):
                if ragged.kept[i]:
                    ragged.pool[end] = ragged.reward[i]
                    end += 1
        for i in range(support + row * plan.support, support + (row + 1) * plan.support):
            ragged.pool[end] = ragged.reward[i]
            end += 1
    ragged.pool_starts[n] = end
    trained = slice(0, support)
    rewards, given, group, out = ragged.reward[trained], ragged.given[trained], ragged.group[trained], ragged.advantage[trained]
    advantages_into(rule.advantage, rewards, ragged.starts[: support + 1], group, ragged.pool, ragged.pool_starts[: n + 1], given, out)
    for i in range(support):
        if not ragged.kept[i]:
            out[i] = 0.0
        ragged.token_advantage[ragged.starts[i] : ragged.starts[i + 1]] = out[i]


@jit
def count(n, ragged, totals):
    """Add a round's rewards and contexts without signal to the totals."""
    for row in range(n):
        silent = True
        for i in range(ragged.first[row], ragged.first[row + 1]):
            totals[REWARD] += ragged.reward[i]
            silent = silent & (ragged.advantage[i] == 0.0)
        totals[ZERO_SIGNAL] += silent
    totals[CONTEXTS] += n
    totals[ROLLOUTS] += ragged.first[n]


@jit
def freeze_round(rule, n, ragged):
    """Importance weights of the round's tokens; with `ratio` the sampler takes the place of the old policy."""
    stop = ragged.first[n]
    tokens = ragged.starts[stop]
    if rule.correction.kind == UNCORRECTED:
        ragged.correction[:tokens] = 1.0
    else:
        correction_into(rule.correction, ragged.starts[: stop + 1], ragged.old_logp, ragged.sampler_logp, ragged.correction)
    if rule.correction.kind == RATIO:
        ragged.old_logp[:tokens] = ragged.sampler_logp[:tokens]


@jit
def find_logp(contexts, plan, choices, view, low, high, ragged):
    """Log-probabilities of the tokens of rows low .. high-1 under a view of these rows."""
    for row in range(low, high):
        for i in range(ragged.first[row], ragged.first[row + 1]):
            t = ragged.starts[i]
            ragged.logp[t] = answer_logp(view, row - low, ragged.arm[i], ragged.form[i])
            for s in range(t + 1, ragged.starts[i + 1]):
                lean = lean_of(choices.style, ragged.signs[s], view.logits, contexts.base_logits, row - low, ragged.contexts[row], plan.n_arms)
                ragged.lean[s], ragged.logp[s] = lean, coin_logp(lean, ragged.coin[s])


@jit
def weigh_rows(plan, rule, update, low, high, ragged):
    """Weights of the tokens of rows low .. high-1, one optimiser batch; returns clipped tokens, sum of KL values, tokens."""
    first, stop = ragged.first[low], ragged.first[high]
    a, b = ragged.starts[first], ragged.starts[stop]
    shares_into(rule.aggregation, ragged.starts[first : stop + 1], float(b - a), float(stop - first), ragged.plain_share)
    tokens = slice(a, b)
    ragged.share[tokens] = ragged.plain_share[tokens] * ragged.correction[tokens]
    ragged.kl_share[tokens] = rule.kl.in_loss * ragged.plain_share[tokens]
    reference = ragged.old_logp if rule.kl.from_old else ragged.ref_logp
    batch = Batch(ragged.token_advantage[tokens], ragged.share[tokens], ragged.kl_share[tokens], ragged.old_logp[tokens], reference[tokens], ragged.row[tokens])
    if rule.mask.kind == CLIP_COV:
        uniforms(plan.key, update, np.arange(b - a), 1, MASKING, ragged.words, ragged.keys)
    if rule.mask.kind != UNMASKED:
        mask_into(rule, batch, ragged.logp[tokens], ragged.keys[0, : b - a].astype(np.float64), ragged.share[tokens], ragged.kl_share[tokens])
    _, clipped, _, kl = weigh_into(rule, batch, ragged.logp[tokens], ragged.weight[tokens])
    return clipped, kl, b - a


@jit
def add_style_scores(plan, choices, rule, row, at, ragged, scores):
    """Add to scores[at] what the style tokens of a row say, entropy bonus included."""
    ragged.style_score[:] = 0.0
    for i in range(ragged.first[row], ragged.first[row + 1]):
        for t in range(ragged.starts[i] + 1, ragged.starts[i + 1]):
            p = coin_probability(ragged.lean[t])
            push = ragged.weight[t] * (ragged.coin[t] - p) - rule.entropy * ragged.plain_share[t] * ragged.lean[t] * p * (1.0 - p)
            for a in range(plan.n_arms):
                ragged.style_score[a] += push if (ragged.signs[t] >> np.uint32(a)) & np.uint32(1) else -push
    for a in range(plan.n_arms):
        scores[at, a] += choices.style.slope * ragged.style_score[a]


@jit
def add_entropy(plan, view, row, share, scores):
    """Add share x the gradient of the entropy of a context's answer and format; returns its part for the format's logit."""
    entropy = 0.0
    for a in range(plan.n_arms):
        p = view.probs[row, a]
        entropy -= p * math.log(p) if p > 0.0 else 0.0
    for a in range(plan.n_arms):
        p = view.probs[row, a]
        scores[row, a] -= share * p * (math.log(p) + entropy) if p > 0.0 else 0.0
    formed, logit = view.formed[row], view.format_logp[row, 1] - view.format_logp[row, 0]
    return -share * logit * formed * (1.0 - formed) if math.isfinite(logit) else 0.0


@jit
def set_scores(plan, choices, rule, round_index, low, high, rows, view, work, ragged, grad):
    """Score of each of the rows low .. high-1; adds to the last entry of grad the format parameter's. As `sim.rounds.set_scores`, and more."""
    format_grad = 0.0
    gaussian = plan.nuisance > 0.0 and choices.style.tokens == 0.0
    if gaussian:
        normals(plan.key, round_index, rows, NUISANCE, work.counters, work.noise)
    for row in range(low, high):
        at, weight, squares, formed, bonus = row - low, 0.0, 0.0, 0.0, 0.0
        for i in range(ragged.first[row], ragged.first[row + 1]):
            w = ragged.weight[ragged.starts[i]]
            weight += w
            squares += w * w
            formed += w * ragged.form[i]
            bonus += rule.entropy * ragged.plain_share[ragged.starts[i]]
        start_score(view.probs, at, weight, plan.nuisance * math.sqrt(squares) if gaussian else 0.0, work.noise, plan.n_arms, work.scores)
        for i in range(ragged.first[row], ragged.first[row + 1]):
            work.scores[at, ragged.arm[i]] += ragged.weight[ragged.starts[i]]
        format_grad += formed - weight * view.formed[at]
        if bonus > 0.0:
            format_grad += add_entropy(plan, view, at, bonus, work.scores)
        if choices.style.slope > 0.0:
            add_style_scores(plan, choices, rule, row, at, ragged, work.scores)
        if (at + 1) % plan.chunk == 0 or row + 1 == high:
            grad[-1] += plan.format_scale * format_grad
            format_grad = 0.0
    work.scores[high - low : rows.shape[0]] = 0.0


@jit
def update_policy(contexts, plan, choices, rule, state, view, round_index, n, work, ragged, totals):
    """The updates of a round, each on its rows; False where a gradient is not finite."""
    size, updates = n // plan.minibatches, plan.epochs * plan.minibatches
    for u in range(updates):
        low = u % plan.minibatches * size
        high = low + size
        if u > 0 or size < n or choices.tries > 1:
            look(contexts, plan, state.theta, ragged.contexts[low:high], view)
        rows = view.rows[: (size + BLOCK - 1) // BLOCK * BLOCK]
        find_logp(contexts, plan, choices, view, low, high, ragged)
        clipped, kl, tokens = weigh_rows(plan, rule, round_index * updates + u, low, high, ragged)
        set_scores(plan, choices, rule, round_index, low, high, rows, view, work, ragged, state.grad)
        backward(contexts, rows, work.scores, state.grad)
        totals[KL] += kl
        totals[CLIPPED] += clipped
        totals[TOKENS] += tokens
        if not step(plan, state, totals):
            return False
    return True


@jit
def general_rounds(contexts, plan, choices, rule, state, memory, trainer, sampler, batches, first_round, rounds, work, ragged, totals):
    """Train for some rounds on batches (at least rounds x tries, B) of context indices; returns the rounds done, fewer where the run diverged."""
    n, tried = batches.shape[1], 0
    for r in range(rounds):
        memory.history[(first_round + r) % (choices.lag + 1)] = state.theta
        before = memory.spent[2]
        stream = batches[tried : tried + choices.tries]
        sample_round(contexts, plan, choices, rule, state, memory, trainer, sampler, first_round + r, stream, work, ragged)
        tried += memory.spent[2] - before
        find_advantages(plan, choices, rule, state.windows, n, ragged)
        count(n, ragged, totals)
        freeze_round(rule, n, ragged)
        if not update_policy(contexts, plan, choices, rule, state, trainer, first_round + r, n, work, ragged, totals):
            return r
    return rounds
