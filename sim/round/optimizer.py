"""Update parameters by gradient ascent: Adam, SGD, and Adam with weights stored in bf16.

A weight w in bf16 has 8 significant bits: a step below half a unit in its last place, 1/512 to 1/256 of it, is lost,
and a larger one is rounded. On average a step s acts as if it moved, fully, the weights below 450 s. Of weights N(0,
0.02^2) that is the share erf(450 |s| / (0.02 sqrt 2)), approximated by y / sqrt(1 + y^2) with the same slope at 0. A
simulated coordinate stands for many weights, so its step is multiplied by that share: at small rates its movement grows
with the square of the rate, at large ones in proportion.
"""

import math

import numpy as np

from rftlab.shared.plumbing.arithmetic import total_of_squares
from rftlab.shared.plumbing.errors import code_for
from rftlab.shared.plumbing.jit import entry, kernel
from rftlab.sim.config import Optimizer, OptimizerKind
from rftlab.sim.lanes.simd import LANES, fma, load, splat, total
from rftlab.sim.policy.versions import for_linear
from rftlab.sim.state import OptimizerRule

SGD = code_for(OptimizerKind, "sgd")
LEAST_STEP = 1 / 450
"""Smallest step that a bf16 weight keeps, relative to the weight."""
WEIGHT_SCALE = 0.02
"""Standard deviation of the weights of the model."""


def optimizer_rule(optimizer: Optimizer) -> OptimizerRule:
    """Return the numbers of an `Optimizer` that kernels take."""
    return OptimizerRule(
        code_for(OptimizerKind, optimizer.kind),
        optimizer.learning_rate,
        optimizer.beta1,
        optimizer.beta2,
        optimizer.eps,
        _bf16_factor(optimizer),
    )


def _bf16_factor(optimizer: Optimizer) -> float:
    """Return the factor from a simulated step to y; 0 for fp32 weights."""
    if optimizer.bf16_rate == 0:
        return 0.0
    slope = 2 / math.sqrt(math.pi) / (LEAST_STEP * WEIGHT_SCALE * math.sqrt(2))
    return slope * optimizer.bf16_rate / optimizer.learning_rate


@for_linear
def squared_length(values):
    """Return the sum of the squares of values (n,)."""
    whole = values.shape[0] // (4 * LANES) * 4 * LANES
    a = b = c = e = splat(np.float32(0.0))  # four sums, because each addition waits for the one before it
    for i in range(0, whole, 4 * LANES):
        a, b = _add_square(values, i, a), _add_square(values, i + LANES, b)
        c, e = _add_square(values, i + 2 * LANES, c), _add_square(values, i + 3 * LANES, e)
    squares = total((a + b) + (c + e))
    for i in range(whole, values.shape[0]):
        squares += values[i] * values[i]
    return squares


@kernel
def _add_square(values, at, lanes):
    return fma(load(values, at), load(values, at), lanes)


@squared_length.for_tabular
def _(values):
    return total_of_squares(values)


@entry
def ascend(rule, step, grad, mean, square, theta):
    """Update theta along grad (all flat, of one length); step: number of this update, from 1. Set grad to 0 and return
    its squared norm."""
    number = theta.dtype.type
    squared_norm = squared_length(grad)
    if rule.kind == SGD:
        for i in range(theta.shape[0]):
            theta[i] += number(rule.learning_rate) * grad[i]
            grad[i] = number(0.0)
        return squared_norm
    beta1, beta2, eps = number(rule.beta1), number(rule.beta2), number(rule.eps)
    one = number(1.0)
    # Both bias corrections of Adam are the same for all weights, so they are computed once.
    rate = number(rule.learning_rate / (1.0 - rule.beta1**step))
    scale = number(1.0 / (1.0 - rule.beta2**step))
    if rule.bf16 > 0.0:  # a loop of its own, because a branch would keep the other loop from being vectorised
        factor = number(rule.bf16)
        for i in range(theta.shape[0]):
            g = grad[i]
            mean[i] = beta1 * mean[i] + (one - beta1) * g
            square[i] = beta2 * square[i] + (one - beta2) * g * g
            move = rate * mean[i] / (np.sqrt(scale * square[i]) + eps)
            y = factor * move
            theta[i] += move * np.abs(y) / np.sqrt(one + y * y)
            grad[i] = number(0.0)
        return squared_norm
    for i in range(theta.shape[0]):
        g = grad[i]
        mean[i] = beta1 * mean[i] + (one - beta1) * g
        square[i] = beta2 * square[i] + (one - beta2) * g * g
        theta[i] += rate * mean[i] / (np.sqrt(scale * square[i]) + eps)
        grad[i] = number(0.0)
    return squared_norm
