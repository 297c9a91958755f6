"""Baselines that need more than the rewards of a batch: the greedy response's reward, a critic, a moving average,
the optimal one."""

import numpy as np

from rftlab.shared.config.advantage import GREEDY, MOVING_AVERAGE, OPTIMAL, VALUE
from rftlab.shared.memory import read_average
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.jit import inner
from rftlab.sim.policy.spelling import most_likely
from rftlab.sim.policy.style import style_length, style_side
from rftlab.sim.round.common import common_squares


@inner
def greedy_reward(contexts, plan, view, row, context):
    """Reward of the response of the most likely tokens (ReMax, 2310.10505)."""
    right = np.uint32(1)
    for low in plan.token_starts:
        right &= contexts.correct[context] >> np.uint32(most_likely(plan, view.probs, row, low))
    return 1.0 if view.formed[row] >= 0.5 and right == 1 else 0.0


@inner
def greedy_length(plan, style, view, row):
    """Style tokens of that response."""
    side = 0.0
    for low in plan.token_starts:
        side += style_side(style, most_likely(plan, view.probs, row, low))
    return style_length(style, side / len(plan.token_starts), 0.5)


@inner
def squared_features(contexts, plan, context, other):
    """|x_i + c x_j|^2, by which the score of context i in W is longer than that in its logits; c: interference with
    context j, `other`."""
    d, norm = contexts.features.shape[1], 0.0
    if d == 0:
        return (1.0 + plan.interference) ** 2 if context == other else 1.0 + plan.interference**2
    for k in range(d):
        x = contexts.features[context, k]
        if plan.interference > 0.0:
            x += plan.interference * contexts.features[other, k]
        norm += x**2
    return norm


@inner
def token_squares(contexts, plan, view, row, context, low):
    """Of a token that starts at arm `low`: E[D], Pr(right) and E[right D], where D = |e - pi|^2 = 1 - 2 pi_a + sum_b
    pi_b^2."""
    last, squares, right, right_squares = low + plan.n_arms // len(plan.token_starts), 0.0, 0.0, 0.0
    for a in range(low, last):
        squares += view.probs[row, a] ** 2
    for a in range(low, last):
        if (contexts.correct[context] >> np.uint32(a)) & np.uint32(1):
            p = view.probs[row, a]
            right += p
            right_squares += p * (1.0 - 2.0 * p + squares)
    return 1.0 - squares, right, right_squares


@inner
def optimal_baseline(contexts, plan, view, row, context, other):
    """E[r |s|^2] / E[|s|^2] over the responses of a context, s the score in all parameters (Greensmith et al. 2004).

    |s|^2 = g (v + (1 + q v) D - q v) + (format score)^2 + that of `common_squares`, with g of `squared_features`, v = A
    sn^2 the nuisance's square, q the surprise, and D the sum of the tokens'. These are independent: E[right D] = sum_s
    E[right_s D_s] prod_{u != s} Pr(right_u), token by token. Style tokens count as the Gaussian nuisance whose place
    they take.
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


@inner
def critic_value(contexts, critic, context):
    """The critic's value of a context: linear in its features, or a number of its own in the tabular environment."""
    d = contexts.features.shape[1]
    if d == 0:
        return critic[context]
    value = critic[d]
    for k in range(d):
        value += critic[k] * contexts.features[context, k]
    return value


@inner
def teach_critic(contexts, rate, critic, context, target):
    """A normalised step of the critic towards the mean reward of a context."""
    error, d = target - critic_value(contexts, critic, context), contexts.features.shape[1]
    if d == 0:
        critic[context] += rate * error
        return
    size = 1.0
    for k in range(d):
        size += contexts.features[context, k] ** 2
    for k in range(d):
        critic[k] += rate * error / size * contexts.features[context, k]
    critic[d] += rate * error / size


@inner
def find_baseline(contexts, plan, kind, memory, view, row, context, other):
    """The baseline of that kind for a context that interferes with `other`, before this round's rewards."""
    if kind == GREEDY:
        return greedy_reward(contexts, plan, view, row, context)
    if kind == OPTIMAL:
        return optimal_baseline(contexts, plan, view, row, context, other)
    if kind == VALUE:
        return critic_value(contexts, memory.critic, context)
    if kind == MOVING_AVERAGE:
        return read_average(memory.averages, context)
    raise UserError("advantage.baseline has a name that the simulator does not find")
