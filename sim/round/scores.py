"""Compute the scores of a round, the gradients of its responses with respect to logits and format. Entropy and style
tokens belong to the general round.

Besides the randomness of rollouts, two options make the gradient noisy, both off by default (docs/simulator.md gives
their reasons): nuisance that depends on surprise, and interference between contexts.
"""

import math

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.random import INTERFERENCE, uniforms
from rftlab.sim.policy.policy import add_arms, start_score, weight_sums
from rftlab.sim.policy.products import backward
from rftlab.sim.policy.spelling import squared_length
from rftlab.sim.policy.style import style_logp, style_probability
from rftlab.sim.round.answers import relative_length
from rftlab.sim.round.common import CommonNoise
from rftlab.sim.round.ragged import INT, MARK, ROW, TOKEN


@kernel
def squared_weights(plan, probs, row, weights, arms):
    """Return sum_k w_k^2 v_k over a context's rollouts, weights (K,), arms (K T,).

    v = 1 - q + q |e - pi|^2 is the variance of a rollout's nuisance relative to plan.nuisance^2, with q the surprise.
    |e - pi|^2 is the sum over its tokens of 1 - 2 pi_a + sum_b pi_b^2. Where lengths are virtual, v is multiplied by
    the response's relative length.
    """
    total, tokens = 0.0, len(plan.token_starts)
    sharpness = squared_length(probs, row)
    for k in range(weights.shape[0]):
        # |e - pi|^2 = 1 - 2 pi_a + |pi|^2 for each token; 1 and |pi|^2 are the same for all rollouts of a context.
        distance = tokens + sharpness
        for i in range(k * tokens, (k + 1) * tokens):
            distance -= 2.0 * probs[row, arms[i]]
        variance = (
            1.0 - plan.surprise + plan.surprise * max(distance, 0.0)
        )  # rounding may make the distance of a certain response negative
        if plan.length_by_style > 0.0:
            variance *= relative_length(plan, arms, k * tokens)
        total += weights[k] ** 2 * variance
    return total


@kernel
def find_others(contexts, plan, round_index, batch, uniform, others):
    """Fill others (n,) with the contexts that those of a batch interfere with in a round. uniform: scratch, as in
    `uniforms`."""
    uniforms(plan.key, round_index, batch, np.int64(1), INTERFERENCE, uniform)
    for row in range(batch.shape[0]):
        others[row] = int(uniform[0, row] * contexts.base_format.shape[0])


@kernel
def interfere(contexts, plan, round_index, batch, rows, scores, uniform, grad):
    """Add plan.interference x_j s_i^T to the gradient for every context i of the batch; s_i is its score, j a random
    context.

    Overwrites the scores and `rows`, the padded batch.
    """
    find_others(contexts, plan, round_index, batch, uniform, rows)
    for row in range(batch.shape[0]):
        for a in range(plan.n_arms):
            scores[row, a] *= plan.interference
    backward(contexts, rows, scores, grad)


@kernel(forceinline=True)
def score_answers(plan, view, row, weights, forms, arms, nuisance, noise, scores):
    """Set scores[row] to sum_k w_k (e_k - pi) plus the nuisance. Return sum_k w_k (f_k - formed), the score of the
    format's logit, and the deviation of the nuisance.

    weights and forms (K,), arms (K T,) of a context's answers; view: its policy (`Work` or `View`). The nuisance of K
    independent rollouts with weights w_k is one normal vector of standard deviation nuisance sqrt(sum_k w_k^2).
    """
    weight, squares, formed = weight_sums(weights, forms)
    if plan.surprise > 0.0 or plan.length_by_style > 0.0:
        squares = squared_weights(plan, view.probs, row, weights, arms)
    spread = nuisance * math.sqrt(squares)
    # sum_k w_k (e_k - pi) subtracts pi once, times the sum of the weights.
    start_score(view.probs, row, weight, spread, noise, plan.n_arms, scores)
    add_arms(weights, arms, len(plan.token_starts), row, scores)
    return formed - weight * view.formed[row], spread


@kernel
def add_style_scores(plan, choices, entropy, row, at, ragged, scores):
    """Add the scores of a row's style tokens to scores[at], entropy bonus included. Return the sum of their scores in
    the tokens' logits. entropy: coefficient of that bonus."""
    first, starts = ragged.rows[ROW.first], ragged.ints[INT.start]
    weights, style_logits, plain_share = (
        ragged.tokens[TOKEN.weight],
        ragged.tokens[TOKEN.style_logit],
        ragged.tokens[TOKEN.plain_share],
    )
    signs_of, style_tokens = ragged.marks[MARK.signs], ragged.marks[MARK.style_token]
    ragged.style_score[:], pushes = 0.0, 0.0
    for i in range(first[row], first[row + 1]):
        for t in range(starts[i] + 1, starts[i + 1]):
            p = style_probability(style_logits[t])
            push = weights[t] * (style_tokens[t] - p) - entropy * plain_share[t] * style_logits[t] * p * (1.0 - p)
            pushes += push
            for a in range(plan.n_arms):
                ragged.style_score[a] += push if (signs_of[t] >> a) & 1 else -push
    for a in range(plan.n_arms):
        scores[at, a] += choices.style.slope * ragged.style_score[a]
    return pushes


@kernel
def gradient_noise(choices, spread, first, last, ragged):
    """Return the noise in the gradient of shared parameters from responses first .. last-1 of a context; spread:
    deviation of the Gaussian nuisance in their scores.

    A style token has a random sign in these parameters, as in each arm, so style tokens have the nuisance's variance.
    """
    if choices.style.slope == 0.0:
        return CommonNoise(spread, spread * spread)
    starts, weights, squares = ragged.ints[INT.start], ragged.tokens[TOKEN.weight], 0.0
    for i in range(first, last):
        for t in range(starts[i] + 1, starts[i + 1]):
            squares += weights[t] ** 2
    q = style_probability(choices.style.base)
    return CommonNoise(0.0, q * (1.0 - q) * choices.style.slope**2 * squares)


@kernel
def find_entropies(plan, view, low, high, ragged):
    """Fill ragged.keys[0] with the entropies of the distributions of the tokens of rows low .. high-1, under a view of
    these rows: one for an answer with its format, and one for each style token."""
    first, starts, width = ragged.rows[ROW.first], ragged.ints[INT.start], plan.n_arms // len(plan.token_starts)
    begin, style_logits = starts[first[low]], ragged.tokens[TOKEN.style_logit]
    for row in range(low, high):
        answer, formed = 0.0, np.float64(view.formed[row - low])
        for start in plan.token_starts:
            for a in range(start, start + width):
                p = view.probs[row - low, a]
                answer -= p * math.log(p) if p > 0.0 else 0.0
        for q in (formed, 1.0 - formed):
            answer -= q * math.log(q) if q > 0.0 else 0.0
        for i in range(first[row], first[row + 1]):
            ragged.keys[0, starts[i] - begin] = answer
            for t in range(starts[i] + 1, starts[i + 1]):
                yes, no = style_logp(style_logits[t], True), style_logp(style_logits[t], False)
                ragged.keys[0, t - begin] = -math.exp(yes) * yes - math.exp(no) * no


@kernel
def add_entropy(plan, view, row, share, scores):
    """Add share times the gradient of the entropy of a context's answer and format, a sum over its tokens; return the
    format's part."""
    width = plan.n_arms // len(plan.token_starts)
    for low in plan.token_starts:
        entropy = 0.0
        for a in range(low, low + width):
            p = view.probs[row, a]
            entropy -= p * math.log(p) if p > 0.0 else 0.0
        for a in range(low, low + width):
            p = view.probs[row, a]
            # dH/dz_a = -p_a (log p_a + H).
            scores[row, a] -= share * p * (math.log(p) + entropy) if p > 0.0 else 0.0
    formed, logit = view.formed[row], view.format_logp[1, row] - view.format_logp[0, row]
    # For a Bernoulli variable dH/dh = -h p (1 - p), which is 0 in the limit where the logit is infinite.
    return -share * logit * formed * (1.0 - formed) if math.isfinite(logit) else 0.0
