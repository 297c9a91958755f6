"""Small exact worlds for the checks: every group of K responses with its probability, weighed by the estimators of
`shared`.

A policy over A arms is a softmax (scores e_a - pi) or has one logit (arms wrong and right, score r - p). Glossary as in
`shared`; p = pass rate, q = 1-p, u = pq, S = number of successes in a group of K, G = |grad p|^2.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import binom, roots_jacobi

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.surrogate import Reinforce, Surrogate
from rftlab.shared.estimator import Estimator
from rftlab.shared.objective import objective_and_weights
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import prepare

REINFORCE = Reinforce()


def reinforce_with(advantage: Advantage, surrogate: Surrogate = REINFORCE) -> Estimator:
    """The estimator of that advantage, with nothing else in it."""
    return Estimator(advantage, surrogate, KL("none"), Aggregation("seq_mean_token_sum"))


def zscore(ddof: int) -> Estimator:
    """GRPO without the small number that guards its division."""
    return reinforce_with(Advantage("group_mean", "group_std", ddof=ddof, eps=0.0))


RAW, MEAN, RLOO = (reinforce_with(Advantage(kind)) for kind in ("none", "group_mean", "leave_one_out"))
GRPO, GRPO_POPULATION = zscore(1), zscore(0)


class ExactPolicy(NamedTuple):
    """A policy over arms: probs (A,), correct (A,) 0 or 1, scores (A, d) = grad log pi of each arm."""

    probs: np.ndarray
    correct: np.ndarray
    scores: np.ndarray

    @property
    def pass_rate(self) -> float:
        """p = E[r]."""
        return float(self.probs @ self.correct)

    @property
    def gradient(self) -> np.ndarray:
        """grad p = E[r s], (d,)."""
        return (self.probs * self.correct) @ self.scores


def softmax_policy(logits, correct) -> ExactPolicy:
    """Tabular softmax: the parameters are the logits."""
    probs = np.exp(np.asarray(logits, dtype=np.float64))
    probs /= probs.sum()
    return ExactPolicy(probs, np.asarray(correct, dtype=np.float64), np.eye(probs.size) - probs)


def one_correct(n_arms: int, p: float) -> ExactPolicy:
    """Softmax with pass rate p, one correct arm, and wrong ones that are equally likely."""
    return softmax_policy(np.log([p] + [(1 - p) / (n_arms - 1)] * (n_arms - 1)), [1] + [0] * (n_arms - 1))


def one_logit(p: float) -> ExactPolicy:
    """logit p = theta: arms wrong and right."""
    return ExactPolicy(np.array([1 - p, p]), np.array([0.0, 1.0]), np.array([[-p], [1 - p]]))


def weights(
    estimator: Estimator,
    rewards: np.ndarray,
    baseline: np.ndarray | None = None,
    correction: np.ndarray | None = None,
    logp: np.ndarray | None = None,
    ref_logp: np.ndarray | None = None,
) -> np.ndarray:
    """A_j / K: the weights (n, K) on the scores of n groups with rewards (n, K), on-policy.

    baseline (n, m) or (1, m): the baseline sets, by default the groups themselves. correction (n, K): importance
    weights. logp, ref_logp (n, K): log-probabilities under the policy and the reference, which a KL penalty compares.
    """
    n, size = rewards.shape
    sets = rewards if baseline is None else np.broadcast_to(baseline, (n, np.shape(baseline)[1]))
    pool = Pool(np.array(sets, dtype=np.float64).ravel(), np.arange(n + 1) * sets.shape[1])
    logp = np.zeros(n * size) if logp is None else logp.ravel()
    factor, reference = (None if given is None else np.ravel(given) for given in (correction, ref_logp))
    rows, starts = np.repeat(np.arange(n), size), np.arange(n * size + 1)
    batch = prepare(
        estimator, np.ravel(rewards), rows, starts, logp, reference, pool=pool, correction=factor, n_rows=size
    )
    return objective_and_weights(estimator, batch, logp).weight.reshape(n, size)


def constant(value: float) -> np.ndarray:
    """Baseline set with that mean, for `Advantage("group_mean")`: two copies, because a set of one reward is the
    singleton rule's."""
    return np.full((1, 2), float(value))


def all_groups(n_arms: int, size: int) -> np.ndarray:
    """All n_arms^size groups of arms, (n, size)."""
    return np.ascontiguousarray(np.indices((n_arms,) * size).reshape(size, -1).T)


def gradient_moments(
    policy: ExactPolicy, estimator: Estimator, size: int, baseline: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Mean (d,) and total variance (trace) of the gradient of one group of `size` responses, by enumeration of all
    of them."""
    arms = all_groups(policy.probs.size, size)
    return weighted_moments(policy, arms, weights(estimator, policy.correct[arms], baseline))


def weighted_moments(policy: ExactPolicy, arms: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Mean (d,) and total variance of sum_j weight_j score_j over groups of arms (n, K) with weights (n, K)."""
    chance, gradients = policy.probs[arms].prod(axis=1), np.einsum("nk,nkd->nd", weight, policy.scores[arms])
    mean = chance @ gradients
    return mean, float(chance @ ((gradients - mean) ** 2).sum(axis=1))


def along_gradient(policy: ExactPolicy, mean: np.ndarray) -> tuple[float, float]:
    """W and the part of the mean gradient that is not along grad p, relative: mean = W grad p + rest."""
    gradient = policy.gradient
    factor = float(mean @ gradient / (gradient @ gradient))
    return factor, float(np.linalg.norm(mean - factor * gradient) / np.linalg.norm(gradient))


def binomial(size: int, p) -> np.ndarray:
    """P(S = s), s = 0 .. size, for pass rates p of any shape: (..., size + 1)."""
    p, s = np.asarray(p, dtype=np.float64)[..., None], np.arange(size + 1)
    return binom(size, s) * p**s * (1 - p) ** (size - s)


def groups_by_count(size: int) -> np.ndarray:
    """One group for each number of successes S = 0 .. size, successes first: (size + 1, size)."""
    return (np.arange(size) < np.arange(size + 1)[:, None]).astype(np.float64)


class Counted(NamedTuple):
    """Weights of a group by its number of successes; exact for exchangeable estimators at any K. Arrays (K + 1,)."""

    right: np.ndarray
    """Sum of the weights of right responses."""
    total: np.ndarray
    """Sum of all weights."""
    squares: np.ndarray
    """Sum of their squares: what a unit of reward-irrelevant score adds to the squared norm."""


@cache
def by_count(estimator: Estimator, size: int) -> Counted:
    """The weights that `shared` gives to groups of `size` responses, by number of successes."""
    rewards = groups_by_count(size)
    weight = weights(estimator, rewards)
    return Counted((weight * rewards).sum(axis=1), weight.sum(axis=1), (weight**2).sum(axis=1))


def logit_moments(counted: Counted, p) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, second moment and nuisance E[sum w^2] of a group's gradient in the one-logit model, at pass rates p of
    any shape."""
    chance = binomial(counted.total.size - 1, p)
    gradient = counted.right - np.asarray(p)[..., None] * counted.total
    return (chance * gradient).sum(axis=-1), (chance * gradient**2).sum(axis=-1), chance @ counted.squares


def measured_factor(estimator: Estimator, size: int, p) -> np.ndarray:
    """W_K(p) of an estimator: its mean gradient over u, in the one-logit model."""
    p = np.asarray(p, dtype=np.float64)
    return logit_moments(by_count(estimator, size), p)[0] / (p * (1 - p))


def limit_factor(estimator: Estimator, p) -> np.ndarray:
    """W_K(p) as K -> inf, extrapolated from K = 128, 256, 512: up to terms of order 1/(K u)^3."""
    small, middle, large = (measured_factor(estimator, size, p) for size in (128, 256, 512))
    return (small - 6 * middle + 8 * large) / 3


def zscore_factor(size: int, p, ddof: int = 1):
    """W_K(p) = E[sqrt(S(K-S))]/(K u), S ~ Bin(K, p), with the population's spread; times sqrt((K-1)/K) with the
    sample's."""
    p, s = np.asarray(p, dtype=np.float64), np.arange(size + 1)
    factor = binomial(size, p) @ np.sqrt(s * (size - s)) / (size * p * (1 - p))
    return factor * np.sqrt((size - ddof) / size)


class PassRates(NamedTuple):
    """A distribution of pass rates over contexts: values (n,) with chances (n,)."""

    values: np.ndarray
    chances: np.ndarray

    def mean(self, function) -> float:
        """E[function(p, q)]."""
        return float(self.chances @ function(self.values, 1 - self.values))


def beta_rates(a: float, b: float, nodes: int = 40) -> PassRates:
    """Beta(a, b) as Gauss-Jacobi nodes: expectations of polynomials in p up to degree 2 nodes - 1 are exact."""
    x, chances = roots_jacobi(nodes, b - 1, a - 1)
    return PassRates((1 + x) / 2, chances / chances.sum())
