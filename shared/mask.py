"""Apply masks, which leave tokens out of an update at the current policy. The share of a masked token is 0; nothing
else changes.

`apply_mask` is called once per update, between `prepare` and `objective_and_weights`. Divergence and Drift depend on a
single token or response, so a micro-batch can be masked by itself; the masks in `config.mask.OF_BATCH` compare the
tokens of the whole optimiser batch.
"""

import math

import numpy as np

from rftlab.shared.config.mask import (
    CLIP_COV,
    DIVERGENCE,
    DRIFT,
    KL_COV,
    OF_KL,
    SECOND_MOMENT,
    TOP_ENTROPY,
    TV,
    UNMASKED,
)
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.jit import inner, jit
from rftlab.shared.surrogate import surrogate

COV_EPS = 1e-8


@inner
def diverged(rule, advantage, logp, old_logp):
    """Whether a token's probability moved beyond the threshold on the side of its advantage."""
    p, q = math.exp(logp), math.exp(old_logp)
    if rule.measure == TV:
        return p - q > rule.high if advantage > 0.0 else p - q < -rule.low
    if rule.measure != OF_KL:
        raise UserError("mask.measure has a name that no kernel computes")
    # KL of two Bernoulli distributions: the drawn token against all others (binary approximation of the KL).
    distance = q * (old_logp - logp) + (1.0 - q) * math.log((1.0 - q + COV_EPS) / (1.0 - p + COV_EPS))
    return distance > rule.high and p > q if advantage > 0.0 else distance > rule.low and p < q


@inner
def drifted_into(rule, batch, logp, share):
    """Set the shares of responses with A < 0 that drifted beyond the threshold to 0."""
    n, a = logp.shape[0], 0
    while a < n:
        b, drift = a, 0.0
        while b < n and batch.row[b] == batch.row[a]:
            # The mean of -log ratio estimates KL(old || current) from responses of the old policy.
            drift += batch.old_logp[b] - logp[b]
            b += 1
        if batch.advantage[a] < 0.0 and drift / (b - a) > rule.threshold:
            share[a:b] = 0.0
        a = b


@inner
def stable_order(values):
    """Return the order (n,) that sorts values; equal values keep their order on every machine."""
    return np.argsort(values, kind="mergesort")


@inner
def clip_cov_into(rules, batch, logp, keys, share):
    """Set the shares of the candidates with the smallest keys to 0."""
    n = logp.shape[0]
    mean_advantage, mean_logp = batch.advantage.sum() / (n + COV_EPS), logp.sum() / (n + COV_EPS)
    candidates, count = np.empty(n, dtype=np.int64), 0
    for t in range(n):
        _, _, is_clipped, _ = surrogate(
            rules.surrogate, rules.ratio, batch.advantage[t], logp[t], logp[t] - batch.old_logp[t]
        )
        covariance = (batch.advantage[t] - mean_advantage) * (logp[t] - mean_logp)
        if not is_clipped and rules.mask.low < covariance < rules.mask.high:
            candidates[count] = t
            count += 1
    # Taking the smallest random keys is a draw without replacement, which two implementations can reproduce alike.
    drawn = candidates[:count][np.argsort(keys[candidates[:count]])]
    share[drawn[: max(1, int(rules.mask.fraction * n))]] = 0.0


@inner
def kl_cov_into(rule, batch, logp, kl_share):
    """Set the KL shares of all tokens to 0, except for those with the largest covariance."""
    n = logp.shape[0]
    covariance = (batch.advantage - batch.advantage.mean()) * (logp - logp.mean())
    kl_share[stable_order(-covariance)[max(1, int(rule.fraction * n)) :]] = 0.0


@inner
def second_moment_into(rule, batch, logp, share):
    """Set the shares of the tokens with the largest log-ratio in the direction of the advantage to 0. Running means of
    sorted squares never fall, so all after the first one above the threshold are dropped."""
    x, total = logp - batch.old_logp, 0.0
    moved = np.flatnonzero(((batch.advantage > 0.0) & (x > 0.0)) | ((batch.advantage < 0.0) & (x < 0.0)))
    moved = moved[stable_order(x[moved] ** 2)]
    for i in range(moved.shape[0]):
        total += x[moved[i]] ** 2
        # The mean of the squares kept so far is compared as a sum, which needs no division.
        if total > rule.threshold * (i + 1):
            share[moved[i:]] = 0.0
            return


@inner
def top_entropy_into(rule, entropies, share):
    """Set the shares of the tokens below the interpolated quantile 1 - fraction of the entropies (T,) to 0."""
    n = entropies.shape[0]
    if n > 0:
        order, rank = stable_order(entropies), (n - 1) * (1.0 - rule.fraction)
        low = int(rank)
        below, above = entropies[order[low]], entropies[order[min(low + 1, n - 1)]]
        least = below + (rank - low) * (above - below)  # np.quantile, which takes seconds to compile
        for t in range(n):
            share[t] = share[t] if entropies[t] >= least else 0.0


@jit
def mask_into(rules, batch, logp, keys, share, kl_share):
    """Set the entries of share and kl_share (T,) that the mask drops at logp (T,) to 0; both are copies of the batch's.
    keys (T,): random numbers for ClipCov, entropies for TopEntropy."""
    if rules.mask.kind == DIVERGENCE:
        for t in range(logp.shape[0]):
            if diverged(rules.mask, batch.advantage[t], logp[t], batch.old_logp[t]):
                share[t] = 0.0
    elif rules.mask.kind == DRIFT:
        drifted_into(rules.mask, batch, logp, share)
    elif rules.mask.kind == CLIP_COV:
        clip_cov_into(rules, batch, logp, keys, share)
    elif rules.mask.kind == KL_COV:
        kl_cov_into(rules.mask, batch, logp, kl_share)
    elif rules.mask.kind == TOP_ENTROPY:
        top_entropy_into(rules.mask, keys, share)
    elif rules.mask.kind == SECOND_MOMENT:
        second_moment_into(rules.mask, batch, logp, share)
    elif rules.mask.kind != UNMASKED:
        raise UserError("mask has a kind that no kernel computes")
