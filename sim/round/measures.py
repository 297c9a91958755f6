"""Measure a policy on a set of contexts.

Pass@1, strict and flexible, is exact or from one sampled response each. The other measures are pass@k, entropy, format,
zero-variance groups, and the lengths of right and wrong responses. They are exact means over all responses, computed
where a run asks for them (`Simulation.evaluation` = full).
"""

from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.jit import jit
from rftlab.sim.lanes.random import EVALUATION, uniforms
from rftlab.sim.policy.common import base_policy
from rftlab.sim.policy.probabilities import find_formats
from rftlab.sim.policy.products import places
from rftlab.sim.policy.spelling import correct_probability
from rftlab.sim.round.plain import CHUNK, find_logits, policy_forward
from rftlab.sim.world import Contexts, Style, World


@jit
def pass_at_1(contexts, plan, theta, work, round_index, sampled):
    """Return the mean over all contexts of the probability of a correct response, and of a correct answer in any
    format; or the means of one sampled response of each context. nan where a probability is nan."""
    n, strict, flexible, base = contexts.base_format.shape[0], 0.0, 0.0, base_policy(plan, theta)
    for start in range(0, n, CHUNK):
        batch = np.arange(start, min(start + CHUNK, n))
        find_logits(contexts, plan, theta, batch, base, work)
        find_formats(contexts, plan, theta, batch, base, work)
        if sampled:
            uniforms(plan.key, round_index, batch, np.int64(1), EVALUATION, work.uniform)
        for row in range(batch.shape[0]):
            right = correct_probability(plan, work.logits, row, contexts.correct[batch[row]])
            p, u = work.formed[row] * right, work.uniform[0, row]
            strict += (1.0 if u < p else 0.0 * p) if sampled else p
            flexible += (1.0 if u < right else 0.0 * right) if sampled else right
    return strict / n, flexible / n


KS = tuple(2**n for n in range(1, 9))
"""Values of k of pass@k; pass@1 is in the curve."""


DIRECTIONS = 64
"""Number of directions of style tokens over which their entropy is averaged."""


class ResponsePolicy(NamedTuple):
    """The distribution of a policy's responses on n contexts, by token. The tokens and the format of a response are
    independent."""

    probs: np.ndarray
    """(n, T, A / T) probability of each arm of each token."""
    correct: np.ndarray
    """(n, T, A / T) bool, whether each arm of each token is right."""
    formed: np.ndarray
    """(n,) probability of a well-formed response."""
    style_entropy: float = float("nan")
    """Mean entropy of a style token in nats; nan without such tokens."""

    @property
    def right(self) -> np.ndarray:
        """(n, T) probability that a token is right."""
        return np.minimum((self.probs * self.correct).sum(axis=2), 1.0)


@jit
def _policies(contexts, plan, theta, work, probs, formed):
    for start in range(0, formed.shape[0], CHUNK):
        stop = min(start + CHUNK, formed.shape[0])
        policy_forward(contexts, plan, theta, np.arange(start, stop), work)
        for row in range(stop - start):
            formed[start + row] = work.formed[row]
            for a in range(plan.n_arms):
                probs[start + row, a] = work.probs[row, a]


def response_policy(contexts: Contexts, style: Style, plan, theta: np.ndarray, work) -> ResponsePolicy:
    """Return the distribution of responses under parameters theta on all contexts of a set; `work` is scratch."""
    n, tokens = contexts.base_format.shape[0], len(plan.token_starts)
    probs, formed = np.zeros((n, plan.n_arms)), np.zeros(n)
    _policies(contexts, plan, theta, work, probs, formed)
    correct = (contexts.correct[:, None] >> np.arange(plan.n_arms, dtype=np.uint32)) & np.uint32(1)
    shape = (n, tokens, plan.n_arms // tokens)
    entropy = style_entropy(contexts, style, plan, theta) if style.tokens > 0 else float("nan")
    return ResponsePolicy(probs.reshape(shape), correct.reshape(shape).astype(bool), formed, entropy)


def style_entropy(contexts: Contexts, style: Style, plan, theta: np.ndarray) -> float:
    """Return the mean entropy of a style token (`rftlab.sim.policy.style`) over all contexts and DIRECTIONS random
    directions, the same in each call."""
    learnt = theta[places(contexts.features.shape[1])].astype(np.float64)[:, : plan.n_arms]
    signs = np.random.Generator(np.random.Philox(0)).choice([-1.0, 1.0], (plan.n_arms, DIRECTIONS))
    logits = style.base + plan.exploration * theta[-2] + style.slope * (contexts.features @ (learnt @ signs))
    p = 1 / (1 + np.exp(-logits))
    return float(_entropy(np.stack([p, 1 - p], axis=-1)).mean())


def measure(world: World, policy: ResponsePolicy, rollouts: int) -> dict[str, float]:
    """Return means over a set of contexts, by name.

    strict_pass_at_k          for each k of KS; the same for flexible
    format_rate               share of well-formed responses
    entropy                   of a response's answer and format, in nats
    style_entropy             of one style token, in nats; nan without such tokens
    zero_variance_fraction    share of groups of `rollouts` whose rewards are all equal
    length_right              tokens of a rewarded response, style tokens included; nan where there is none
    length_wrong              the same of a response that is not rewarded
    """
    answered = policy.right.prod(axis=1)
    rates = {"strict": policy.formed * answered, "flexible": answered}
    right, wrong = mean_lengths(world.style, policy)
    return {
        **{f"{name}_pass_at_{k}": float((1 - (1 - p) ** k).mean()) for name, p in rates.items() for k in KS},
        "format_rate": float(policy.formed.mean()),
        "entropy": float(entropies(policy).mean()),
        "style_entropy": policy.style_entropy,
        "zero_variance_fraction": float(equal_rewards(world, policy, rollouts).mean()),
        "length_right": right,
        "length_wrong": wrong,
    }


def entropies(policy: ResponsePolicy) -> np.ndarray:
    """Return the entropy (n,) of a response's answer and format, the sum over its tokens and the format."""
    formed = np.stack([policy.formed, 1 - policy.formed], axis=1)
    return _entropy(policy.probs).sum(axis=1) + _entropy(formed)


def _entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)


def equal_rewards(world: World, policy: ResponsePolicy, rollouts: int) -> np.ndarray:
    """Return the probability (n,) that a context's rollouts have equal rewards: sum_r Pr(r)^K over the rewards r.

    With partial credit there is a reward for each number of right tokens, and with noise no two rewards are equal. A
    second reward of well-formed responses sets these apart from the others.
    Where a verifier flips rewards, those that it gives count.
    """
    if world.reward_noise > 0:
        return np.full(policy.formed.shape, float(rollouts == 1))
    counts = np.ones((len(policy.formed), 1))
    for right in policy.right.T:
        counts = _times(counts, np.stack([1 - right, right], axis=1))
    chances = policy.formed[:, None] * counts
    if world.format_reward > 0:
        return (chances**rollouts).sum(axis=1) + (1 - policy.formed) ** rollouts
    chances[:, 0] += 1 - policy.formed
    if world.partial_credit == 0:
        a, b, wrong, right = world.false_positive, world.false_negative, chances[:, :-1].sum(axis=1), chances[:, -1]
        chances = np.stack([(1 - a) * wrong + b * right, a * wrong + (1 - b) * right], axis=1)
    return (chances**rollouts).sum(axis=1)


def _times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the distributions (n, i + j - 1) of sums of independent numbers with distributions (n, i) and (n, j)."""
    product = np.zeros((len(a), a.shape[1] + b.shape[1] - 1))
    for shift in range(b.shape[1]):
        product[:, shift : shift + a.shape[1]] += a * b[:, shift : shift + 1]
    return product


def mean_lengths(style: Style, policy: ResponsePolicy) -> tuple[float, float]:
    """Return the mean number of tokens of a rewarded response and of another, over the responses to all contexts
    together; without style tokens the lengths are virtual (`rftlab.sim.round.answers`)."""
    n, tokens, width = policy.probs.shape
    by_style = (n, tokens, width // style.n_styles, style.n_styles)
    every, right = np.ones((n, 1)), policy.formed[:, None]
    styles, right_styles = (p.reshape(by_style).sum(axis=2) for p in (policy.probs, policy.probs * policy.correct))
    for token in range(tokens):
        every, right = _times(every, styles[:, token]), _times(right, right_styles[:, token])
    sides = np.linspace(-1.0, 1.0, every.shape[1]) if every.shape[1] > 1 else np.zeros(1)
    virtual = tokens * (1 + style.by_style * sides)
    lengths = virtual if style.tokens == 0 else tokens + mean_style_length(style, sides)
    wrong = np.maximum(every - right, 0.0)
    return _weighted(lengths, right), _weighted(lengths, wrong)


def _weighted(lengths: np.ndarray, chances: np.ndarray) -> float:
    """Return the mean of lengths with probabilities `chances` (n, lengths); nan where these are all 0."""
    whole = chances.sum()
    return float((chances @ lengths).sum() / whole) if whole > 0 else float("nan")


def mean_style_length(style: Style, side: np.ndarray) -> np.ndarray:
    """Return the mean number of style tokens of responses with these sides, as `rftlab.sim.policy.style.style_length`
    draws it."""
    middle = style.tokens * (1 + style.by_style * side)
    low, high = middle * (1 - style.jitter) + 0.5, middle * (1 + style.jitter) + 0.5
    spread = np.where(high > low, high - low, 1.0)
    return np.where(high > low, (_floors_up_to(high) - _floors_up_to(low)) / spread, np.floor(low))


def _floors_up_to(x: np.ndarray) -> np.ndarray:
    """Return the integral of floor from 0 to x."""
    whole = np.floor(x)
    return whole * (whole - 1) / 2 + whole * (x - whole)
