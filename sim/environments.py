"""The two environments: linear (parameters shared by all contexts, so it generalises) and tabular (nothing shared, exact)."""

from dataclasses import dataclass

import numpy as np

from shared.errors import check, check_finite
from sim.simd import LANES
from sim.style import MOST_TOKENS, style_of
from sim.world import NO_ARM, Contexts, Style, World, contexts_of, padded


@dataclass(frozen=True)
class Linear:
    """Contexts with Gaussian features, a correct answer that is partly linear in them, and a base policy that knows part of it.

    score    = sqrt(rho) t + sqrt(1-rho) xi per answer; t linear in the features, xi idiosyncratic; the correct answer is its argmax
    base     = kappa (align score + sqrt(1-align^2) g) + noise per arm; g linear in the features and unrelated to the score
    policy   = softmax(base + features W) over arms (answer, style), W shared by all contexts; format = sigmoid(base_format + c theta)
    """

    n_train: int = 7473
    """Training contexts."""
    n_test: int = 1319
    """Test contexts."""
    n_features: int = 448
    """Features of a context."""
    n_answers: int = 8
    """Answers; one is correct. With several tokens: choices of each token."""
    n_styles: int = 2
    """Ways to say each answer; answers x styles x tokens is at most 16."""
    answer_tokens: int = 1
    """Tokens of an answer, all of which must be right: two tokens of 8 choices make 64 answers."""
    rho: float = 0.9
    """Share of the score's variance that is linear in the features (what can generalise)."""
    margin: float = 0.0
    """Least distance of the correct answer's score from the next one, for every token; scores have variance 1. Contexts with less are not drawn."""
    kappa: float = 5.0
    """Sharpness of the base policy."""
    align: float = 0.85
    """Correlation of the base policy's logits with the score."""
    unsolvable: float = 0.0
    """Fraction of contexts without any correct answer."""
    base_format: float = -4.0
    """Mean logit of the base policy's format; its standard deviation over contexts is 1."""
    format_scale: float = 30.0
    """c: how much the format's logit moves per unit of its parameter."""
    nuisance: float = 1.0
    """Standard deviation of each component of a rollout's score in style dimensions that no reward depends on."""
    surprise: float = 0.0
    """Share of the nuisance's variance that is in proportion to |e_a - pi|^2, small where the policy is sure of its response."""
    interference: float = 0.0
    """How much of what is learnt on a context leaks to an unrelated one, as a multiple of what it does to its own."""
    forgetting: float = 0.0
    """How fast the base policy fades: its logits shrink by exp(-forgetting D), D the mean square of what training changed of a logit."""
    style_tokens: float = 0.0
    """Mean number of style tokens after the answer token; 0 has Gaussian nuisance in their place (sim/style.py)."""
    length_by_style: float = 0.0
    """How much longer the last style's responses are, and shorter the first's, relative to the mean."""
    length_jitter: float = 0.0
    """Spread of the number of style tokens: uniform within this fraction of its mean."""
    world_seed: int = 0
    """Seed of the contexts, the teacher and the base policy (the data set and the model; not of a training run)."""

    def __post_init__(self):
        for name in ("n_train", "n_test", "n_features", "n_answers", "n_styles", "answer_tokens"):
            check(getattr(self, name) >= 1, f"environment.{name} = {getattr(self, name)}; allowed: 1 or more")
        check(self.n_arms <= LANES, f"environment.n_answers x environment.n_styles x environment.answer_tokens = {self.n_arms}; allowed: at most {LANES}")
        for name in ("rho", "align", "unsolvable", "length_by_style", "length_jitter", "surprise"):
            check(0 <= getattr(self, name) <= 1, f"environment.{name} = {getattr(self, name)}; allowed: 0 to 1")
        check(0 <= self.margin <= 0.5, f"environment.margin = {self.margin}; allowed: 0 to 0.5")
        check(self.margin == 0 or self.n_answers > 1, f"environment.margin = {self.margin} with n_answers = 1; allowed: 0, or 2 answers and more")
        for name in ("kappa", "nuisance", "interference", "forgetting", "format_scale"):
            check_finite(f"environment.{name}", getattr(self, name), 0)
        check_finite("environment.base_format", self.base_format)
        check(0 <= self.style_tokens <= MOST_TOKENS, f"environment.style_tokens = {self.style_tokens}; allowed: 0 to {MOST_TOKENS}")
        check(self.world_seed >= 0, f"environment.world_seed = {self.world_seed}; allowed: 0 or more")

    @property
    def n_arms(self) -> int:
        """Arms of all tokens together."""
        return self.n_answers * self.n_styles * self.answer_tokens


@dataclass(frozen=True)
class Tabular:
    """Contexts that share nothing: one logit per context and arm, in float64. Small enough to enumerate; serves theory checks."""

    n_contexts: int = 16
    """Contexts; the test set is the training set."""
    n_arms: int = 4
    """Arms, at most 16."""
    n_correct: int = 1
    """Correct arms of each context: the first ones."""
    base_scale: float = 1.0
    """Standard deviation of the base policy's logits."""
    nuisance: float = 0.0
    """As in the linear environment."""
    world_seed: int = 0
    """Seed of the base policy."""

    def __post_init__(self):
        check(self.n_contexts >= 1, f"environment.n_contexts = {self.n_contexts}; allowed: 1 or more")
        check(2 <= self.n_arms <= LANES, f"environment.n_arms = {self.n_arms}; allowed: 2 to {LANES}")
        check(0 <= self.n_correct <= self.n_arms, f"environment.n_correct = {self.n_correct}; allowed: 0 to n_arms = {self.n_arms}")
        for name in ("nuisance", "base_scale"):
            check_finite(f"environment.{name}", getattr(self, name), 0)


Environment = Linear | Tabular


def build(environment: Environment) -> World:
    """The arrays of an environment, drawn from its `world_seed`. Raises UserError where the base policy's logits are too large for float32."""
    return _linear(environment) if isinstance(environment, Linear) else _tabular(environment)


def n_train(environment: Environment) -> int:
    """Number of training contexts."""
    return environment.n_train if isinstance(environment, Linear) else environment.n_contexts


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
    train, test = (_linear_contexts(environment, teacher, distractor, rng, n) for n in (environment.n_train, environment.n_test))
    base = World(train, test, environment.n_arms, environment.format_scale, environment.nuisance, _style(environment))
    extras = {name: getattr(environment, name) for name in ("answer_tokens", "surprise", "interference", "forgetting")}
    return base._replace(**extras)


def _style(environment: Linear) -> Style:
    lengths = (environment.style_tokens, environment.length_by_style, environment.length_jitter)
    return style_of(*lengths, environment.n_styles, environment.nuisance)


def _unit(directions: np.ndarray) -> np.ndarray:
    return (directions / np.linalg.norm(directions, axis=0)).astype(np.float32)


def _scored(environment: Linear, teacher: np.ndarray, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and scores (n, T Y) of contexts; those without the margin are drawn again."""
    features, scores = np.empty((n, environment.n_features), dtype=np.float32), np.empty((n, teacher.shape[1]))
    missing = np.arange(n)
    while missing.size:
        drawn = rng.standard_normal((missing.size, environment.n_features), dtype=np.float32)
        known = drawn @ teacher
        features[missing] = drawn
        scores[missing] = np.sqrt(environment.rho) * known + np.sqrt(1 - environment.rho) * rng.standard_normal(known.shape)
        best = np.sort(scores[missing].reshape(missing.size, environment.answer_tokens, -1), axis=2)[:, :, -2:]
        missing = missing[(best[:, :, -1] - best[:, :, 0] < environment.margin).any(axis=1)]
    return features, scores


def _linear_contexts(environment: Linear, teacher: np.ndarray, distractor: np.ndarray, rng: np.random.Generator, n: int) -> Contexts:
    features, score = _scored(environment, _unit(teacher), rng, n)
    solvable = rng.random(n) >= environment.unsolvable
    answer_logits = environment.kappa * (environment.align * score + np.sqrt(1 - environment.align**2) * (features @ _unit(distractor)))
    logits = np.repeat(answer_logits, environment.n_styles, axis=1)
    logits += 0.5 * rng.standard_normal(logits.shape)
    by_token = score.reshape(n, environment.answer_tokens, environment.n_answers)
    correct = (np.arange(environment.n_answers) == by_token.argmax(axis=2)[:, :, None]).reshape(score.shape)
    correct = np.repeat(correct & solvable[:, None], environment.n_styles, axis=1)
    base_format = environment.base_format + rng.standard_normal(n)
    for name, found in (("kappa", logits), ("base_format", base_format)):
        largest = np.abs(found).max()
        check(bool(largest < -NO_ARM), f"environment.{name} = {getattr(environment, name)}: logits of the base policy reach {largest:.3g}; allowed: below 1e30")
    return contexts_of(padded(features, 0.0), padded(logits, NO_ARM), base_format.astype(np.float32), correct, environment.answer_tokens)
