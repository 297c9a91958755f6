"""Compute estimates of KL(pi || reference) from the log-probability of one sampled token, and their derivatives."""

import numpy as np

from rftlab.shared.config.kl import ABS, K1, K2, K3, NONE
from rftlab.shared.plumbing.arithmetic import exp
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.jit import inner, jit


@inner
def anchor_ratio(rule, logp, ref_logp):
    """Return exp(-d) of `kl_penalty`, with the exponent clipped to the rule's limit."""
    return exp(min(max(ref_logp - logp, -rule.limit), rule.limit))


@inner
def check_kl(rule):
    """Raise UserError unless `kl_penalty_at` computes the kind. The check is a function of its own, because loops that
    may raise are slow."""
    if rule.kind != NONE and rule.kind != K1 and rule.kind != K2 and rule.kind != K3 and rule.kind != ABS:
        raise UserError("kl.kind has a name that no kernel computes")


@jit
def kl_penalty(rule, logp, ref_logp):
    """Return the penalty of a token and its derivative with respect to logp; d = logp - ref_logp.

    k1 = d, k2 = d^2/2, k3 = exp(-d) + d - 1, abs = |d|; where a bound holds k3, its derivative is 0.
    straight_through keeps the value and takes the derivative of k2, which is d.
    """
    check_kl(rule)
    return kl_penalty_at(rule, logp - ref_logp, anchor_ratio(rule, logp, ref_logp) if rule.kind == K3 else 1.0)


@inner
def kl_penalty_at(rule, d, ratio):
    """Return `kl_penalty`, given d and, for k3, the result of `anchor_ratio`."""
    if rule.kind == K1:
        value, slope = d, 1.0
    elif rule.kind == K2:
        value, slope = 0.5 * d * d, d
    elif rule.kind == K3:
        # This is exp(-d) - 1 - (-d) with both parts clipped alike, so that a bound cannot make k3 negative.
        value = ratio - 1.0 - min(max(-d, -rule.limit), rule.limit)
        slope = 0.0 if (abs(d) > rule.limit) | (value > rule.value_limit) else 1.0 - ratio
        value = min(value, rule.value_limit)
    elif rule.kind == ABS:
        value, slope = abs(d), float(np.sign(d))
    else:
        return 0.0, 0.0
    return value, d if rule.straight_through else slope
