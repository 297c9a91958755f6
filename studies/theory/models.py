"""Compute exact gradients of small worlds for the checks: every group of K responses has its probability and the
weights of the estimators of `shared`. Also simulate learners in these worlds.

A policy over A arms is a softmax (scores e_a - pi) or has one logit (arms wrong and right, score r - p). Glossary as in
`shared`; p = pass rate, q = 1-p, u = pq, S = number of successes in a group of K, G = |grad p|^2.

Learners make exact expected updates through `shared`, or are many independent ones in one run of `sim`. The one-logit
model has theta = logit p and the score r - p of a rollout with reward r. A tabular softmax with A arms of which one is
correct moves logit p by A/(A-1) times as much at equal rate, because the correct logit rises and the others fall.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import binom, expit, logit, roots_jacobi

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.surrogate import Reinforce, Surrogate
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.objective import objective_and_weights
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import prepare
from rftlab.sim.config import Optimizer, OptimizerKind, Simulation, Tabular
from rftlab.sim.environments import tabular_world
from rftlab.sim.round.optimizer import ascend, optimizer_rule
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals

REINFORCE = Reinforce()


def reinforce_with(advantage: Advantage, surrogate: Surrogate = REINFORCE) -> Estimator:
    """Return the estimator of that advantage, without penalties and corrections."""
    return Estimator(advantage, surrogate, KL("none"), Aggregation("seq_mean_token_sum"))


def zscore(ddof: int) -> Estimator:
    """Return GRPO's estimator without the small number that guards its division."""
    return reinforce_with(Advantage("group_mean", "group_std", ddof=ddof, eps=0.0))


RAW, MEAN, RLOO = (reinforce_with(Advantage(kind)) for kind in ("none", "group_mean", "leave_one_out"))
GRPO, GRPO_POPULATION = zscore(1), zscore(0)


class ExactPolicy(NamedTuple):
    """Policy over arms: probs (A,), correct (A,) 0 or 1, scores (A, d) = grad log pi of each arm."""

    probs: np.ndarray
    correct: np.ndarray
    scores: np.ndarray

    @property
    def pass_rate(self) -> float:
        """Pass rate p = E[r]."""
        return float(self.probs @ self.correct)

    @property
    def gradient(self) -> np.ndarray:
        """Gradient of the pass rate: grad p = E[r s], (d,)."""
        return (self.probs * self.correct) @ self.scores


def softmax_policy(logits, correct) -> ExactPolicy:
    """Return a tabular softmax policy, whose parameters are the logits."""
    probs = np.exp(np.asarray(logits, dtype=np.float64))
    probs /= probs.sum()
    return ExactPolicy(probs, np.asarray(correct, dtype=np.float64), np.eye(probs.size) - probs)


def one_correct(n_arms: int, p: float) -> ExactPolicy:
    """Return a softmax with pass rate p, one correct arm, and wrong ones that are equally likely."""
    return softmax_policy(np.log([p] + [(1 - p) / (n_arms - 1)] * (n_arms - 1)), [1] + [0] * (n_arms - 1))


def one_logit(p: float) -> ExactPolicy:
    """Return the policy with one parameter, logit p = theta, and the arms wrong and right."""
    return ExactPolicy(np.array([1 - p, p]), np.array([0.0, 1.0]), np.array([[-p], [1 - p]]))


def weights(
    estimator: Estimator,
    rewards: np.ndarray,
    baseline: np.ndarray | None = None,
    correction: np.ndarray | None = None,
    logp: np.ndarray | None = None,
    ref_logp: np.ndarray | None = None,
) -> np.ndarray:
    """Return the weights A_j / K (n, K) on the scores of n groups with rewards (n, K), on-policy.

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
    """Return a baseline set with that mean, for `Advantage("group_mean")`: two copies, because the singleton rule
    applies to a set of one reward."""
    return np.full((1, 2), float(value))


def all_groups(n_arms: int, size: int) -> np.ndarray:
    """Return all n_arms^size groups of arms, (n, size)."""
    return np.ascontiguousarray(np.indices((n_arms,) * size).reshape(size, -1).T)


def gradient_moments(
    policy: ExactPolicy, estimator: Estimator, size: int, baseline: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Return the mean (d,) and total variance (trace) of the gradient of one group of `size` responses, by enumeration
    of all groups."""
    arms = all_groups(policy.probs.size, size)
    return weighted_moments(policy, arms, weights(estimator, policy.correct[arms], baseline))


def weighted_moments(policy: ExactPolicy, arms: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Return mean (d,) and total variance of sum_j weight_j score_j over groups of arms (n, K) with weights (n, K)."""
    chance, gradients = policy.probs[arms].prod(axis=1), np.einsum("nk,nkd->nd", weight, policy.scores[arms])
    mean = chance @ gradients
    return mean, float(chance @ ((gradients - mean) ** 2).sum(axis=1))


def along_gradient(policy: ExactPolicy, mean: np.ndarray) -> tuple[float, float]:
    """Return W and the relative size of the rest of the mean gradient across grad p: mean = W grad p + rest."""
    gradient = policy.gradient
    factor = float(mean @ gradient / (gradient @ gradient))
    return factor, float(np.linalg.norm(mean - factor * gradient) / np.linalg.norm(gradient))


def binomial(size: int, p) -> np.ndarray:
    """Return P(S = s), s = 0 .. size, for pass rates p of any shape: (..., size + 1)."""
    p, s = np.asarray(p, dtype=np.float64)[..., None], np.arange(size + 1)
    return binom(size, s) * p**s * (1 - p) ** (size - s)


def groups_by_count(size: int) -> np.ndarray:
    """Return one group for each number of successes S = 0 .. size, successes first: (size + 1, size)."""
    return (np.arange(size) < np.arange(size + 1)[:, None]).astype(np.float64)


class Counted(NamedTuple):
    """Weights of a group by its number of successes; exact for exchangeable estimators at any K. Arrays (K + 1,)."""

    right: np.ndarray
    """Sum of the weights of right responses."""
    total: np.ndarray
    """Sum of all weights."""
    squares: np.ndarray
    """Sum of squared weights, which a unit of reward-irrelevant score adds to the squared norm."""


@cache
def by_count(estimator: Estimator, size: int) -> Counted:
    """Return the weights that `shared` gives to groups of `size` responses, by number of successes."""
    rewards = groups_by_count(size)
    weight = weights(estimator, rewards)
    return Counted((weight * rewards).sum(axis=1), weight.sum(axis=1), (weight**2).sum(axis=1))


def logit_moments(counted: Counted, p) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, second moment and nuisance E[sum w^2] of a group's gradient in the one-logit model, at pass rates p
    of any shape."""
    chance = binomial(counted.total.size - 1, p)
    gradient = counted.right - np.asarray(p)[..., None] * counted.total
    return (chance * gradient).sum(axis=-1), (chance * gradient**2).sum(axis=-1), chance @ counted.squares


def measured_factor(estimator: Estimator, size: int, p) -> np.ndarray:
    """Return W_K(p) of an estimator: its mean gradient over u, in the one-logit model."""
    p = np.asarray(p, dtype=np.float64)
    return logit_moments(by_count(estimator, size), p)[0] / (p * (1 - p))


def limit_factor(estimator: Estimator, p) -> np.ndarray:
    """Return W_K(p) as K -> inf, extrapolated from K = 128, 256, 512, up to terms of order 1/(K u)^3."""
    small, middle, large = (measured_factor(estimator, size, p) for size in (128, 256, 512))
    # of W + a/K + b/K^2 these weights cancel a and b
    return (small - 6 * middle + 8 * large) / 3


def zscore_factor(size: int, p, ddof: int = 1):
    """Return W_K(p) = E[sqrt(S(K-S))]/(K u), S ~ Bin(K, p), with the population's standard deviation (ddof 0); times
    sqrt((K-1)/K) with the sample's (ddof 1)."""
    p, s = np.asarray(p, dtype=np.float64), np.arange(size + 1)
    factor = binomial(size, p) @ np.sqrt(s * (size - s)) / (size * p * (1 - p))
    return factor * np.sqrt((size - ddof) / size)


class PassRates(NamedTuple):
    """Distribution of pass rates over contexts: values (n,) with chances (n,)."""

    values: np.ndarray
    chances: np.ndarray

    def mean(self, function) -> float:
        """Return E[function(p, q)]."""
        return float(self.chances @ function(self.values, 1 - self.values))


def beta_rates(a: float, b: float, nodes: int = 40) -> PassRates:
    """Return Beta(a, b) as Gauss-Jacobi nodes: expectations of polynomials in p up to degree 2 nodes - 1 are exact."""
    # with p = (1 + x) / 2 the density of Beta(a, b) is the Jacobi weight (1 - x)^(b-1) (1 + x)^(a-1)
    x, chances = roots_jacobi(nodes, b - 1, a - 1)
    return PassRates((1 + x) / 2, chances / chances.sum())


NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


def endless_set(p: np.ndarray) -> np.ndarray:
    """Return baseline sets (n, 2) that stand for infinitely many rollouts of contexts with pass rates p (n,): two
    values with the same mean and variance."""
    spread = np.sqrt(p * (1 - p))
    return np.column_stack([p - spread, p + spread])


def expected_step(estimator: Estimator, k: float, theta: np.ndarray | float, theta_ref: float = 0.0) -> np.ndarray:
    """Return the expected gradient (n,) of the one-logit model at theta (n,), by enumerating the K+1 success counts; k
    may be inf (population std)."""
    theta = np.atleast_1d(np.asarray(theta, dtype=np.float64))
    size = int(k) if np.isfinite(k) else 1
    counts, rewards = np.arange(size + 1), np.tile(groups_by_count(size), (theta.size, 1))
    p, q = expit(theta)[:, None], expit(-theta)[:, None]
    chance = binom(size, counts) * p**counts * q ** (size - counts)
    logit_p = np.repeat(theta, size + 1)[:, None]
    # log expit as -logaddexp, which keeps its digits where p is next to 0 or 1
    logp, ref_logp = (
        np.where(rewards > 0, -np.logaddexp(0, -z), -np.logaddexp(0, z))
        for z in (logit_p, np.full_like(logit_p, theta_ref))
    )
    baseline = None if np.isfinite(k) else endless_set(expit(logit_p[:, 0]))
    weight = weights(estimator, rewards, baseline, logp=logp, ref_logp=ref_logp)
    score = np.where(rewards > 0, expit(-logit_p), -expit(logit_p))
    return (chance * (weight * score).sum(axis=1).reshape(theta.size, size + 1)).sum(axis=1)


def expected_gradient(
    estimator: Estimator,
    k: int,
    probs: np.ndarray,
    correct: np.ndarray,
    ref: np.ndarray | None = None,
    endless: bool = False,
) -> np.ndarray:
    """Return the expected gradient (n, A) in the logits of policies probs (n, A), by enumerating all A^K groups.

    correct (A,) bool; ref (A,) is the base policy, by default the policy itself; with `endless` the baseline set is
    infinite (population std).
    """
    n, arms = probs.shape
    actions = all_groups(arms, k)
    chance = probs[:, actions].prod(axis=2)
    rewards = np.tile(correct[actions].astype(np.float64), (n, 1))
    logp = np.log(probs[:, actions]).reshape(-1, k)
    ref_logp = logp if ref is None else np.tile(np.log(ref[actions]), (n, 1))
    baseline = endless_set(np.repeat((probs * correct).sum(axis=1), len(actions))) if endless else None
    weight = weights(estimator, rewards, baseline, logp=logp, ref_logp=ref_logp).reshape(n, len(actions), k)
    picked = np.einsum("ns,nsk,ska->na", chance, weight, np.eye(arms)[actions])
    return picked - probs * np.einsum("ns,nsk->n", chance, weight)[:, None]


def arms_speed(
    theta: np.ndarray, estimator: Estimator, arms: int, endless: bool = False, natural: bool = False
) -> np.ndarray:
    """Return the expected speed (n,) of logit p of a softmax with one correct arm and equal wrong ones; `natural` takes
    the gradient in the Fisher metric."""
    probs = np.repeat(expit(-theta)[:, None] / (arms - 1), arms, axis=1)
    probs[:, 0] = expit(theta)
    gradient = expected_gradient(estimator, 1, probs, np.arange(arms) == 0, endless=endless)
    if natural:
        fisher = probs[:, :, None] * (np.eye(arms) - probs[:, None, :])
        gradient = np.einsum("nab,nb->na", np.linalg.pinv(fisher, rcond=1e-12, hermitian=True), gradient)
    return gradient[:, 0] - gradient[:, 1:].mean(axis=1)


def durations(speed: Callable[[np.ndarray], np.ndarray], theta: np.ndarray) -> np.ndarray:
    """Return the times of the flow d theta/dt = speed(theta) between successive points of theta (m,): the integrals
    (m-1,) of 1/speed."""
    # pieces of at most 2: 1/speed goes like e^theta, and 16 nodes integrate e^2 to the last digit
    pieces = [np.linspace(a, b, max(1, int(np.ceil(abs(b - a) / 2))) + 1) for a, b in pairwise(theta)]
    left, right = (np.concatenate([piece[s] for piece in pieces]) for s in (slice(None, -1), slice(1, None)))
    nodes = (left + right)[:, None] / 2 + (right - left)[:, None] / 2 * NODES
    parts = (NODE_WEIGHTS / speed(nodes.ravel()).reshape(nodes.shape)).sum(axis=1) * (right - left) / 2
    return np.add.reduceat(parts, np.cumsum([0, *(len(piece) - 1 for piece in pieces[:-1])]))


def time_to_learn(speed: Callable[[np.ndarray], np.ndarray], p0: float, p1: float = 0.5) -> float:
    """Return the time of the flow d theta/dt = speed(theta) from pass rate p0 to p1."""
    return float(durations(speed, logit(np.array([p0, p1])))[0])


def steady_drift(
    kind: OptimizerKind, rounds: Iterable[Sequence[np.ndarray]], mean: np.ndarray, square: np.ndarray, skip: int, n: int
) -> np.ndarray:
    """Return how far each of n rounds moves parameters on average, in learning rates, after the first `skip`. rounds:
    the gradients of each round's updates, late in a run; mean, square: Adam's moments before them."""
    rates, theta, step = optimizer_rule(Optimizer(kind, learning_rate=1.0, eps=1e-12)), np.zeros(mean.size), 10**6
    for index, gradients in enumerate(rounds):
        if index == skip:
            start = theta.copy()
        for gradient in gradients:
            step += 1
            ascend(rates, step, gradient.copy(), mean, square, theta)
    return (theta - start) / (n - skip)


class Learners:
    """Independent learners, one per context of a tabular world in `sim`: equal contexts share nothing, not even random
    numbers.

    base_logits (n, A), correct (n, A) bool. `rate` is that of one learner: the mean over the batch divides each
    gradient by n, so the simulator's rate is n times it. Adam is invariant to the gradient's scale and takes `rate` as
    it is.
    """

    def __init__(
        self,
        base_logits,
        correct,
        estimator: Estimator,
        rollouts: int,
        rate: float,
        support: int = 0,
        kind: OptimizerKind = "sgd",
        seed: int = 0,
        **adam,
    ):
        n = len(base_logits)
        self.world = tabular_world(base_logits, correct)
        design = Design(n, rollouts, support, estimator=estimator, rounds=1, eval_every=1)
        optimizer = Optimizer(kind, learning_rate=rate * n if kind == "sgd" else rate, **adam)
        run = Simulation(Tabular(n_contexts=n), design, optimizer, seed=seed)
        self.plan, self.rule = make_plan(run, self.world)._replace(chunk=n), as_rule(estimator)
        self.state, self.work = start_state(run, self.world), make_work(run, self.world)
        self.rounds, self.shape, self.correct = 0, (n, rollouts), np.asarray(correct)

    def advance(self, rounds: int) -> None:
        """Train for some rounds; every round visits every learner."""
        chosen = np.tile(np.arange(self.shape[0]), (rounds, 1))
        train_rounds(self.world.train, self.plan, self.rule, self.state, self.work, chosen, self.rounds, no_totals())
        self.rounds += rounds

    def logits(self) -> np.ndarray:
        """Return the logits (n, A) of every learner."""
        return self.world.train.base_logits + self.state.theta[:-1].reshape(self.correct.shape)

    def theta(self) -> np.ndarray:
        """Return logit p of every learner (n,)."""
        right, wrong = (
            np.logaddexp.reduce(np.where(mask, self.logits(), -np.inf), axis=1)
            for mask in (self.correct, ~self.correct)
        )
        return right - wrong

    def rewards(self) -> np.ndarray:
        """Return the rewards (n, K) of the trained rollouts of the last round."""
        return self.work.reward[: self.shape[0] * self.shape[1]].reshape(self.shape).copy()

    def advantages(self) -> np.ndarray:
        """Return the advantages (n, K) of the last round."""
        return self.work.advantage.reshape(self.shape).copy()


def two_arms(p: np.ndarray | Sequence[float] | float, n: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return logits (m, 2) and correct arms of two-arm contexts with these pass rates, each repeated n times."""
    theta = np.repeat(logit(np.atleast_1d(p)), n)
    return np.column_stack([theta / 2, -theta / 2]), np.tile([True, False], (theta.size, 1))


def hitting_times(learners: Learners, p1: float, every: int, limit: int) -> np.ndarray:
    """Return the rounds (n,) until each learner first reaches pass rate p1, interpolated between looks; nan where it
    does not within `limit`."""
    goal, before = logit(p1), learners.theta()
    times = np.full(before.size, np.nan)
    while learners.rounds < limit and np.isnan(times).any():
        learners.advance(every)
        now = learners.theta()
        new = np.isnan(times) & (now >= goal)
        times[new] = learners.rounds - every * (now - goal)[new] / (now - before)[new]
        before = now
    return times
