"""The two environments: linear (parameters shared by all contexts, so it generalises) and tabular (nothing shared,
exact)."""

import numpy as np

from rftlab.shared.jit import entry
from rftlab.sim.config import Environment, Linear, Tabular
from rftlab.sim.policy.style import style_of
from rftlab.sim.world import NO_ARM, Contexts, Style, World, contexts_of, padded

_EXTRAS = (
    "answer_tokens",
    "surprise",
    "interference",
    "forgetting",
    "sharpening",
    "correctness",
    "correctness_parts",
    "partial_credit",
    "reward_noise",
)
"""Numbers of a linear environment that its world has under the same names."""


def build(environment: Environment) -> World:
    """The arrays of an environment, drawn from its `world_seed`. Raises UserError where the base policy's logits are
    too large for float32."""
    return _linear(environment) if isinstance(environment, Linear) else _tabular(environment)


def tabular_world(base_logits: np.ndarray, correct: np.ndarray, nuisance: float = 0.0) -> World:
    """A tabular world from given logits (N, A) and correct arms (N, A) bool; every response is well formed."""
    logits = np.array(base_logits, dtype=np.float64)
    contexts = contexts_of(np.zeros((0, 0)), logits, np.full(len(logits), np.inf), np.asarray(correct, dtype=bool))
    return World(contexts, contexts, logits.shape[1], 0.0, float(nuisance))


def _tabular(environment: Tabular) -> World:
    rng = np.random.Generator(np.random.Philox(environment.world_seed))
    logits = environment.base_scale * rng.standard_normal((environment.n_contexts, environment.n_arms))
    correct = np.broadcast_to(np.arange(environment.n_arms) < environment.n_correct, logits.shape)
    return tabular_world(logits, correct, environment.nuisance)


def _linear(environment: Linear) -> World:
    rng = np.random.Generator(np.random.Philox(environment.world_seed))
    shape = (environment.n_features, environment.answer_tokens * environment.n_answers)
    teacher, distractor = rng.standard_normal(shape), rng.standard_normal(shape)
    train, test = (
        _linear_contexts(environment, teacher, distractor, rng, n, bonus)
        for n, bonus in ((environment.n_train, environment.familiarity), (environment.n_test, 0.0))
    )
    base = World(train, test, environment.n_arms, environment.format_scale, environment.nuisance, _style(environment))
    return base._replace(**{name: getattr(environment, name) for name in _EXTRAS})


def _style(environment: Linear) -> Style:
    lengths = (environment.style_tokens, environment.length_by_style, environment.length_jitter)
    return style_of(*lengths, environment.n_styles, environment.nuisance)


def _unit(directions: np.ndarray) -> np.ndarray:
    return (directions / np.linalg.norm(directions, axis=0)).astype(np.float32)


def project(features: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """features (n, d) times directions (d, Y), float32, each sum in the order of the features: BLAS has another
    order on every processor."""
    found = np.zeros((len(features), directions.shape[1]), dtype=np.float32)
    _project_into(features, directions, found)
    return found


@entry
def _project_into(features, directions, found):
    for i in range(features.shape[0]):
        for k in range(features.shape[1]):
            x = features[i, k]
            for j in range(directions.shape[1]):
                found[i, j] += x * directions[k, j]


def _scored(
    environment: Linear, teacher: np.ndarray, rng: np.random.Generator, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and scores (n, T Y) of contexts; those without the margin are drawn again."""
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


def _linear_contexts(
    environment: Linear, teacher: np.ndarray, distractor: np.ndarray, rng: np.random.Generator, n: int, bonus: float
) -> Contexts:
    """n contexts, with a bonus on correct arms in the base policy's logits."""
    features, score = _scored(environment, _unit(teacher), rng, n)
    solvable = rng.random(n) >= environment.unsolvable
    answer_logits = environment.kappa * (
        environment.align * score + np.sqrt(1 - environment.align**2) * project(features, _unit(distractor))
    )
    logits = np.repeat(answer_logits, environment.n_styles, axis=1)
    logits += 0.5 * rng.standard_normal(logits.shape)
    by_token = score.reshape(n, environment.answer_tokens, environment.n_answers)
    correct = (np.arange(environment.n_answers) == by_token.argmax(axis=2)[:, :, None]).reshape(score.shape)
    correct = np.repeat(correct & solvable[:, None], environment.n_styles, axis=1)
    if bonus != 0:
        logits[correct] += bonus
    base_format = environment.base_format + rng.standard_normal(n)
    return contexts_of(
        padded(features, 0.0),
        padded(logits, NO_ARM),
        base_format.astype(np.float32),
        correct,
        environment.answer_tokens,
    )
