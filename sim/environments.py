"""Build the worlds of the two environments: linear (parameters shared by all contexts, so it generalises) and tabular
(nothing shared, exact)."""

from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.jit import entry
from rftlab.sim.config import FLIPS, SHORT_RARE, Environment, Linear, Tabular
from rftlab.sim.policy.style import token_style
from rftlab.sim.world import NO_ARM, Contexts, Style, World, make_contexts, padded

FLIPPING = 2**63
"""Second word of the random key of sticky flips. No number of contexts has this value."""
_EXTRAS = (
    "answer_tokens",
    "surprise",
    "interference",
    "forgetting",
    "sharpening",
    "correctness",
    "correctness_parts",
    "damage",
    "verbosity",
    "verbosity_noise",
    "exploration",
    "partial_credit",
    "reward_noise",
    "format_reward",
)
"""Fields of a linear environment that its world has under the same names."""


def build(environment: Environment) -> World:
    """Return the world of an environment, drawn from its `world_seed`. Raises UserError where the base policy's logits
    are too large for float32."""
    return _linear(environment) if isinstance(environment, Linear) else _tabular(environment)


def tabular_world(base_logits: np.ndarray, correct: np.ndarray, nuisance: float = 0.0) -> World:
    """Return a tabular world with given logits (N, A) and correct arms (N, A) bool; every response is well formed."""
    logits = np.array(base_logits, dtype=np.float64)
    contexts = make_contexts(np.zeros((0, 0)), logits, np.full(len(logits), np.inf), np.asarray(correct, dtype=bool))
    return World(contexts, contexts, logits.shape[1], 0.0, float(nuisance))


def _tabular(environment: Tabular) -> World:
    rng = np.random.Generator(np.random.Philox(environment.world_seed))
    logits = environment.base_scale * rng.standard_normal((environment.n_contexts, environment.n_arms))
    correct = np.broadcast_to(np.arange(environment.n_arms) < environment.n_correct, logits.shape)
    return tabular_world(logits, correct, environment.nuisance)


def _linear(environment: Linear) -> World:
    train, test = (contexts.at(environment.align, environment.kappa) for contexts in drawn_contexts(environment))
    base = World(train, test, environment.n_arms, environment.format_scale, environment.nuisance, _style(environment))
    extras = _EXTRAS if environment.sticky_flips else (*_EXTRAS, *FLIPS)
    return base._replace(**{name: getattr(environment, name) for name in extras})


def drawn_contexts(environment: Linear) -> tuple["DrawnContexts", "DrawnContexts"]:
    """Return training and test contexts, drawn from the environment's `world_seed`. They do not depend on `align` or
    `kappa`."""
    rng = np.random.Generator(np.random.Philox(environment.world_seed))
    shape = (environment.n_features, environment.answer_tokens * environment.n_answers)
    teacher, distractor = rng.standard_normal(shape), rng.standard_normal(shape)
    train = _drawn(environment, teacher, distractor, rng, environment.n_train, environment.familiarity)
    test = _drawn(environment, teacher, distractor, rng, environment.n_test, 0.0)
    return train._replace(rewarded=_flipped(environment, train.correct)) if environment.sticky_flips else train, test


def _flipped(environment: Linear, correct: np.ndarray) -> np.ndarray:
    """Return the arms (n, A) bool that a verifier with errors rewards; it errs on an answer in all its styles alike."""
    key = np.array([environment.world_seed, FLIPPING], dtype=np.uint64)
    draws = np.random.Generator(np.random.Philox(key=key)).random(correct[:, :: environment.n_styles].shape)
    draws = np.repeat(draws, environment.n_styles, axis=1)
    return correct ^ (draws < np.where(correct, environment.false_negative, environment.false_positive))


def _style(environment: Linear) -> Style:
    lengths = (environment.style_tokens, environment.length_by_style, environment.length_jitter)
    return token_style(*lengths, environment.n_styles, environment.nuisance, environment.exploration > 0)


def _unit(directions: np.ndarray) -> np.ndarray:
    return (directions / np.linalg.norm(directions, axis=0)).astype(np.float32)


def project(features: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return features (n, d) times directions (d, Y) in float32. Each sum runs in the order of the features, because
    BLAS uses another order on every processor."""
    projected = np.zeros((len(features), directions.shape[1]), dtype=np.float32)
    _project_into(features, directions, projected)
    return projected


@entry
def _project_into(features, directions, projected):
    for i in range(features.shape[0]):
        for k in range(features.shape[1]):
            x = features[i, k]
            for j in range(directions.shape[1]):
                projected[i, j] += x * directions[k, j]


def _scored(
    environment: Linear, teacher: np.ndarray, rng: np.random.Generator, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw features (n, d) and scores (n, T Y) of contexts. Contexts below the margin are drawn again."""
    features, scores = np.empty((n, environment.n_features), dtype=np.float32), np.empty((n, teacher.shape[1]))
    missing = np.arange(n)
    while missing.size:
        drawn = rng.standard_normal((missing.size, environment.n_features), dtype=np.float32)
        known = project(drawn, teacher)
        features[missing] = drawn
        scores[missing] = np.sqrt(environment.rho) * known + np.sqrt(1 - environment.rho) * rng.standard_normal(
            known.shape
        )
        best = np.sort(scores[missing].reshape(missing.size, environment.answer_tokens, -1), axis=2)[:, :, -2:]
        missing = missing[(best[:, :, -1] - best[:, :, 0] < environment.margin).any(axis=1)]
    return features, scores


class DrawnContexts(NamedTuple):
    """Contexts of a linear environment before `align` and `kappa` of the base policy are chosen."""

    environment: Linear
    features: np.ndarray
    """(n, d) float32."""
    score: np.ndarray
    """(n, T Y) scores; the answer with the largest score of each token is right."""
    unrelated: np.ndarray
    """(n, T Y) values that are linear in the features and unrelated to the score."""
    noise: np.ndarray
    """(n, A) noise of the base policy's logits."""
    correct: np.ndarray
    """(n, A) bool."""
    bonus: float
    """Bonus of correct arms in the base policy's logits."""
    base_format: np.ndarray
    """(n,) logits of the format under the base policy."""
    rewarded: np.ndarray
    """(n, A) bool, arms that the verifier rewards: `correct` with its sticky flips."""

    def base_logits(self, align: float, kappa: float) -> np.ndarray:
        """Return the base policy's logits (n, A): kappa times a mixture of the score and the unrelated values, plus
        noise."""
        known: float | np.ndarray = align
        if self.environment.unknown > 0:
            known = np.where(np.arange(len(self.score)) < self.environment.unknown * len(self.score), 0.0, align)[
                :, None
            ]
        answers = kappa * (known * self.score + np.sqrt(1 - known**2) * self.unrelated)
        logits = np.repeat(answers, self.environment.n_styles, axis=1)
        logits += self.noise
        if self.bonus != 0:
            logits[self.correct] += self.bonus
        if self.environment.short_right < 1:
            logits[:, :: self.environment.n_styles] -= SHORT_RARE
        return logits

    def at(self, align: float, kappa: float) -> Contexts:
        """Return the contexts as kernels take them, for a base policy with this `align` and `kappa`."""
        return make_contexts(
            padded(self.features, 0.0),
            padded(self.base_logits(align, kappa), NO_ARM),
            self.base_format.astype(np.float32),
            self.rewarded,
            self.environment.answer_tokens,
        )


def _drawn(
    environment: Linear, teacher: np.ndarray, distractor: np.ndarray, rng: np.random.Generator, n: int, bonus: float
) -> DrawnContexts:
    features, score = _scored(environment, _unit(teacher), rng, n)
    solvable = rng.random(n) >= environment.unsolvable
    unrelated = project(features, _unit(distractor))
    noise = 0.5 * rng.standard_normal((n, environment.n_arms))
    by_token = score.reshape(n, environment.answer_tokens, environment.n_answers)
    correct = (np.arange(environment.n_answers) == by_token.argmax(axis=2)[:, :, None]).reshape(score.shape)
    correct = np.repeat(correct & solvable[:, None], environment.n_styles, axis=1)
    base_format = environment.base_format + rng.standard_normal(n)
    if environment.short_right < 1:
        key = np.array([environment.world_seed, n], dtype=np.uint64)
        aside = np.random.Generator(np.random.Philox(key=key))  # a stream of its own leaves other draws unchanged
        correct[:, :: environment.n_styles] &= (aside.random(n) < environment.short_right)[:, None]
    return DrawnContexts(environment, features, score, unrelated, noise, correct, bonus, base_format, correct)
