"""r and phi of the law of the effective batch (shared/effective_batch.py), with intervals that hold.

r is a ratio of two noisy numbers, and raw and centred rewards are of the same responses. So nothing is propagated: the
whole estimate is made again without each question, and its spread is the error, the jackknife of Efron and Stein
(1981). With g_i1, g_i2 the gradients of a question's two groups of n responses:

    tr B   = mean_i g_i1 . g_i2 - U        U = mean over pairs i != j of g_i . g_j, the signal
    tr W   = n/2 mean_i |g_i1 - g_i2|^2

which are the estimates of noise.py written as means over questions. Products of single questions with all others are
not kept, only with blocks of questions: a question's part in U is taken to be its block's mean. That leaves out a
spread of U that is small beside that of the products where the signal is below the noise of one question.
"""

from math import sqrt

import numpy as np

from rftlab.shared.plumbing.errors import check
from rftlab.studies.data.results.stats import t_errors
from rftlab.studies.forecast.pilot.gradient import LEVEL, GradientRatios, RatioEstimate
from rftlab.studies.forecast.pilot.noise import Products, analysed


def ratios_of(raw: Products, centred: Products) -> GradientRatios | None:
    """r and phi from the same responses with raw and with centred rewards; None where groups have one response or
    there is no noise within a question, so that nothing can be said.

    Noise between questions is the same of both in theory: their mean by inverse variances counts. The weights are held
    fixed when a question is left out.
    """
    G, n = len(raw.squares), raw.group
    check(len(centred.squares) == G and centred.group == n, "raw and centred gradients of other questions or groups")
    weights = _weights(analysed(raw).between_error, analysed(centred).between_error)
    parts = [_left_out(products) for products in (raw, centred)]
    if n < 2 or min(within[-1] for _, within in parts) <= 0:
        return None
    between = sum(weight * part for weight, (part, _) in zip(weights, parts, strict=True))
    within_raw, within_centred = (within for _, within in parts)
    if within_raw.min() <= 0:
        return None
    r, phi = between / within_raw, within_centred / within_raw * (n - 1) / n
    return GradientRatios(_estimate(r), _estimate(phi), G, 2 * n)


def _weights(*errors: float) -> tuple[float, ...]:
    exact = [error <= 0 for error in errors]
    raw = [float(one) for one in exact] if any(exact) else [1 / error**2 for error in errors]
    return tuple(weight / sum(raw) for weight in raw)


def _left_out(products: Products) -> tuple[np.ndarray, np.ndarray]:
    """tr B and tr W (G + 1,) without each question, and last with all of them."""
    G, block = len(products.squares), products.block
    own = np.bincount(block, weights=products.squares, minlength=len(products.gram))
    sizes = np.maximum(1, np.bincount(block, minlength=len(products.gram)))
    with_others = ((products.gram.sum(axis=1) - own) / (G - 1) / sizes)[block]
    signal = float(with_others.mean())
    product = products.squares - products.differences / 4
    between = _means(product) - np.append((G * signal - 2 * with_others) / (G - 2), signal)
    return between, products.group / 2 * _means(products.differences)


def _means(values: np.ndarray) -> np.ndarray:
    """(G + 1,) means without each value, and last of all."""
    return np.append((values.sum() - values) / (len(values) - 1), values.mean())


def _estimate(found: np.ndarray) -> RatioEstimate:
    """From the values without each question, and last with all of them."""
    left, value, G = found[:-1], float(found[-1]), len(found) - 1
    error = sqrt((G - 1) / G * float(((left - left.mean()) ** 2).sum()))
    wide = float(t_errors(G - 1, LEVEL)) * error
    return RatioEstimate(value, error, value - wide, value + wide)
