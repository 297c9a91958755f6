"""Compute baselines that need more than the rewards of a batch: the greedy response's reward, a critic, a moving
average, the optimal baseline, and its estimate from the group."""

import math

import numpy as np

from rftlab.shared.advantage import whiten_into
from rftlab.shared.config.advantage import GREEDY, MOVING_AVERAGE, OPTIMAL, OPTIMAL_TOKEN, PLAIN, VALUE
from rftlab.shared.credit import optimal_tokens_into
from rftlab.shared.memory import read_average
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.jit import inner, kernel
from rftlab.sim.policy.spelling import most_likely
from rftlab.sim.policy.style import style_length, style_side
from rftlab.sim.round.common import common_squares
from rftlab.sim.round.ragged import INT, NUMBER, TOKEN


@kernel
def greedy_reward(contexts, plan, view, row, context):
    """Return the reward of the response of the most likely tokens (ReMax, 2310.10505)."""
    right = np.uint32(1)
    for low in plan.token_starts:
        right &= contexts.correct[context] >> np.uint32(most_likely(plan, view.probs, row, low))
    # As in greedy decoding, each token and the format are the most likely ones by themselves.
    return 1.0 if view.formed[row] >= 0.5 and right == 1 else 0.0


@kernel
def greedy_length(plan, style, view, row):
    """Return the number of style tokens of the greedy response."""
    side = 0.0
    for low in plan.token_starts:
        side += style_side(style, most_likely(plan, view.probs, row, low))
    return style_length(style, side / len(plan.token_starts), 0.5)


@kernel
def squared_features(contexts, plan, context, other):
    """Return |x_i + c x_j|^2, the factor from the squared score of context i in its logits to that in W; c:
    interference with context j, `other`."""
    d, norm = contexts.features.shape[1], 0.0
    if d == 0:
        return (1.0 + plan.interference) ** 2 if context == other else 1.0 + plan.interference**2
    for k in range(d):
        x = contexts.features[context, k]
        if plan.interference > 0.0:
            x += plan.interference * contexts.features[other, k]
        norm += x**2
    return norm


@kernel
def token_squares(contexts, plan, view, row, context, low):
    """Return E[D], Pr(right) and E[right D] of the token that starts at arm `low`, where D = |e - pi|^2 = 1 - 2 pi_a +
    sum_b pi_b^2."""
    last, squares, right, right_squares = low + plan.n_arms // len(plan.token_starts), 0.0, 0.0, 0.0
    for a in range(low, last):
        squares += view.probs[row, a] ** 2
    for a in range(low, last):
        if (contexts.correct[context] >> np.uint32(a)) & np.uint32(1):
            p = view.probs[row, a]
            right += p
            right_squares += p * (1.0 - 2.0 * p + squares)
    return 1.0 - squares, right, right_squares


@kernel
def optimal_baseline(contexts, plan, view, row, context, other):
    """Return E[r |s|^2] / E[|s|^2] over a context's responses, s the score in all parameters (Greensmith et al. 2004).

    |s|^2 = g (v + (1 + q v) D - q v) + (format score)^2 + that of `common_squares`, with g of `squared_features`, v = A
    sn^2 the nuisance's square, q the surprise, and D the sum of the tokens'. These are independent: E[right D] = sum_s
    E[right_s D_s] prod_{u != s} Pr(right_u), token by token. Style tokens count as the Gaussian nuisance that they
    replace.
    """
    scale, formed, nuisance = (
        squared_features(contexts, plan, context, other),
        view.formed[row],
        plan.n_arms * plan.nuisance**2,
    )
    squares, right, right_squares = 0.0, 1.0, 0.0
    for low in plan.token_starts:
        mine, chance, chance_squares = token_squares(contexts, plan, view, row, context, low)
        squares += mine
        # This is the product rule over independent tokens: one factor is squared, the others are probabilities.
        right_squares = right_squares * chance + right * chance_squares
        right *= chance
    slope, nuisance = 1.0 + nuisance * plan.surprise, nuisance * (1.0 - plan.surprise)
    above = formed * (
        scale * (slope * right_squares + right * nuisance) + right * (plan.format_scale * (1.0 - formed)) ** 2
    )
    below = scale * (slope * squares + nuisance) + plan.format_scale**2 * formed * (1.0 - formed)
    if plan.n_common > 0:
        common, right_common = common_squares(contexts, plan, view, row, context, right, squares, right_squares)
        above, below = above + formed * right_common, below + common
    return above / below if below > 0.0 else 0.0


@kernel
def find_squares(plan, view, row, a, b, ragged):
    """Compute sums of squared probabilities for the tokens of responses a .. b-1, which belong to `row` of the view
    that gave old_logp: over all answers with their format, and over the two values of a style token."""
    width, starts = plan.n_arms // len(plan.token_starts), ragged.ints[INT.start]
    squares, old_logp = ragged.tokens[TOKEN.squares], ragged.tokens[TOKEN.old_logp]
    formed = np.float64(view.formed[row])
    answer = formed**2 + (1.0 - formed) ** 2
    for low in plan.token_starts:
        total = 0.0
        for arm in range(low, low + width):
            total += np.float64(view.probs[row, arm]) ** 2
        answer *= total
    for i in range(a, b):
        squares[starts[i]] = answer
        for t in range(starts[i] + 1, starts[i + 1]):
            p = math.exp(old_logp[t])
            squares[t] = p**2 + (1.0 - p) ** 2


@inner
def optimal_token_advantages(rule, n, ragged):
    """Fill in the advantages of the first n responses of a round and of their tokens: reward minus the token's
    baseline, as `rftlab.shared.prepare.prepare` computes it from squares."""
    starts, group = ragged.ints[INT.start, : n + 1], ragged.ints[INT.group, :n]
    tokens = starts[n]
    returns, norms, position = np.empty(tokens), np.empty(tokens), np.empty(tokens, np.int64)
    for i in range(n):
        for t in range(starts[i], starts[i + 1]):
            returns[t], position[t] = ragged.numbers[NUMBER.reward, i], t - starts[i]
            norms[t] = 1.0 - 2.0 * math.exp(ragged.tokens[TOKEN.old_logp, t]) + ragged.tokens[TOKEN.squares, t]
    credit = ragged.tokens[TOKEN.advantage, :tokens]
    optimal_tokens_into(returns, norms, starts, group, position, 0.0, credit)
    for t in range(tokens):
        credit[t] = returns[t] - credit[t]
    if rule.whiten != PLAIN:
        whiten_into(rule.whiten, credit, np.ones(tokens), rule.ddof, rule.eps)
    for i in range(n):
        ragged.numbers[NUMBER.advantage, i] = credit[starts[i]]


@kernel
def critic_value(contexts, critic, context):
    """Return the critic's value of a context: linear in its features, or one parameter for each context in the tabular
    environment."""
    d = contexts.features.shape[1]
    if d == 0:
        return critic[context]
    value = critic[d]
    for k in range(d):
        value += critic[k] * contexts.features[context, k]
    return value


@kernel
def teach_critic(contexts, rate, critic, context, target):
    """Move the critic towards the mean reward of a context by a normalised step."""
    error, d = target - critic_value(contexts, critic, context), contexts.features.shape[1]
    if d == 0:
        critic[context] += rate * error
        return
    size = 1.0
    for k in range(d):
        # The step is divided by the squared norm of features and constant, so that a rate of 1 removes the error at
        # once.
        size += contexts.features[context, k] ** 2
    for k in range(d):
        critic[k] += rate * error / size * contexts.features[context, k]
    critic[d] += rate * error / size


@kernel
def find_baseline(contexts, plan, kind, memory, view, row, context, other):
    """Return the baseline of that kind for a context that interferes with `other`, before this round's rewards."""
    if kind == GREEDY:
        return greedy_reward(contexts, plan, view, row, context)
    if kind == OPTIMAL:
        return optimal_baseline(contexts, plan, view, row, context, other)
    if kind == VALUE:
        return critic_value(contexts, memory.critic, context)
    if kind == MOVING_AVERAGE:
        return read_average(memory.averages, context)
    if kind == OPTIMAL_TOKEN:
        return 0.0  # set for each token by `optimal_token_advantages`
    raise UserError("advantage.baseline has a name that the simulator does not find")
