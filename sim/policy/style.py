"""Draw and score style tokens, the part of a response besides its answer. No reward depends on them, but they share the
answer's parameters.

A response is the answer (its arms and its format) and L style tokens. Style token t is 0 or 1 and has its own random
direction u_t of signs, one for each arm. It is 1 with probability sigmoid(h_t); h_t = slope u_t . (z - b) is its logit,
where z are the context's logits and b the part of them that stems from the base policy (`rftlab.sim.policy.common`), so
that z - b is what the matrix W has learnt. Under the base policy both values are equally likely. As the policy learns,
its style drifts, which changes ratios and KL penalties. The score of a token in the logits is slope (token -
sigmoid(h_t)) u_t. With slope = nuisance / sqrt(q (1 - q) mean L), q the base policy's probability of a 1, the scores of
a response add up to covariance nuisance^2 I, so with many tokens they become the Gaussian nuisance that responses
without style tokens have.

With exploration style tokens are seldom 1 under the base policy: h_t = -1.5 + c_x th_x + slope u_t . (z - b). th_x is a
parameter that all contexts share, with the gradient c_x sum_t w_t (token_t - sigmoid(h_t)), w_t the weight of a token.

L is near mean L (1 +- by_style) for the last and first style of an answer, so a policy can learn to be long or short.
Each token of an answer has a style; their mean counts.
"""

import math

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.jit import jit, kernel
from rftlab.sim.lanes.random import STYLE, philox
from rftlab.sim.lanes.simd import LANES, lane_numbers, splat, store
from rftlab.sim.lanes.vectormath import U
from rftlab.sim.world import Style

WORDS = 2 * LANES
"""Number of tokens whose random words are drawn together."""
STRIDE = 4096
"""Number of random counters reserved for a rollout's tokens, more than the longest response has."""
SELDOM = -1.5
"""Logit of a style token under the base policy with exploration."""


def token_style(
    tokens: float, by_style: float, jitter: float, n_styles: int, nuisance: float, explores: bool = False
) -> Style:
    """Return the numbers of the model of style tokens; without such tokens the slope is 0."""
    check(tokens >= 0, f"style tokens = {tokens}; allowed: 0 or more")
    base = SELDOM if explores else 0.0
    q = 1.0 / (1.0 + math.exp(-base))
    return Style(
        float(tokens),
        float(by_style),
        float(jitter),
        n_styles,
        nuisance / math.sqrt(q * (1.0 - q) * tokens) if tokens > 0 else 0.0,
        base,
    )


def longest(style: Style) -> int:
    """Return the largest number of style tokens of a response."""
    return int(style.tokens * (1 + style.by_style) * (1 + style.jitter) + 0.5)


@kernel
def style_side(style, arm):
    """Return the style of an answer's token, from -1 (the first) to 1 (the last)."""
    return 2.0 * (arm % style.n_styles) / (style.n_styles - 1) - 1.0 if style.n_styles > 1 else 0.0


@kernel
def mean_side(style, tokens, arms, at):
    """Return the mean of `style_side` over the tokens of the answer arms[at : at + tokens]."""
    side = 0.0
    for s in range(tokens):
        side += style_side(style, arms[at + s])
    return side / tokens


@kernel
def style_length(style, side, u):
    """Return the number of style tokens of a response; side: the mean of its tokens' `style_side`; u uniform in [0,
    1)."""
    return int(style.tokens * (1.0 + style.by_style * side) * (1.0 + style.jitter * (2.0 * u - 1.0)) + 0.5)


@kernel
def style_logit_at(style, signs, view, contexts, row, context, plan):
    """Return the logit h of a style token: slope times its direction times the learnt logits, plus the parts that all
    contexts share."""
    total = 0.0
    for a in range(plan.n_arms):
        moved = view.logits[row, a] - view.base_scale[0] * contexts.base_logits[context, a]
        if view.common[1] != 0.0 and (contexts.correct[context] >> U(a)) & U(1):
            moved -= view.common[1]
        total += moved if (signs >> U(a)) & U(1) else -moved
    if plan.verbosity > 0.0:
        for a in range(plan.n_arms):
            if (plan.long_arms >> U(a)) & U(1):
                total -= view.common[2] if (signs >> U(a)) & U(1) else -view.common[2]
    return style.base + view.common[3] + style.slope * total


@kernel
def style_logp(style_logit, style_token):
    """Return the log-probability of a style token."""
    h = style_logit if style_token else -style_logit
    return min(h, 0.0) - math.log1p(math.exp(-abs(h)))


@kernel
def style_probability(style_logit):
    """Return the probability that a style token is 1."""
    small = math.exp(-abs(style_logit))
    return (1.0 if style_logit >= 0.0 else small) / (1.0 + small)


@jit
def words_into(key, round_index, context, draw, position, words):
    """Draw the random words (2, WORDS) of a rollout's style tokens from `position` on: their directions and their
    values."""
    contexts, first = splat(U(context)), splat(U(draw * STRIDE + position)) + lane_numbers()
    v, w = philox(key, U(round_index), (contexts, contexts), (first, first + splat(U(LANES))), STYLE)
    store(words, 0, v[0])
    store(words, LANES, w[0])
    store(words, WORDS, v[1])
    store(words, WORDS + LANES, w[1])
