"""The compiled round: find the policy on a batch of contexts, roll out, find the advantages, update.

One update per round uses the logits that sampled, so every ratio is exactly 1; with more (epochs, mini-batches) each
update looks again. All randomness comes from counters, so nothing random is stored.
"""

import math

import numpy as np

from rftlab.shared.advantage import advantages_into
from rftlab.shared.jit import entry, kernel
from rftlab.shared.objective import objective_and_weights_into
from rftlab.shared.prepare import Batch
from rftlab.shared.replay import push_into, window_into
from rftlab.shared.shaping import shape_into
from rftlab.shared.sums import total
from rftlab.sim.lanes.fetch import fetch
from rftlab.sim.lanes.random import NUISANCE, normals
from rftlab.sim.policy.forgetting import base_logit_scale
from rftlab.sim.policy.policy import add_arms, start_score, weight_sums
from rftlab.sim.policy.probabilities import find_probabilities
from rftlab.sim.policy.products import backward, forward, whole_blocks
from rftlab.sim.round.noise import interfere, squared_weights
from rftlab.sim.round.optimizer import ascend
from rftlab.sim.round.rollouts import roll_out

CHUNK = 128


# Sums over rounds; tokens (weighed), updates, contexts and rollouts are the counts that turn the others into means.
REWARD, KL, CLIPPED, ZERO_SIGNAL, GRAD_NORM, TOKENS, UPDATES, CONTEXTS, ROLLOUTS = range(9)


@kernel(forceinline=True)
def find_logits(contexts, theta, batch, base_scale, work):
    """Logits of the contexts of a batch, which `work.rows` then holds, filled up to whole blocks. base_scale: as
    `forgetting.base_logit_scale` says."""
    n = batch.shape[0]
    for r in range(whole_blocks(n)):
        work.rows[r] = batch[min(r, n - 1)]
    forward(contexts, theta, work.rows[: whole_blocks(n)], base_scale, work.logits)


@kernel(forceinline=True)
def policy_forward(contexts, plan, theta, batch, work):
    """Logits, probabilities and format of the contexts of a batch, which `work.rows` then holds, filled up to whole
    blocks."""
    base_scale = base_logit_scale(plan.forgetting, theta)
    find_logits(contexts, theta, batch, base_scale, work)
    find_probabilities(contexts, plan, theta, batch, base_scale, work)


@kernel(inline="always")
def copy_into(values, out, start):
    """Copy values to out[start:]; return where they end."""
    copy = out[start : start + values.shape[0]]
    for i in range(values.shape[0]):
        copy[i] = values[i]
    return start + values.shape[0]


@kernel(inline="always")
def find_baselines(plan, windows, batch, work):
    """Push the trained rewards to the windows, then gather each context's baseline set."""
    n, k, m = batch.shape[0], plan.rollouts, plan.support
    if plan.replays:
        for row in range(n):
            push_into(windows, batch[row], work.reward, row * k, row * k + k)
    end = np.int64(0)  # a plain 0 would compile what it is passed to twice
    for row in range(n):
        work.pool_starts[row] = end
        end = (
            window_into(windows, batch[row], work.pool, end)
            if plan.replays
            else copy_into(work.reward[row * k : row * k + k], work.pool, end)
        )
        if m > 0:
            end = copy_into(work.reward[n * k + row * m : n * k + (row + 1) * m], work.pool, end)
    work.pool_starts[n] = end


@kernel
def reward_and_silence(rewards, advantages):
    """Sum of a context's rewards; and whether none of its responses teaches."""
    silent = True
    for k in range(rewards.shape[0]):
        silent = silent & (advantages[k] == 0.0)
    return total(rewards), silent


@kernel(inline="always")
def count_signal(plan, n, work, totals):
    """Add a round's rewards and contexts without signal to the totals."""
    k = plan.rollouts
    for row in range(n):
        part = slice(row * k, row * k + k)
        reward, silent = reward_and_silence(work.reward[part], work.advantage[part])
        totals[REWARD] += reward
        totals[ZERO_SIGNAL] += silent
    totals[CONTEXTS] += n
    totals[ROLLOUTS] += n * k


@kernel(inline="always")
def set_scores(plan, round_index, batch, first, rows, work):
    """Score of each row: sum_k w_k (e_{a_k} - pi) plus the nuisance; returns the gradient of the format parameter.

    The nuisance of K independent rollouts with weights w_k is one normal vector of standard deviation sqrt(sum_k
    w_k^2).
    """
    k, tokens, format_grad = plan.rollouts, len(plan.token_starts), 0.0
    if plan.nuisance > 0.0:
        normals(plan.key, round_index, rows, NUISANCE, work.noise)
    for row in range(batch.shape[0]):
        weights, at = work.weight[row * k : (row + 1) * k], first + row * k
        weight, squares, formed = weight_sums(weights, work.form[at : at + k])
        if plan.surprise > 0.0:
            squares = squared_weights(plan, work, row, at)
        start_score(work.probs, row, weight, plan.nuisance * math.sqrt(squares), work.noise, plan.n_arms, work.scores)
        add_arms(weights, work.arm[at * tokens : (at + k) * tokens], tokens, row, work.scores)
        format_grad += formed - weight * work.formed[row]
    work.scores[batch.shape[0] : rows.shape[0]] = 0.0
    return plan.format_scale * format_grad


@kernel(inline="always")
def find_logp_again(plan, n, first, work):
    """Log-probabilities of the trained rollouts of n contexts, the first of them `first`, under the policy of
    `policy_forward`."""
    k, tokens = plan.rollouts, len(plan.token_starts)
    for row in range(n):
        for t in range(row * k, row * k + k):
            logp = -work.lse[row]
            for s in range(tokens):
                logp += work.logits[row, work.arm[(first + t) * tokens + s]]
            work.logp[t] = logp + work.format_logp[work.form[first + t], row]


@kernel(inline="always")
def accumulate_gradient(contexts, plan, rule, state, work, logp, round_index, batch, first, totals):
    """Add to the gradient what the contexts of `batch` teach; `logp` is that of their trained rollouts, the first of
    them `first`."""
    n, rows = batch.shape[0] * plan.rollouts, work.rows[: whole_blocks(batch.shape[0])]
    part = slice(first, first + n)
    fixed = Batch(
        work.advantage[part], work.share, work.kl_share, work.old_logp[part], work.ref_logp[part], work.starts[part]
    )
    _, clipped, _, kl = objective_and_weights_into(rule, fixed, logp, work.weight)
    format_grad = set_scores(plan, round_index, batch, first, rows, work)
    backward(contexts, rows, work.scores, state.grad)
    if plan.interference > 0.0:
        interfere(contexts, plan, round_index, batch, rows, work, state.grad)
    state.grad[-1] += format_grad
    totals[KL] += kl
    totals[CLIPPED] += clipped
    totals[TOKENS] += n


@kernel(inline="always")
def optimizer_step(plan, state, totals):
    """One optimiser update along the gradient, which it empties; False where the gradient is not finite."""
    state.step[0] += 1
    norm = math.sqrt(ascend(plan.optimizer, state.step[0], state.grad, state.mean, state.square, state.theta))
    totals[GRAD_NORM] += norm
    totals[UPDATES] += 1
    return math.isfinite(norm)


@kernel(inline="always")
def sample_rollouts(contexts, plan, rule, state, work, round_index, batch, totals):
    """Roll out the contexts of a batch, after `policy_forward`, and find the advantages of their trained rollouts."""
    trained = slice(0, batch.shape[0] * plan.rollouts)
    roll_out(contexts, plan, round_index, batch, work)
    if rule.shaping.active:
        shape_into(rule, work.reward, work.starts, work.old_logp, work.ref_logp)
    find_baselines(plan, state.windows, batch, work)
    pool_starts = work.pool_starts[: batch.shape[0] + 1]
    advantages_into(
        rule.advantage,
        work.reward[trained],
        work.starts,
        work.group,
        work.pool,
        pool_starts,
        work.reward,
        work.advantage[trained],
    )
    count_signal(plan, batch.shape[0], work, totals)


@entry
def train_rounds(contexts, plan, rule, state, work, batches, first_round, totals):
    """Train on batches (rounds, B) of context indices; returns the rounds done, fewer than asked for where the run
    diverged.

    A round goes chunk by chunk, so that a chunk's features stay in the second-level cache from the logits to the
    gradient. `work` then holds the last chunk. Several updates find the policy again on parts of a batch that was
    sampled as one chunk. Both are turns of one loop, because parts of a round that are compiled into it in two places
    take twice as long to compile.
    """
    n, again = batches.shape[1], plan.epochs * plan.minibatches > 1
    chunks, size = (n + plan.chunk - 1) // plan.chunk, n // plan.minibatches
    finite = True
    for r in range(batches.shape[0]):
        for turn in range(chunks + plan.epochs * plan.minibatches if again else chunks):
            fresh = turn < chunks
            low = turn * plan.chunk if fresh else (turn - chunks) % plan.minibatches * size
            batch = batches[r, low : min(low + (plan.chunk if fresh else size), n)]
            trained, first = batch.shape[0] * plan.rollouts, 0 if fresh else low * plan.rollouts
            if fresh:
                fetch(contexts, plan, state.windows, batch)
            policy_forward(contexts, plan, state.theta, batch, work)
            if fresh:
                sample_rollouts(contexts, plan, rule, state, work, first_round + r, batch, totals)
            else:
                find_logp_again(plan, batch.shape[0], first, work)
            if fresh and again:
                continue
            logp = work.old_logp if fresh else work.logp
            accumulate_gradient(
                contexts, plan, rule, state, work, logp[:trained], first_round + r, batch, first, totals
            )
            if again or turn + 1 == chunks:
                finite = finite and optimizer_step(plan, state, totals)
        if not finite:
            return r
    return batches.shape[0]
