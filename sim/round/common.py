"""Compute a round's gradient for the parameters that all contexts share (`rftlab.sim.policy.common`).

A context i whose score in its logits is S_i, without nuisance, adds S_i . dz_i/dth, exactly, and noise from two
sources. Each rollout has noise in the parameter on which no reward depends (variance nuisance^2 w_k^2, as in every
coordinate of W), and interference leaks in from other contexts (variance interference^2 |S_i|^2). The deviation of
verbosity's noise is a multiple of that. Each parameter has independent noise, so several parts of correctness share the
signal alone.
"""

import math
from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.simd import LANES, keep_bits, load, splat, total
from rftlab.sim.policy.policy import F
from rftlab.sim.policy.versions import for_linear


class CommonNoise(NamedTuple):
    """Noise in the scores and shared parameters of one context."""

    spread: float
    """Standard deviation of the nuisance in the context's scores, which is subtracted again."""
    variance: float
    """Variance of the nuisance in the gradient of a shared parameter."""


@for_linear
def score_products(contexts, plan, row, context, spread, noise, scores):
    """Return S . z0, the sums of S over correct arms and, where these are raised, over long arms, and |S|^2. S is the
    score of a row without its nuisance, spread x noise[row]."""
    arms = np.uint32((1 << plan.n_arms) - 1)
    score = load(scores, row * LANES)
    if spread > 0.0:
        score = score - keep_bits(load(noise, row * LANES), arms) * splat(F(spread))
    base = keep_bits(load(contexts.base_logits, context * LANES), arms)
    return (
        float(total(score * base)),
        float(total(keep_bits(score, contexts.correct[context]))),
        float(total(keep_bits(score, plan.long_arms))) if plan.verbosity > 0.0 else 0.0,
        float(total(score * score)),
    )


@score_products.for_tabular
def _(contexts, plan, row, context, spread, noise, scores):
    of_base = of_correct = of_long = squares = 0.0
    for a in range(plan.n_arms):
        score = scores[row, a] - spread * noise[row, a]
        of_base += score * contexts.base_logits[context, a]
        squares += score * score
        if (contexts.correct[context] >> np.uint32(a)) & np.uint32(1):
            of_correct += score
        if (plan.long_arms >> np.uint32(a)) & np.uint32(1):
            of_long += score
    return of_base, of_correct, of_long, squares


@kernel
def teach_common(contexts, plan, slope, row, context, noise, common_noise, nuisance, scores, grad):
    """Add a context's gradient of the shared parameters to grad; the context is `row` of the batch.

    slope: derivative of the base policy's factor (`rftlab.sim.policy.common.BasePolicy`); noise: a `CommonNoise`;
    common_noise and nuisance (rows, LANES): standard normals, those of the shared parameters and those of the scores.
    """
    of_base, of_correct, of_long, squares = score_products(contexts, plan, row, context, noise.spread, nuisance, scores)
    spread = math.sqrt(noise.variance + plan.interference**2 * squares)
    start, stop = grad.shape[0] - 1 - plan.n_common, grad.shape[0] - 1
    if plan.exploration > 0.0:  # its gradient comes from style tokens
        stop -= 1
    if plan.verbosity > 0.0:
        stop -= 1
        grad[stop] += plan.verbosity * of_long + plan.verbosity_noise * spread * common_noise[row, stop - start]
    first, damaged = start, stop - plan.n_damaged
    if plan.sharpening > 0.0:
        grad[start] += slope * of_base + spread * common_noise[row, 0]
        first += 1
    for m in range(first, damaged):
        grad[m] += plan.correctness * of_correct + spread * common_noise[row, m - start]
    for m in range(damaged, stop):
        grad[m] += spread * common_noise[row, m - start]


@kernel
def _centred(contexts, view, row, context, low, high, chosen, of_base):
    """Return E[d^2], E[right d] and E[right d^2] with d = g - E[g], over the arms low .. high-1 of a token. g(a) is the
    base logit of arm a, or else 1 for the arms in the bits `chosen`."""
    mean = square = right = right_square = 0.0
    for a in range(low, high):
        is_chosen = (chosen >> np.uint32(a)) & np.uint32(1)
        mean += view.probs[row, a] * (contexts.base_logits[context, a] if of_base else is_chosen)
    for a in range(low, high):
        is_correct = (contexts.correct[context] >> np.uint32(a)) & np.uint32(1)
        is_chosen = (chosen >> np.uint32(a)) & np.uint32(1)
        d = (contexts.base_logits[context, a] if of_base else is_chosen) - mean
        square += view.probs[row, a] * d**2
        right += is_correct * view.probs[row, a] * d
        right_square += is_correct * view.probs[row, a] * d**2
    return square, right, right_square


@kernel
def _squared_sums(contexts, plan, view, row, context, chosen, of_base):
    """Return E[D^2] and E[right D^2] over the answers of a context; D is the sum of `_centred`'s d over an answer's
    tokens. Tokens are independent, so the sums are computed token by token."""
    width, square, chance, once, twice = plan.n_arms // len(plan.token_starts), 0.0, 1.0, 0.0, 0.0
    for low in plan.token_starts:
        p = 0.0
        for a in range(low, low + width):
            p += view.probs[row, a] * ((contexts.correct[context] >> np.uint32(a)) & np.uint32(1))
        mine, right, right_square = _centred(contexts, view, row, context, low, low + width, chosen, of_base)
        square += mine
        twice = twice * p + 2.0 * once * right + chance * right_square
        once = once * p + chance * right
        chance *= p
    return square, twice


@kernel
def common_squares(contexts, plan, view, row, context, chance, distance, right_distance):
    """Return E[|s|^2] and E[right |s|^2] over the answers of a context, s the score in the shared parameters, noise
    included.

    chance: Pr(right); distance, right_distance: E[D] and E[right D] of D = |e - pi|^2.
    """
    correct, noisy = contexts.correct[context], plan.n_common - (1 if plan.exploration > 0.0 else 0)
    sharp, right_sharp = _squared_sums(contexts, plan, view, row, context, correct, True)
    better, right_better = _squared_sums(contexts, plan, view, row, context, correct, False)
    longer, right_longer = 0.0, 0.0
    if plan.verbosity > 0.0:
        longer, right_longer = _squared_sums(contexts, plan, view, row, context, plan.long_arms, False)
    parts = noisy - plan.n_damaged - (1 if plan.sharpening > 0.0 else 0) - (1 if plan.verbosity > 0.0 else 0)
    steep, raised, lengthened = view.common[0] ** 2, parts * plan.correctness**2, plan.verbosity**2
    if plan.verbosity > 0.0:
        noisy += plan.verbosity_noise**2 - 1.0
    fixed = noisy * plan.nuisance**2 * (1.0 - plan.surprise)
    with_distance = noisy * (plan.nuisance**2 * plan.surprise + plan.interference**2)
    return (
        steep * sharp + raised * better + fixed + with_distance * distance + lengthened * longer,
        steep * right_sharp
        + raised * right_better
        + fixed * chance
        + with_distance * right_distance
        + lengthened * right_longer,
    )
