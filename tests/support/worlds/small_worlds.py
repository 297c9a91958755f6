"""What the tests of the general round share: small float64 worlds, the gradient of each context in a round,
comparisons by standard errors."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

import rftlab.sim.run
from rftlab.shared.design import Design
from rftlab.sim.config import Optimizer, Simulation, Tabular
from rftlab.sim.policy.products import places
from rftlab.sim.policy.style import token_style
from rftlab.sim.round.ragged import INT, MARK, NUMBER, ROW, TOKEN
from rftlab.sim.run import GeneralLearner, simulate
from rftlab.sim.state import no_totals
from rftlab.sim.world import NO_STYLE, World, make_contexts

CONTEXTS = 256
"""Copies of one context: each gives one independent sample of its gradient a round."""


def softmax(z):
    e = np.exp(z - np.max(z))
    return e / e.sum()


def styled(world, tokens, by_style=0.0, jitter=0.0, n_styles=2):
    """The world with style tokens instead of Gaussian nuisance."""
    explores = world.exploration > 0
    return world._replace(style=token_style(tokens, by_style, jitter, n_styles, world.nuisance, explores))


def mixed_world(tokens=5.0, by_style=0.6, jitter=0.3, nuisance=0.7):
    """15 contexts that differ, in float64: 5 arms, format, style tokens."""
    rng, shape = np.random.default_rng(5), (15, 5)
    contexts = make_contexts(
        np.zeros((0, 0)), rng.standard_normal(shape), rng.standard_normal(15) + 0.5, rng.random(shape) < 0.4
    )
    return styled(World(contexts, contexts, 5, 1.5, nuisance), tokens, by_style, jitter)


def spelt_world(n, tokens, width, nuisance=0.7, **extras):
    """n contexts in float64 with formats that are learnt, answers of several tokens with `width` arms each, of which
    some are right."""
    rng = np.random.default_rng(5)
    logits, correct = rng.standard_normal((n, tokens * width)), rng.random((n, tokens * width)) < 0.5
    contexts = make_contexts(np.zeros((0, 0)), logits, rng.standard_normal(n) + 0.5, correct, tokens)
    return World(contexts, contexts, tokens * width, 1.5, nuisance, answer_tokens=tokens, **extras)


def equal_world(logits, correct, nuisance=0.0, base_format=np.inf, format_scale=0.0):
    """CONTEXTS copies of one context."""
    copies = [np.repeat(np.atleast_2d(row), CONTEXTS, axis=0) for row in (logits, np.asarray(correct, dtype=bool))]
    contexts = make_contexts(np.zeros((0, 0)), copies[0].astype(np.float64), np.full(CONTEXTS, base_format), copies[1])
    return World(contexts, contexts, len(logits), format_scale, nuisance, NO_STYLE)


def learner_of(world, estimator, rollouts=1, seed=0, theta=None, rate=1.0, **more):
    """A learner of the general round on all contexts at once, whose SGD (of rate 1) adds the gradient to its
    parameters."""
    n = len(world.train.base_format)
    knobs = {"batch_size": n} | {name: more.pop(name) for name in tuple(more) if name in Design.__dataclass_fields__}
    design = Design(rollouts=rollouts, estimator=estimator, rounds=1, eval_every=1, **knobs)
    learner = GeneralLearner(
        Simulation(Tabular(n), design, Optimizer("sgd", learning_rate=rate), seed=seed, **more), world
    )
    put(learner, theta)
    return learner


def places_of(world):
    """Where the parameters hold the matrix (d or N, A), in either environment."""
    d, (n, columns) = world.train.features.shape[1], world.train.base_logits.shape
    return (places(d) if d else np.arange(n * columns).reshape(n, columns))[:, : world.n_arms]


def put(learner, theta):
    """Set the parameters: theta (A,) for every context."""
    if theta is not None:
        learner.state.theta[:-1] = np.tile(theta, len(learner.world.train.base_format))
        learner.state.theta[-1] = 0.0


def gradients(learner, rounds, theta=None, stale=None):
    """Gradients (rounds x contexts, A) in the contexts' logits, of the sum over the batch of each context's mean
    objective.

    theta (A,): the policy; stale (A,): that of the round before.
    """
    n, found = len(learner.world.train.base_format), []
    for round_index in range(1, rounds + 1):
        put(learner, np.zeros(learner.world.n_arms) if theta is None else theta)
        if stale is not None:
            learner.memory.history[:, :-1] = np.tile(stale, n)
        learner.memory.spent[2] = round_index
        before = learner.state.theta.copy()
        assert learner.advance(round_index, 1, no_totals()) == 1
        found.append((learner.state.theta - before)[:-1].reshape(n, -1) * n)
    return np.concatenate(found)


def z_scores(found, expected):
    """Distance of the mean of samples (n, ...) from `expected`, in standard errors."""
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found)) + 1e-12
    return np.abs(found.mean(axis=0) - expected) / error


def two_sample_z(a, b):
    """Distance of two means in standard errors."""
    error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b)) + 1e-12
    return np.abs(a.mean(axis=0) - b.mean(axis=0)) / error


def products(found):
    """Samples (n, A, A) whose mean is the covariance of samples (n, A)."""
    centred = found - found.mean(axis=0)
    return centred[:, :, None] * centred[:, None, :]


def forced(monkeypatch, run, world):
    """The outcome of a run by the general round, whether or not it needs it."""
    with monkeypatch.context() as patch:
        patch.setattr(rftlab.sim.run, "is_general", lambda run, world: True)
        return simulate(run, world)


def with_estimator(design, **changes):
    return replace(design, estimator=replace(design.estimator, **changes))


def same(a, b, but=("seconds",)):
    """Bitwise equality of two curves, but for some columns."""
    return all(
        np.array_equal(x, y, equal_nan=True) for name, x, y in zip(a._fields, a, b, strict=True) if name not in but
    )


class Seen(NamedTuple):
    """The latest round of a learner: row r of the batch has responses first[r] .. first[r+1]-1, response i tokens
    starts[i] .. starts[i+1]-1."""

    context: np.ndarray
    first: np.ndarray
    arm: np.ndarray
    """(R,), or (R, T) where an answer has several tokens."""
    reward: np.ndarray
    given: np.ndarray
    advantage: np.ndarray
    starts: np.ndarray
    signs: np.ndarray
    """(T, A) +-1: directions of style tokens; meaningless for answers."""
    coin: np.ndarray
    old: np.ndarray
    now: np.ndarray
    style: np.ndarray
    """(T,) whether a token is a style token."""

    @property
    def length(self):
        return np.diff(self.starts)


def seen(learner):
    """What the scratch of a learner holds of its latest round."""
    r, n, tokens_of_answer = learner.ragged, learner.run.design.batch_size, learner.world.answer_tokens
    first = r.rows[ROW.first, : n + 1].copy()
    starts = r.ints[INT.start, : first[-1] + 1].copy()
    responses, tokens = slice(0, first[-1]), slice(0, starts[-1])
    signs = 2 * ((r.marks[MARK.signs, tokens, None] >> np.arange(learner.world.n_arms)) & 1) - 1
    style = np.ones(starts[-1], dtype=bool)
    style[starts[:-1]] = False
    arms = r.arms[: first[-1] * tokens_of_answer].reshape(-1, tokens_of_answer)
    numbers = (r.numbers[row, responses].copy() for row in (NUMBER.reward, NUMBER.given, NUMBER.advantage))
    logps = (r.tokens[row, tokens].copy() for row in (TOKEN.old_logp, TOKEN.logp))
    arm = arms.copy() if tokens_of_answer > 1 else arms[:, 0].copy()
    return Seen(
        r.rows[ROW.context, :n].copy(),
        first,
        arm,
        *numbers,
        starts,
        signs,
        r.marks[MARK.style_token, tokens] != 0,
        *logps,
        style,
    )
