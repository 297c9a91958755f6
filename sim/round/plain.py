"""Compute the fast round: a forward pass of the policy on a batch of contexts, rollouts, advantages, an update.

It supports what most runs need. `rftlab.sim.round.general` supports all options, and gives the same bits here.

One update per round uses the logits that sampled, so every ratio is exactly 1; with more (epochs, mini-batches) each
update makes a forward pass of its own. All randomness comes from counters, so nothing random is stored.
"""

import math

import numpy as np

from rftlab.shared.advantage import advantages_into
from rftlab.shared.memory import push_into
from rftlab.shared.objective import objective_and_weights_into
from rftlab.shared.plumbing.jit import entry, kernel
from rftlab.shared.prepare import Batch, shape_into
from rftlab.sim.lanes.random import COMMON, NUISANCE, ROLLOUT, normals, uniforms
from rftlab.sim.lanes.simd import prefetch
from rftlab.sim.policy.common import base_policy, raise_correct, raise_long
from rftlab.sim.policy.policy import cumulate
from rftlab.sim.policy.probabilities import find_probabilities
from rftlab.sim.policy.products import backward, forward, whole_blocks
from rftlab.sim.round.answers import (
    N,
    add_baseline_set,
    add_logits,
    answer_logp,
    count_group,
    draw_answer,
    shares_by_length,
)
from rftlab.sim.round.common import CommonNoise, teach_common
from rftlab.sim.round.optimizer import ascend
from rftlab.sim.round.scores import interfere, score_answers
from rftlab.sim.state import TOTAL


@kernel(inline="always")
def fetch(contexts, plan, windows, batch):
    """Prefetch the data of a chunk's contexts, apart from features. These are scattered cache lines, for which loops
    would wait one by one."""
    columns, size = contexts.base_logits.shape[1], windows.rewards.shape[1]
    for row in range(batch.shape[0]):
        context = batch[row]
        prefetch(contexts.base_logits, context * columns)
        prefetch(contexts.base_lse, context)
        prefetch(contexts.base_format, context)
        prefetch(contexts.base_format_logp, context * 2)
        prefetch(contexts.correct, context)
        if plan.replays:
            prefetch(windows.pushed, context)
            prefetch(windows.rewards, context * size)
            prefetch(windows.rewards, context * size + size - 1)


@kernel(forceinline=True)
def respond(contexts, plan, row, context, draw, at, count, work):
    """Sample and score `count` rollouts of a context, stored from `at` on. work.cdf holds its cumulative probabilities;
    draw: index of their first uniform.

    Shared values are read once, because after each store into `work` the compiler would read them again.
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
    """Sample and score K + M rollouts of each context, with log-probabilities under the policy and the base policy."""
    n, k, m, tokens = batch.shape[0], plan.rollouts, plan.support, len(plan.token_starts)
    uniforms(plan.key, round_index, batch, (k + m) * tokens, ROLLOUT, work.uniform)
    for row in range(n):
        cumulate(work.probs, row, work.cdf)
        draw = row * (k + m) * tokens
        respond(contexts, plan, row, batch[row], draw, row * k, k, work)
        if m > 0:
            respond(contexts, plan, row, batch[row], draw + k * tokens, n * k + row * m, m, work)


CHUNK = 128


@kernel(forceinline=True)
def find_logits(contexts, plan, theta, batch, base, work):
    """Compute the logits of a batch's contexts; work.rows then holds these contexts, padded to whole blocks. base: the
    result of `common.base_policy`."""
    n = batch.shape[0]
    for r in range(whole_blocks(n)):
        # Tiles work on whole blocks; copies of the last context pad the block, and their logits are not used.
        work.rows[r] = batch[min(r, n - 1)]
    forward(contexts, theta, work.rows[: whole_blocks(n)], base.scale, work.logits)
    if plan.correctness > 0.0:
        raise_correct(contexts, batch, base.lift, work.logits)
    if plan.verbosity > 0.0:
        raise_long(plan, n, base.lengthen, work.logits)


@kernel(forceinline=True)
def policy_forward(contexts, plan, theta, batch, work):
    """Compute logits, probabilities and format of a batch's contexts; work.rows then holds these, padded to whole
    blocks. Return the coefficients of the base policy's logits."""
    base = base_policy(plan, theta)
    find_logits(contexts, plan, theta, batch, base, work)
    find_probabilities(contexts, plan, theta, batch, base, work)
    return base


@kernel(inline="always")
def find_baselines(plan, windows, batch, work):
    """Push the trained rewards to the windows, then collect each context's baseline set."""
    n, k, m = batch.shape[0], plan.rollouts, plan.support
    if plan.replays:
        for row in range(n):
            push_into(windows, batch[row], work.reward, row * k, row * k + k)
    end = np.int64(0)  # a plain 0 has another type, and numba would compile the callees twice
    for row in range(n):
        work.pool_starts[row] = end
        own, support = work.reward[row * k : row * k + k], work.reward[n * k + row * m : n * k + (row + 1) * m]
        end = add_baseline_set(plan, windows, batch[row], own, support, work.pool, end)
    work.pool_starts[n] = end


@kernel(inline="always")
def set_scores(contexts, plan, round_index, batch, first, rows, slope, work, grad):
    """Compute the score of each row from its answers. Return the gradient of the format parameter; that of the shared
    parameters is added to `grad`."""
    k, tokens, format_grad = plan.rollouts, len(plan.token_starts), 0.0
    if plan.nuisance > 0.0:
        normals(plan.key, round_index, rows, NUISANCE, work.noise)
    if plan.n_common > 0:
        normals(plan.key, round_index, rows, COMMON, work.common_noise)
    for row in range(batch.shape[0]):
        weights, at = work.weight[row * k : (row + 1) * k], first + row * k
        forms, arms = work.form[at : at + k], work.arm[at * tokens : (at + k) * tokens]
        formed, spread = score_answers(plan, work, row, weights, forms, arms, plan.nuisance, work.noise, work.scores)
        format_grad += formed
        if plan.n_common > 0:
            noise = CommonNoise(spread, spread * spread)
            teach_common(
                contexts, plan, slope, row, batch[row], noise, work.common_noise, work.noise, work.scores, grad
            )
    # Rows that only pad a block must not contribute to the gradient.
    work.scores[batch.shape[0] : rows.shape[0]] = 0.0
    return plan.format_scale * format_grad


@kernel(inline="always")
def find_logp_again(plan, n, first, work):
    """Compute log-probabilities of the trained rollouts of n contexts, the first being `first`, under the policy of the
    last `policy_forward`."""
    k, tokens = plan.rollouts, len(plan.token_starts)
    for row in range(n):
        for t in range(row * k, row * k + k):
            work.logp[t] = answer_logp(plan, work, row, work.arm, N((first + t) * tokens), work.form[first + t])


@kernel(inline="always")
def accumulate_gradient(contexts, plan, rule, state, work, logp, round_index, batch, first, slope, totals):
    """Add the gradient of the contexts in `batch`; logp: that of their trained rollouts, the first being `first`.
    slope: as in `common.BasePolicy`."""
    n, rows = batch.shape[0] * plan.rollouts, work.rows[: whole_blocks(batch.shape[0])]
    part = slice(first, first + n)
    if plan.length_by_style > 0.0:
        shares_by_length(plan, rule.aggregation, work.arm, first, n, work.share)
        for i in range(n):
            work.kl_share[i] = rule.kl.in_loss * work.share[i]
    # These are slices of the round, so that a chunk or mini-batch is prepared without a copy.
    fixed = Batch(
        work.advantage[part], work.share, work.kl_share, work.old_logp[part], work.ref_logp[part], work.starts[part]
    )
    _, clipped, _, kl = objective_and_weights_into(rule, fixed, logp, work.weight)
    format_grad = set_scores(contexts, plan, round_index, batch, first, rows, slope, work, state.grad)
    backward(contexts, rows, work.scores, state.grad)
    if plan.interference > 0.0:
        interfere(contexts, plan, round_index, batch, rows, work.scores, work.uniform, state.grad)
    state.grad[-1] += format_grad
    totals[TOTAL.kl] += kl
    totals[TOTAL.clipped] += clipped
    totals[TOTAL.tokens] += n


@kernel(inline="always")
def optimizer_step(plan, state, totals):
    """Make one optimiser update along the gradient, which is set to 0. Return False where the gradient is not
    finite."""
    state.step[0] += 1
    norm = math.sqrt(ascend(plan.optimizer, state.step[0], state.grad, state.mean, state.square, state.theta))
    totals[TOTAL.grad_norm] += norm
    totals[TOTAL.updates] += 1
    return math.isfinite(norm)


@kernel(inline="always")
def sample_rollouts(contexts, plan, rule, state, work, round_index, batch, totals):
    """Roll out the contexts of a batch after `policy_forward`, and compute the advantages of their trained rollouts."""
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
    for row in range(batch.shape[0]):
        part = slice(row * plan.rollouts, (row + 1) * plan.rollouts)
        count_group(work.reward[part], work.advantage[part], totals)


@entry
def train_rounds(contexts, plan, rule, state, work, batches, first_round, totals):
    """Train on batches (rounds, B) of context indices. Return the number of rounds done, which is smaller where the run
    diverged.

    A round goes chunk by chunk, so that a chunk's features stay in the second-level cache from the logits to the
    gradient. `work` then holds the last chunk. With several updates a batch is sampled as one chunk, and each update
    makes a forward pass on a part of it. Both cases are iterations of one loop, because inlining the parts of a round
    in two places doubles the time to compile.
    """
    n, again = batches.shape[1], plan.epochs * plan.minibatches > 1
    # A round of one update needs no second forward pass: its ratios are 1, and its chunks add to one gradient.
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
            base = policy_forward(contexts, plan, state.theta, batch, work)
            if fresh:
                sample_rollouts(contexts, plan, rule, state, work, first_round + r, batch, totals)
            else:
                find_logp_again(plan, batch.shape[0], first, work)
            # Updates begin when all chunks are sampled, because with several updates each of them needs the whole
            # round.
            if fresh and again:
                continue
            logp = work.old_logp if fresh else work.logp
            accumulate_gradient(
                contexts, plan, rule, state, work, logp[:trained], first_round + r, batch, first, base.slope, totals
            )
            if again or turn + 1 == chunks:
                finite = finite and optimizer_step(plan, state, totals)
        if not finite:
            return r
    return batches.shape[0]
