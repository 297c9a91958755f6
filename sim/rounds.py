"""The compiled round: look at a batch of contexts, roll out, find the advantages, update.

One update per round uses the logits that sampled, so every ratio is exactly 1; with more (epochs, mini-batches) each update looks
again. All randomness comes from counters, so nothing random is stored.
"""

import math
from typing import NamedTuple

import numpy as np

from shared.advantage import advantages_into
from shared.aggregation import shares_into
from shared.jit import jit
from shared.replay import Windows, push_into, window_into
from shared.weigh import Batch, shape_into, weigh_into
from sim.optimizer import Rates, ascend
from sim.policy import BLOCK, backward, correct_probability, cumulate, forward, pick, softmax, start_score
from sim.random import EVALUATION, ROLLOUT, Key, uniforms
from sim.simd import LANES

EVALUATION_CHUNK = 64


class Plan(NamedTuple):
    """The numbers of a run that kernels need besides the estimator's rule."""

    key: Key
    rates: Rates
    n_arms: int
    format_scale: float
    nuisance: float
    rollouts: int
    support: int
    epochs: int
    minibatches: int
    replays: bool


class State(NamedTuple):
    """Everything that a run changes and a checkpoint would hold."""

    theta: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    grad: np.ndarray
    windows: Windows
    step: np.ndarray
    """(1,) updates so far."""


class Work(NamedTuple):
    """Scratch of a run. Rows stand for contexts of a batch, padded to whole blocks; rollouts lie trained first, then support."""

    rows: np.ndarray
    logits: np.ndarray
    probs: np.ndarray
    lse: np.ndarray
    format_logp: np.ndarray
    """(rows, 2) log-probability of each format."""
    formed: np.ndarray
    """(rows,) probability of a well-formed response."""
    scores: np.ndarray
    cdf: np.ndarray
    uniform: np.ndarray
    arm: np.ndarray
    form: np.ndarray
    reward: np.ndarray
    logp: np.ndarray
    old_logp: np.ndarray
    ref_logp: np.ndarray
    group: np.ndarray
    starts: np.ndarray
    pool: np.ndarray
    pool_starts: np.ndarray
    advantage: np.ndarray
    share: np.ndarray
    kl_share: np.ndarray
    weight: np.ndarray


# Sums over rounds; tokens (weighed), updates, contexts and rollouts are the counts that turn the others into means.
REWARD, KL, CLIPPED, ZERO_SIGNAL, GRAD_NORM, TOKENS, UPDATES, CONTEXTS, ROLLOUTS = range(9)


@jit
def find_logits(contexts, theta, batch, work):
    """Logits of the contexts of a batch; returns the rows in use, filled up to whole blocks."""
    n = batch.shape[0]
    n_rows = (n + BLOCK - 1) // BLOCK * BLOCK
    for r in range(n_rows):
        work.rows[r] = batch[min(r, n - 1)]
    rows = work.rows[:n_rows]
    forward(contexts, theta, rows, work.logits)
    return rows


@jit
def look(contexts, plan, theta, batch, work):
    """Logits, probabilities and format of the contexts of a batch; returns the rows in use, filled up to whole blocks."""
    rows = find_logits(contexts, theta, batch, work)
    for r in range(batch.shape[0]):
        work.lse[r] = softmax(work.logits, r, work.probs)
        h = contexts.base_format[batch[r]] + plan.format_scale * theta[-1]
        small = math.exp(-abs(h))
        rest = math.log1p(small)
        work.formed[r] = (1.0 if h >= 0.0 else small) / (1.0 + small)
        work.format_logp[r, 0] = min(-h, 0.0) - rest
        work.format_logp[r, 1] = min(h, 0.0) - rest
    return rows


@jit
def roll_out(contexts, plan, round_index, batch, work):
    """Sample and score K + M rollouts of each context, with their log-probabilities under the policy and the base policy."""
    n, k, m = batch.shape[0], plan.rollouts, plan.support
    for row in range(n):
        context = batch[row]
        cumulate(work.probs, row, work.cdf)
        correct = contexts.correct[context]
        offset, base_offset = -work.lse[row], -contexts.base_lse[context]
        for j in range(k + m):
            lane = j & (LANES - 1)
            if lane == 0:
                uniforms(plan.key, round_index, context, j, ROLLOUT, work.uniform)
            form = 1 if work.uniform[0, lane] < work.formed[row] else 0
            arm = pick(work.cdf, work.uniform[1, lane])
            t = row * k + j if j < k else n * k + row * m + j - k
            work.arm[t], work.form[t] = arm, form
            work.reward[t] = form * ((correct >> np.uint32(arm)) & np.uint32(1))
            work.old_logp[t] = work.logits[row, arm] + offset + work.format_logp[row, form]
            work.ref_logp[t] = contexts.base_logits[context, arm] + base_offset + contexts.base_format_logp[context, form]


@jit
def find_baselines(plan, windows, batch, work):
    """Push the trained rewards to the windows, then gather each context's baseline set."""
    n, k, m = batch.shape[0], plan.rollouts, plan.support
    if plan.replays:
        for row in range(n):
            push_into(windows, batch[row], work.reward, row * k, row * k + k)
    end = 0
    for row in range(n):
        work.pool_starts[row] = end
        if plan.replays:
            end = window_into(windows, batch[row], work.pool, end)
        else:
            for t in range(row * k, row * k + k):
                work.pool[end] = work.reward[t]
                end += 1
        for t in range(n * k + row * m, n * k + (row + 1) * m):
            work.pool[end] = work.reward[t]
            end += 1
    work.pool_starts[n] = end


@jit
def count_signal(plan, n, work, totals):
    """Add a round's rewards and contexts without signal to the totals."""
    k = plan.rollouts
    for row in range(n):
        silent = True
        for t in range(row * k, row * k + k):
            totals[REWARD] += work.reward[t]
            silent = silent and work.advantage[t] == 0.0
        totals[ZERO_SIGNAL] += silent
    totals[CONTEXTS] += n
    totals[ROLLOUTS] += n * k


@jit
def set_scores(plan, round_index, batch, first, work):
    """Score of each row: sum_k w_k (e_{a_k} - pi) plus the nuisance; returns the gradient of the format parameter.

    The nuisance of K independent rollouts with weights w_k is one normal vector of standard deviation sqrt(sum_k w_k^2).
    """
    k, format_grad = plan.rollouts, 0.0
    for row in range(batch.shape[0]):
        weight, squares, formed = 0.0, 0.0, 0.0
        for j in range(k):
            w = work.weight[row * k + j]
            weight += w
            squares += w * w
            formed += w * work.form[first + row * k + j]
        start_score(work.probs, row, weight, plan.nuisance * math.sqrt(squares), plan.key, round_index, batch[row], plan.n_arms, work.scores)
        for j in range(k):
            work.scores[row, work.arm[first + row * k + j]] += work.weight[row * k + j]
        format_grad += formed - weight * work.formed[row]
    return plan.format_scale * format_grad


@jit
def update(contexts, plan, rule, state, work, round_index, batch, first, rows, totals):
    """One optimiser update on the contexts of `batch`, whose first trained rollout is `first`; False where it diverged."""
    n, n_rows = batch.shape[0] * plan.rollouts, rows.shape[0]
    for t in range(n):
        row = t // plan.rollouts
        work.logp[t] = work.logits[row, work.arm[first + t]] - work.lse[row] + work.format_logp[row, work.form[first + t]]
    shares_into(rule, work.starts[: n + 1], float(n), float(n), work.share)
    for t in range(n):
        work.kl_share[t] = rule.kl_in_loss * work.share[t]
    frozen = Batch(work.advantage[first : first + n], work.share[:n], work.kl_share[:n], work.old_logp[first : first + n], work.ref_logp[first : first + n])
    _, clipped, _, kl = weigh_into(rule, frozen, work.logp[:n], work.weight)
    format_grad = set_scores(plan, round_index, batch, first, work)
    work.scores[batch.shape[0] : n_rows] = 0.0
    backward(contexts, rows, work.scores, state.grad)
    state.grad[-1] += format_grad
    state.step[0] += 1
    norm = math.sqrt(ascend(plan.rates, state.step[0], state.grad, state.mean, state.square, state.theta))
    totals[KL] += kl
    totals[CLIPPED] += clipped
    totals[GRAD_NORM] += norm
    totals[TOKENS] += n
    totals[UPDATES] += 1
    return math.isfinite(norm)


@jit
def train_rounds(contexts, plan, rule, state, work, batches, first_round, totals):
    """Train on batches (rounds, B) of context indices; returns the rounds done, fewer than asked for where the run diverged."""
    n, k = batches.shape[1], plan.rollouts
    size = n // plan.minibatches
    for r in range(batches.shape[0]):
        batch, round_index = batches[r], first_round + r
        rows = look(contexts, plan, state.theta, batch, work)
        roll_out(contexts, plan, round_index, batch, work)
        if rule.kl_in_reward > 0.0:
            shape_into(rule, work.reward, work.starts, work.old_logp, work.ref_logp)
        find_baselines(plan, state.windows, batch, work)
        advantages_into(rule, work.reward[: n * k], work.group, work.pool, work.pool_starts, work.advantage)
        count_signal(plan, n, work, totals)
        for u in range(plan.epochs * plan.minibatches):
            low = u % plan.minibatches * size
            part = batch[low : low + size]
            if plan.epochs * plan.minibatches > 1:
                rows = look(contexts, plan, state.theta, part, work)
            if not update(contexts, plan, rule, state, work, round_index, part, low * k, rows, totals):
                return r
    return batches.shape[0]


@jit
def pass_at_1(contexts, plan, theta, work, round_index, sampled):
    """Mean probability that a response is correct, over all contexts; or the mean of one sampled response of each."""
    n, chance = contexts.base_format.shape[0], 0.0
    for start in range(0, n, EVALUATION_CHUNK):
        batch = np.arange(start, min(start + EVALUATION_CHUNK, n))
        find_logits(contexts, theta, batch, work)
        for row in range(batch.shape[0]):
            formed = 1.0 / (1.0 + math.exp(-contexts.base_format[batch[row]] - plan.format_scale * theta[-1]))
            p = formed * correct_probability(work.logits, row, contexts.correct[batch[row]])
            if sampled:
                uniforms(plan.key, round_index, batch[row], 0, EVALUATION, work.uniform)
                p = 1.0 if work.uniform[0, 0] < p else 0.0
            chance += p
    return chance / n
