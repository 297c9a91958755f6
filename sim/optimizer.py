"""Gradient ascent: Adam and SGD."""

from typing import NamedTuple, get_args

import numpy as np

from shared.jit import entry
from sim.config import Optimizer, OptimizerKind

ADAM, SGD = range(2)


class Rates(NamedTuple):
    """An `Optimizer` as plain numbers, for kernels."""

    kind: int
    rate: float
    beta1: float
    beta2: float
    eps: float


def rates_of(optimizer: Optimizer) -> Rates:
    """The numbers that kernels take instead of an `Optimizer`."""
    return Rates(get_args(OptimizerKind).index(optimizer.kind), optimizer.rate, optimizer.beta1, optimizer.beta2, optimizer.eps)


@entry(fastmath={"reassoc", "contract"})
def ascend(rates, step, grad, mean, square, theta):
    """One update of theta along grad (all flat, one length), the step'th (from 1); empties grad and returns its squared norm."""
    number = theta.dtype.type
    squared_norm = number(0.0)
    if rates.kind == SGD:
        for i in range(theta.shape[0]):
            squared_norm += grad[i] * grad[i]
            theta[i] += number(rates.rate) * grad[i]
            grad[i] = number(0.0)
        return squared_norm
    beta1, beta2, eps = number(rates.beta1), number(rates.beta2), number(rates.eps)
    one = number(1.0)
    rate = number(rates.rate / (1.0 - rates.beta1**step))
    scale = number(1.0 / (1.0 - rates.beta2**step))
    for i in range(theta.shape[0]):
        g = grad[i]
        squared_norm += g * g
        mean[i] = beta1 * mean[i] + (one - beta1) * g
        square[i] = beta2 * square[i] + (one - beta2) * g * g
        theta[i] += rate * mean[i] / (np.sqrt(scale * square[i]) + eps)
        grad[i] = number(0.0)
    return squared_norm
