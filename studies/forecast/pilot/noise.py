"""Gradient signal and noise from products of gradients: a balanced one-way random-effects analysis of variance, for
vectors.

G contexts, two groups of n rollouts each, g_ih the gradient of a group and g_i the mean of a context's two. With g_ih =
G + b_i + e_ih, b the context's own part with covariance B and e the rollouts' with covariance W_n given the context:

    E |g_i1 - g_i2|^2 / 2                  = tr W_n
    E sum_i |g_i - mean g|^2 / (G - 1)     = tr B + tr W_n / 2
    E |mean g|^2                           = |G|^2 + (tr B + tr W_n / 2) / G

Each left side is read off the products, which gives unbiased estimates of all three. Raw rewards have W_n = W_1 / n
exactly. Centred ones have it up to a part that falls like 1 / n^2. Contexts count as drawn from a large set. Errors:
the jackknife that leaves out a block of contexts at a time. It is not too small on average (Efron and Stein 1981), and
for a signal that is lost in noise, a mean of products of pairs, 1.4 times too large.
"""

from typing import NamedTuple, Protocol

import numpy as np

from rftlab.studies.forecast.pilot.gradient import Gradient


class Products(Protocol):
    """What is known of the gradients g_i1, g_i2 of two groups of responses to each of G contexts, g_i their mean:
    `rftlab.llm.probe.GradientProducts`, or the same of the simulator."""

    @property
    def group(self) -> int:
        """Responses of a group."""
        ...

    @property
    def block(self) -> np.ndarray:
        """(G,) in which block of contexts each is."""
        ...

    @property
    def gram(self) -> np.ndarray:
        """(blocks, blocks) inner products of the blocks' sums of g_i."""
        ...

    @property
    def squares(self) -> np.ndarray:
        """(G,) |g_i|^2."""
        ...

    @property
    def differences(self) -> np.ndarray:
        """(G,) |g_i1 - g_i2|^2."""
        ...


class Parts(NamedTuple):
    """Estimates."""

    signal: float
    between: float
    within: float
    """Of one rollout: n tr W_n."""


def analysed(products: Products) -> Gradient:
    """Signal, noise between contexts and noise within them, with errors."""
    blocks = np.unique(products.block)
    left = np.array([parts_of(products, blocks[blocks != out]) for out in blocks])
    errors = np.sqrt((len(blocks) - 1) / len(blocks) * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    return Gradient(
        len(products.squares), products.group, *parts_of(products, blocks), *(float(error) for error in errors)
    )


def parts_of(products: Products, blocks: np.ndarray) -> Parts:
    """Estimates from the contexts of some blocks."""
    mine_G = np.isin(products.block, blocks)
    contexts = int(mine_G.sum())
    of_mean = products.gram[np.ix_(blocks, blocks)].sum() / contexts**2
    sampling = products.differences[mine_G].mean() / 2
    spread = (products.squares[mine_G].sum() - contexts * of_mean) / (contexts - 1)
    return Parts(float(of_mean - spread / contexts), float(spread - sampling / 2), float(products.group * sampling))
