"""Compute the surrogate objective of one token and its derivative.

Each surrogate is a frozen dataclass of numbers and a compiled formula j(A, logp, r), where r = exp(x) is the ratio to
the sampling policy. "Through the ratio" means that dj/dx is meant; the others hold the ratio fixed and differentiate
logp alone.
"""

import math

from rftlab.shared.config.surrogate import CISPO, CLIP, DRO, REINFORCE, SAPO, TOPR, VESPO
from rftlab.shared.plumbing.arithmetic import exp
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.jit import inner, jit


@inner
def through_ratio(kind):
    """Whether the derivative that `surrogate` returns is dj/dx of the log-ratio x; else it is dj/dlogp at a fixed
    ratio."""
    return (kind == CLIP) | (kind == SAPO)


@inner
def ratio_at(ratios, log_ratio):
    """Return exp of the log-ratio, which is clipped to ratios.floor .. cap."""
    return exp(min(max(log_ratio, ratios.floor), ratios.cap))


@inner
def clip(rule, ratios, advantage, log_ratio, ratio):
    """Return the results of `surrogate` for Clip, given the ratio."""
    is_held = (log_ratio < ratios.floor) | (log_ratio > ratios.cap)
    plain = advantage * ratio
    clipped = advantage * min(max(ratio, 1.0 - rule.low), 1.0 + rule.high)
    is_clipped = clipped < plain
    value = min(plain, clipped)
    # For A < 0 the objective has no floor as the ratio grows; the dual clip gives it one (1912.09729).
    is_dual = (advantage < 0.0) & (value < advantage * rule.dual)
    return (
        advantage * rule.dual if is_dual else value,
        0.0 if is_clipped | is_dual | is_held else plain,
        is_clipped,
        is_dual,
    )


@jit
def surrogate(rule, ratios, advantage, logp, log_ratio):
    """Return the objective j of a token, its derivative, and whether the clip and the dual clip are active.

    The log-ratio is clipped to ratios.floor .. cap; beyond, derivatives through the ratio are 0. The code chooses
    between values instead of branching, because advantages have random signs.
    """
    if rule.kind == CLIP:
        return clip(rule, ratios, advantage, log_ratio, ratio_at(ratios, log_ratio))
    if rule.kind == REINFORCE:
        return advantage * logp, advantage, False, False
    if rule.kind == DRO:
        return (
            advantage * logp - 0.5 * rule.beta * log_ratio * log_ratio,
            advantage - rule.beta * log_ratio,
            False,
            False,
        )
    held = min(max(log_ratio, ratios.floor), ratios.cap)
    ratio = exp(held)
    if rule.kind == CISPO:
        # A clipped ratio still weights log p: unlike with Clip, no token loses its gradient.
        weight = min(max(ratio, 1.0 - rule.low), 1.0 + rule.high) * advantage
        return weight * logp, weight, (ratio < 1.0 - rule.low) | (ratio > 1.0 + rule.high), False
    if rule.kind == TOPR:
        # Right responses at full weight, wrong ones only while the policy still makes them.
        weight = advantage if advantage >= 0.0 else min(ratio, 1.0) * advantage
        return weight * logp, weight, (advantage < 0.0) & (ratio > 1.0), False
    if rule.kind == SAPO:
        # The gate is 1/2 on policy with slope tau/4, so that 4/tau gives the gradient A there.
        tau = rule.tau_positive if advantage > 0.0 else rule.tau_negative
        gate = 1.0 / (1.0 + math.exp(-tau * (ratio - 1.0)))
        is_held = (log_ratio < ratios.floor) | (log_ratio > ratios.cap)
        return (
            advantage * gate * 4.0 / tau,
            0.0 if is_held else advantage * 4.0 * gate * (1.0 - gate) * ratio,
            False,
            False,
        )
    if rule.kind != VESPO:
        raise UserError("surrogate has a kind that no kernel computes")
    k, lam = (rule.k_positive, rule.lam_positive) if advantage >= 0.0 else (rule.k_negative, rule.lam_negative)
    # r^k exp(lam (1 - r)): a weight that is 1 on policy and falls on both sides.
    weight = math.exp(lam + k * held - lam * ratio) * advantage
    return weight * logp, weight, False, False
