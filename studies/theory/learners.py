"""Learners for the checks of dynamics: exact expected updates through `shared`, and many independent learners in one
run of `sim`.

The one-logit model has theta = logit p and the score r - p of a rollout with reward r. A tabular softmax with A arms of
which one is correct moves logit p by A/(A-1) times as much at equal rate, because the correct logit rises and the
others fall.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy.special import expit, gammaln, logit

from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.sim.config import Optimizer, OptimizerKind, Simulation, Tabular
from rftlab.sim.environments import tabular_world
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals
from rftlab.studies.theory.models import weights

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


def endless_set(p: np.ndarray) -> np.ndarray:
    """Baseline sets (n, 2) of infinitely many rollouts of contexts with pass rates p (n,): two values with the same
    mean and variance."""
    spread = np.sqrt(p * (1 - p))
    return np.column_stack([p - spread, p + spread])


def expected_step(estimator: Estimator, k: float, theta: np.ndarray | float, theta_ref: float = 0.0) -> np.ndarray:
    """Expected gradient (n,) of the one-logit model at theta (n,), by enumerating the K+1 success counts; k may be
    inf (population std)."""
    theta = np.atleast_1d(np.asarray(theta, dtype=np.float64))
    size = int(k) if np.isfinite(k) else 1
    counts = np.arange(size + 1)
    rewards = np.tile((np.arange(size) < counts[:, None]).astype(np.float64), (theta.size, 1))
    p, q = expit(theta)[:, None], expit(-theta)[:, None]
    chance = (
        np.exp(gammaln(size + 1) - gammaln(counts + 1) - gammaln(size - counts + 1)) * p**counts * q ** (size - counts)
    )
    logit_p = np.repeat(theta, size + 1)[:, None]
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
    """Expected gradient (n, A) in the logits of policies probs (n, A), by enumerating all A^K groups.

    correct (A,) bool; ref (A,) is the base policy, by default the policy itself; with `endless` the baseline set is
    infinite (population std).
    """
    n, arms = probs.shape
    actions = np.indices((arms,) * k).reshape(k, -1).T
    chance = probs[:, actions].prod(axis=2)
    rewards = np.tile(correct[actions].astype(np.float64), (n, 1))
    logp = np.log(probs[:, actions]).reshape(-1, k)
    ref_logp = logp if ref is None else np.tile(np.log(ref[actions]), (n, 1))
    baseline = endless_set(np.repeat((probs * correct).sum(axis=1), len(actions))) if endless else None
    weight = weights(estimator, rewards, baseline, logp=logp, ref_logp=ref_logp).reshape(n, len(actions), k)
    picked = np.einsum("ns,nsk,ska->na", chance, weight, np.eye(arms)[actions])
    return picked - probs * np.einsum("ns,nsk->n", chance, weight)[:, None]


def arms_speed(
    theta: np.ndarray, estimator: Estimator, arms: int, k: int = 1, endless: bool = False, natural: bool = False
) -> np.ndarray:
    """Expected speed (n,) of logit p of a softmax with one correct arm and equal wrong ones; `natural` takes the
    Fisher metric's gradient."""
    probs = np.repeat(expit(-theta)[:, None] / (arms - 1), arms, axis=1)
    probs[:, 0] = expit(theta)
    gradient = expected_gradient(estimator, k, probs, np.arange(arms) == 0, endless=endless)
    if natural:
        fisher = probs[:, :, None] * (np.eye(arms) - probs[:, None, :])
        gradient = np.einsum("nab,nb->na", np.linalg.pinv(fisher, rcond=1e-12, hermitian=True), gradient)
    return gradient[:, 0] - gradient[:, 1:].mean(axis=1)


def durations(speed: Callable[[np.ndarray], np.ndarray], theta: np.ndarray) -> np.ndarray:
    """Time of the flow d theta/dt = speed(theta) between successive points of theta (m,): the integrals (m-1,) of
    1/speed."""
    pieces = [np.linspace(a, b, max(1, int(np.ceil(abs(b - a) / 2))) + 1) for a, b in pairwise(theta)]
    left, right = (np.concatenate([piece[s] for piece in pieces]) for s in (slice(None, -1), slice(1, None)))
    nodes = (left + right)[:, None] / 2 + (right - left)[:, None] / 2 * NODES
    parts = (NODE_WEIGHTS / speed(nodes.ravel()).reshape(nodes.shape)).sum(axis=1) * (right - left) / 2
    return np.add.reduceat(parts, np.cumsum([0, *(len(piece) - 1 for piece in pieces[:-1])]))


def time_to_learn(speed: Callable[[np.ndarray], np.ndarray], p0: float, p1: float = 0.5) -> float:
    """Time of the flow d theta/dt = speed(theta) from pass rate p0 to p1."""
    return float(durations(speed, logit(np.array([p0, p1])))[0])


class Learners:
    """Independent learners, one per context of a tabular world in `sim`: equal contexts share nothing, not even random
    numbers.

    base_logits (n, A), correct (n, A) bool. `rate` is that of one learner: the mean over the batch divides each
    gradient by n, so the simulator's rate is n times it (Adam does not care for the scale and takes `rate` as it is).
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
        run = Simulation(
            Tabular(n_contexts=n),
            design,
            Optimizer(kind, learning_rate=rate * n if kind == "sgd" else rate, **adam),
            seed=seed,
        )
        self.plan, self.rule = make_plan(run, self.world)._replace(chunk=n), as_rule(estimator)
        self.state, self.work = start_state(run, self.world), make_work(run, self.world)
        self.rounds, self.shape, self.correct = 0, (n, rollouts), np.asarray(correct)

    def advance(self, rounds: int) -> None:
        """Train for some rounds; every round visits every learner."""
        chosen = np.tile(np.arange(self.shape[0]), (rounds, 1))
        train_rounds(self.world.train, self.plan, self.rule, self.state, self.work, chosen, self.rounds, no_totals())
        self.rounds += rounds

    def logits(self) -> np.ndarray:
        """Logits (n, A) of every learner."""
        return self.world.train.base_logits + self.state.theta[:-1].reshape(self.correct.shape)

    def theta(self) -> np.ndarray:
        """logit p of every learner (n,)."""
        right, wrong = (
            np.logaddexp.reduce(np.where(mask, self.logits(), -np.inf), axis=1)
            for mask in (self.correct, ~self.correct)
        )
        return right - wrong

    def rewards(self) -> np.ndarray:
        """Rewards (n, K) of the trained rollouts of the last round."""
        return self.work.reward[: self.shape[0] * self.shape[1]].reshape(self.shape).copy()

    def advantages(self) -> np.ndarray:
        """Advantages (n, K) of the last round."""
        return self.work.advantage.reshape(self.shape).copy()


def two_arms(p: np.ndarray | Sequence[float] | float, n: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Logits (m, 2) and correct arms of two-arm contexts with these pass rates, each repeated n times."""
    theta = np.repeat(logit(np.atleast_1d(p)), n)
    return np.column_stack([theta / 2, -theta / 2]), np.tile([True, False], (theta.size, 1))


def hitting_times(learners: Learners, p1: float, every: int, limit: int) -> np.ndarray:
    """Rounds (n,) until each learner first reaches pass rate p1, interpolated between looks; nan where it never does
    within `limit`."""
    goal, before = logit(p1), learners.theta()
    times = np.full(before.size, np.nan)
    while learners.rounds < limit and np.isnan(times).any():
        learners.advance(every)
        now = learners.theta()
        new = np.isnan(times) & (now >= goal)
        times[new] = learners.rounds - every * (now - goal)[new] / (now - before)[new]
        before = now
    return times
