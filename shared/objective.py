"""Compute the objective of a frozen batch at the current policy, and its derivative, which is the weight of each token
on its score."""

from typing import NamedTuple

import numpy as np

from rftlab.shared.config.kl import K3, NONE
from rftlab.shared.config.mask import CLIP_COV, TOP_ENTROPY, UNMASKED
from rftlab.shared.config.ratio import PRODUCT, SEQUENCE, SEQUENCE_TOKEN, TOKEN, TOKEN_LIMIT
from rftlab.shared.config.surrogate import CLIP, CUSTOM, GEOMETRIC_MEAN
from rftlab.shared.custom.functions import call_surrogate, raising
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.kl import anchor_ratio, check_kl, kl_penalty, kl_penalty_at
from rftlab.shared.mask import mask_into
from rftlab.shared.plumbing.arithmetic import BLOCK, block, block_total, exp
from rftlab.shared.plumbing.errors import UserError, check, check_type
from rftlab.shared.plumbing.jit import inner, jit
from rftlab.shared.prepare import Batch, column
from rftlab.shared.surrogate import clip, ratio_at, surrogate, through_ratio


class ObjectiveAndWeights(NamedTuple):
    """The objective of a batch at the current policy, its derivative, and sums for metrics (divide by T)."""

    objective: float
    weight: np.ndarray
    """(T,) dJ/dlogp: the weight of each token on its score."""
    clipped: int
    dual_clipped: int
    kl: float


@inner
def on_policy(batch, logp):
    """Whether the ratio of every token is exactly 1."""
    same = True
    for t in range(logp.shape[0]):
        # No early exit: a branch would keep the loop from comparing several tokens at once.
        same = same & (logp[t] == batch.old_logp[t])
    return same


@inner
def ratios_at(rule, batch, logp):
    """Return the ratio (T,) of each token, as `ratio_at` computes it."""
    ratios = np.empty(logp.shape[0])
    for t in range(logp.shape[0]):
        ratios[t] = ratio_at(rule, logp[t] - batch.old_logp[t])
    return ratios


@inner
def weighted_penalty(rule, log_ratio, logp, ref_logp):
    """Return the KL penalty of a token and its derivative, times the ratio where the estimator asks for it."""
    kl, slope = kl_penalty(rule.kl, logp, ref_logp)
    if rule.kl.weighted:
        ratio, is_held = (
            ratio_at(rule.ratio, log_ratio),
            (log_ratio < rule.ratio.floor) | (log_ratio > rule.ratio.cap),
        )
        return kl * ratio, (slope + (0.0 if is_held else kl)) * ratio
    return kl, slope


@inner(inline="always")
def clip_objective_into(rule, batch, logp, weight):
    """Fill weight as `token_objective_into` does, for Clip and a penalty that is not weighted. It is the most frequent
    case, and branches in the loop would cost a third of its time.

    Exponentials are computed first, then everything else, in loops that work on several tokens at once; the terms of
    sums are collected in blocks. `weight` holds the results of `anchor_ratio` meanwhile.
    """
    check_kl(rule.kl)
    # On policy, the usual case, every ratio is 1, and computing exponentials would take most of the time.
    ones = on_policy(batch, logp)
    ratios = batch.share if ones else ratios_at(rule.ratio, batch, logp)
    if rule.kl.kind == K3:
        for t in range(logp.shape[0]):
            weight[t] = anchor_ratio(rule.kl, logp[t], batch.ref_logp[t])
    objective, clipped, dual_clipped, kl_total, values, kls = 0.0, 0, 0, 0.0, block(), block()
    for start in range(0, logp.shape[0], BLOCK):
        stop = min(start + BLOCK, logp.shape[0])
        for i in range(stop - start):
            # An unsigned index avoids the check for negative indices that numba makes for signed ones.
            t = np.uintp(start + i)
            ratio = 1.0 if ones else ratios[t]
            value, slope, is_clipped, is_dual = clip(
                rule.surrogate, rule.ratio, batch.advantage[t], logp[t] - batch.old_logp[t], ratio
            )
            kl, kl_slope = kl_penalty_at(rule.kl, logp[t] - batch.ref_logp[t], weight[t])
            weight[t] = batch.share[t] * slope - batch.kl_share[t] * kl_slope
            values[i] = batch.share[t] * value - batch.kl_share[t] * kl
            kls[i] = kl
            clipped += is_clipped
            dual_clipped += is_dual
        # Blocks are added in a fixed order of lanes, so that every processor gets the same sum.
        objective += block_total(values, stop - start)
        kl_total += block_total(kls, stop - start)
    return objective, clipped, dual_clipped, kl_total


@inner
def token_objective_into(rule, batch, logp, weight):
    """Fill weight as `objective_and_weights_into` does, where each token has its own ratio."""
    objective, clipped, dual_clipped, kl_total = 0.0, 0, 0, 0.0
    for t in range(logp.shape[0]):
        log_ratio = logp[t] - batch.old_logp[t]
        value, slope, is_clipped, is_dual = surrogate(
            rule.surrogate, rule.ratio, batch.advantage[t], logp[t], log_ratio
        )
        kl, kl_slope = weighted_penalty(rule, log_ratio, logp[t], batch.ref_logp[t])
        objective += batch.share[t] * value - batch.kl_share[t] * kl
        weight[t] = batch.share[t] * slope - batch.kl_share[t] * kl_slope
        clipped += is_clipped
        dual_clipped += is_dual
        kl_total += kl
    return objective, clipped, dual_clipped, kl_total


@inner
def custom_objective_into(rule, batch, logp, weight):
    """Fill weight as `token_objective_into` does, for a custom surrogate, which gets all tokens at once."""
    values, slopes, kl_total, objective = np.empty(logp.shape[0]), np.empty(logp.shape[0]), 0.0, 0.0
    call_surrogate(rule.surrogate.custom, batch.advantage, logp, batch.old_logp, values, slopes)
    for t in range(logp.shape[0]):
        kl, kl_slope = weighted_penalty(rule, logp[t] - batch.old_logp[t], logp[t], batch.ref_logp[t])
        objective += batch.share[t] * values[t] - batch.kl_share[t] * kl
        weight[t] = batch.share[t] * slopes[t] - batch.kl_share[t] * kl_slope
        kl_total += kl
    return objective, 0, 0, kl_total


@inner
def check_level(level):
    """Raise UserError unless `response_log_ratio` knows the level."""
    if level != PRODUCT and level != SEQUENCE and level != SEQUENCE_TOKEN:
        raise UserError("ratio.level has a name that no kernel computes")


@inner
def response_log_ratio(level, batch, logp, start, stop):
    """Return the log-ratio of the response with tokens start .. stop-1."""
    check_level(level)
    total = 0.0
    for t in range(start, stop):
        x = logp[t] - batch.old_logp[t]
        # A product of ratios overflows soon, so each factor is clipped; a mean does not need that.
        total += min(max(x, -TOKEN_LIMIT), TOKEN_LIMIT) if level == PRODUCT else x
    return total if level == PRODUCT else total / (stop - start)


@inner
def response_objective_into(rule, batch, logp, weight, start, stop):
    """Fill the weights of one response whose tokens share a ratio; returns as `objective_and_weights_into`.

    J = sum_t share_t f(rho), log rho = each sum_u x_u, x_u = logp_u - old_logp_u. So dJ/dlogp_u = each sum_t share_t
    df/dlog rho, the same for all tokens u: the first loop sums it up in `common`, the second adds it to each token.
    With sequence_token (GSPO-token, 2507.18071) the value is that of rho, but a token moves only its own term, and
    `common` is 0.
    """
    log_ratio = response_log_ratio(rule.ratio.level, batch, logp, start, stop)
    each = 1.0 if rule.ratio.level == PRODUCT else 1.0 / (stop - start)
    objective, clipped, dual_clipped, kl_total, common = 0.0, 0, 0, 0.0, 0.0
    held = min(max(log_ratio, rule.ratio.floor), rule.ratio.cap)
    ratio = exp(held)
    for t in range(start, stop):
        value, slope, is_clipped, is_dual = surrogate(
            rule.surrogate, rule.ratio, batch.advantage[t], logp[t], log_ratio
        )
        objective += batch.share[t] * value
        # Where the ratio is held fixed and logp is differentiated, a token moves only its own term.
        spreads = through_ratio(rule.surrogate.kind) and rule.ratio.level != SEQUENCE_TOKEN
        common += batch.share[t] * slope if spreads else 0.0
        weight[t] = 0.0 if spreads else batch.share[t] * slope
        clipped += is_clipped
        dual_clipped += is_dual
        if rule.kl.kind != NONE:
            kl, kl_slope = kl_penalty(rule.kl, logp[t], batch.ref_logp[t])
            if rule.kl.weighted:
                # d(rho kl_t) = rho dkl_t, which is token t's own, + kl_t drho, which goes through the ratio
                kl, kl_slope = kl * ratio, kl_slope * ratio
                through = kl if held == log_ratio else 0.0
                kl_slope += through if rule.ratio.level == SEQUENCE_TOKEN else 0.0
                common -= 0.0 if rule.ratio.level == SEQUENCE_TOKEN else batch.kl_share[t] * through
            objective -= batch.kl_share[t] * kl
            weight[t] -= batch.kl_share[t] * kl_slope
            kl_total += kl
    for t in range(start, stop):
        # a product clips each token's log-ratio, and does not depend on a token that was clipped
        is_held = rule.ratio.level == PRODUCT and abs(logp[t] - batch.old_logp[t]) > TOKEN_LIMIT
        weight[t] += 0.0 if is_held else common * each
    return objective, clipped, dual_clipped, kl_total


@inner
def geometric_mean_objective_into(rule, batch, logp, weight, start, stop):
    """Fill the weights of one response under the geometric mean of clipped token ratios (GMPO, 2507.20673, eq. 5);
    returns as `objective_and_weights_into`.

    The mean over tokens divides by |o| plus the aggregation's eps. The second count is that of tokens clipped from
    below. log rho = total / length: the first loop marks the tokens that rho depends on with weight 1 (others are
    clipped), the second gives each of these rho sum_t share_t A_t / length.
    """
    length, total, credit = stop - start + rule.aggregation.eps, 0.0, 0.0
    low, high, kl_value, kl_total = 0, 0, 0.0, 0.0
    for t in range(start, stop):
        x, side = logp[t] - batch.old_logp[t], float(np.sign(batch.advantage[t]))
        # Clipped in log space, as GMPO does: 1 - low and 1 + high are not its bounds.
        held = min(max(x, -rule.surrogate.low), rule.surrogate.high)
        total += side * min(side * x, side * held)
        credit += batch.share[t] * batch.advantage[t]
        # The smaller of x and its clipped value counts for A > 0, the larger for A < 0; A = 0 has neither.
        weight[t] = 1.0 if side * x <= side * held and side != 0.0 else 0.0
        high += (x != held) & (side > 0.0)
        low += (x != held) & (side < 0.0)
    mean_ratio = exp(total / length)
    for t in range(start, stop):
        weight[t] *= mean_ratio * credit / length
        if rule.kl.kind != NONE:
            kl, kl_slope = kl_penalty(rule.kl, logp[t], batch.ref_logp[t])
            weight[t] -= batch.kl_share[t] * kl_slope
            kl_value += batch.kl_share[t] * kl
            kl_total += kl
    return credit * mean_ratio - kl_value, high, low, kl_total


@inner
def sequence_objective_into(rule, batch, logp, weight):
    """Fill weight as `objective_and_weights_into` does, where the tokens of a response share a ratio."""
    objective, clipped, dual_clipped, kl_total = 0.0, 0, 0, 0.0
    start, n = np.int64(0), logp.shape[0]  # a plain 0 has another type, and numba would compile the callees twice
    while start < n:
        stop = start + 1
        # A response's tokens lie together, so its end is where the row changes; empty responses have no token here.
        while stop < n and batch.row[stop] == batch.row[start]:
            stop += 1
        if rule.surrogate.kind == GEOMETRIC_MEAN:
            value, high, low, kl = geometric_mean_objective_into(rule, batch, logp, weight, start, stop)
        else:
            value, high, low, kl = response_objective_into(rule, batch, logp, weight, start, stop)
        objective, clipped, dual_clipped, kl_total = (
            objective + value,
            clipped + high,
            dual_clipped + low,
            kl_total + kl,
        )
        start = stop
    return objective, clipped, dual_clipped, kl_total


@jit
def objective_and_weights_into(rule, batch, logp, weight):
    """Fill weight (T,) with dJ/dlogp at logp (T,); return J, clipped tokens, dual-clipped tokens, sum of KL values."""
    if rule.surrogate.kind == CUSTOM:
        return custom_objective_into(rule, batch, logp, weight)
    if rule.ratio.level == TOKEN and rule.surrogate.kind == CLIP and not rule.kl.weighted:
        return clip_objective_into(rule, batch, logp, weight)
    if rule.ratio.level == TOKEN and rule.surrogate.kind != GEOMETRIC_MEAN:
        return token_objective_into(rule, batch, logp, weight)
    return sequence_objective_into(rule, batch, logp, weight)


def _current(batch: Batch, logp: np.ndarray) -> np.ndarray:
    logp = column(logp)
    check(
        logp.shape == batch.advantage.shape, f"logp {logp.shape} must have one entry per token {batch.advantage.shape}"
    )
    return logp


def apply_mask(estimator: Estimator, batch: Batch, logp: np.ndarray, keys: np.ndarray | None = None) -> Batch:
    """Return the batch with shares of 0 for the tokens that the mask drops at `logp` (T,). Call it once per update,
    before `objective_and_weights`.

    keys (T,): random numbers that decide which candidates ClipCov draws; for TopEntropy the entropies of the
    distributions that tokens are drawn from, at `logp`. Raises UserError where they are needed and missing.
    """
    logp, rule = _current(batch, logp), as_rule(estimator)
    if rule.mask.kind == UNMASKED:
        return batch
    check(keys is not None or rule.mask.kind != CLIP_COV, "mask ClipCov needs keys, one random number per token")
    check(keys is not None or rule.mask.kind != TOP_ENTROPY, "mask TopEntropy needs keys, the entropy of each token")
    keys = logp if keys is None else np.ascontiguousarray(keys, dtype=np.float64)
    check(keys.shape == logp.shape, f"keys {keys.shape} must have one entry per token {logp.shape}")
    share, kl_share = batch.share.copy(), batch.kl_share.copy()
    mask_into(rule, batch, logp, keys, share, kl_share)
    return batch._replace(share=share, kl_share=kl_share)


def objective_and_weights(estimator: Estimator, batch: Batch, logp: np.ndarray) -> ObjectiveAndWeights:
    """Return J = sum_t share_t j_t - kl_share_t kl_t and w = dJ/dlogp at the current log-probabilities `logp` (T,)."""
    check_type("estimator", estimator, Estimator, "an Estimator")
    check_type("batch", batch, Batch, "a Batch, as `prepare` gives it")
    logp = _current(batch, logp)
    weight, batch = np.empty_like(logp), Batch(*map(np.ascontiguousarray, batch))
    with raising():
        objective, clipped, dual_clipped, kl = objective_and_weights_into(as_rule(estimator), batch, logp, weight)
    return ObjectiveAndWeights(objective, weight, clipped, dual_clipped, kl)
