"""Baselines that need more than the rewards of a batch: the greedy response's reward, a critic, a moving average,
the optimal one."""

import numpy as np

from rftlab.shared.averages import average_of
from rftlab.shared.config.advantage import GREEDY, MOVING_AVERAGE, OPTIMAL, VALUE
from rftlab.shared.jit import inner


@inner
def greedy_reward(contexts, view, row, context):
    """Reward of the most likely response (ReMax, 2310.10505)."""
    arm = np.argmax(view.probs[row])
    right = (contexts.correct[context] >> np.uint32(arm)) & np.uint32(1)
    return 1.0 if view.formed[row] >= 0.5 and right == 1 else 0.0


@inner
def optimal_baseline(contexts, plan, view, row, context):
    """E[r |s|^2] / E[|s|^2] over the responses of a context, s the score in all parameters (Greensmith et al. 2004)."""
    scale = 1.0
    if contexts.features.shape[1] > 0:
        scale = 0.0
        for k in range(contexts.features.shape[1]):
            scale += contexts.features[context, k] ** 2
    squares = 0.0
    for a in range(plan.n_arms):
        squares += view.probs[row, a] ** 2
    formed, nuisance = view.formed[row], plan.n_arms * plan.nuisance**2
    right, right_squares = 0.0, 0.0
    for a in range(plan.n_arms):
        if (contexts.correct[context] >> np.uint32(a)) & np.uint32(1):
            p = view.probs[row, a]
            right += p
            right_squares += p * (1.0 - 2.0 * p + squares)
    above = formed * (scale * (right_squares + right * nuisance) + right * (plan.format_scale * (1.0 - formed)) ** 2)
    below = scale * (1.0 - squares + nuisance) + plan.format_scale**2 * formed * (1.0 - formed)
    return above / below if below > 0.0 else 0.0


@inner
def value_of(contexts, critic, context):
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
    error, d = target - value_of(contexts, critic, context), contexts.features.shape[1]
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
def find_baseline(contexts, plan, kind, memory, view, row, context):
    """The baseline of that kind for a context, before this round's rewards."""
    if kind == GREEDY:
        return greedy_reward(contexts, view, row, context)
    if kind == OPTIMAL:
        return optimal_baseline(contexts, plan, view, row, context)
    if kind == VALUE:
        return value_of(contexts, memory.critic, context)
    if kind == MOVING_AVERAGE:
        return average_of(memory.averages, context)
    return 0.0
