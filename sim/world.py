"""The arrays of an environment that kernels take, with a training and a test set of contexts."""

from typing import NamedTuple

import numpy as np

from rftlab.sim.config import DAMAGE_PARTS
from rftlab.sim.lanes.simd import LANES, aligned_zeros


class Contexts(NamedTuple):
    """One set of N contexts: float32 with LANES columns in the linear environment, float64 with A columns in the
    tabular one."""

    features: np.ndarray
    """(N, d), d a multiple of LANES; (0, 0) in the tabular environment."""
    base_logits: np.ndarray
    """(N, columns) logits of the base policy; arms that do not exist are at -1e30."""
    base_lse: np.ndarray
    """(N,) log of the sum of exp(base_logits), summed over the tokens of an answer."""
    base_format: np.ndarray
    """(N,) logit of the base policy's format; +inf where every response is well formed."""
    base_format_logp: np.ndarray
    """(N, 2) log-probability of a malformed and of a well-formed response under the base policy."""
    correct: np.ndarray
    """(N,) uint32, bit a set where arm a is correct."""


class Style(NamedTuple):
    """Model of the style tokens of a response (sim/policy/style.py): mean number, its dependence on the arm's style,
    its spread, number of styles, slope of a token, its logit under the base policy."""

    tokens: float
    by_style: float
    jitter: float
    n_styles: int
    slope: float
    base: float = 0.0


NO_STYLE = Style(0.0, 0.0, 0.0, 1, 0.0)


class World(NamedTuple):
    """Everything that stays fixed while a policy is trained."""

    train: Contexts
    test: Contexts
    n_arms: int
    format_scale: float
    nuisance: float
    style: Style = NO_STYLE
    answer_tokens: int = 1
    """Tokens of an answer; the arms of token s are s A/T .. (s+1) A/T - 1 (sim/policy/spelling.py)."""
    surprise: float = 0.0
    """Share of the nuisance's variance that depends on |e - pi|^2 (sim/round/scores.py)."""
    interference: float = 0.0
    """Weight of another context's features in the gradient of a context (sim/round/scores.py)."""
    forgetting: float = 0.0
    """Rate at which the base policy fades (sim/policy/common.py)."""
    partial_credit: float = 0.0
    """Part of a reward that is in proportion to the right tokens of an answer (sim/round/responses.py)."""
    reward_noise: float = 0.0
    """Standard deviation of the noise on a reward (sim/round/responses.py)."""
    format_reward: float = 0.0
    """Second reward, of a well-formed response."""
    false_positive: float = 0.0
    """Probability that a rollout's reward of 0 is given as 1."""
    false_negative: float = 0.0
    """Probability that a rollout's reward of 1 is given as 0."""
    sharpening: float = 0.0
    """Coefficient of the parameter that sharpens the base policy (sim/policy/common.py)."""
    correctness: float = 0.0
    """Coefficient of the parameters that raise correct arms."""
    correctness_parts: int = 1
    """Number of parameters that raise correct arms."""
    damage: float = 0.0
    """Coefficient of the mean square of parameters that only noise moves, in the fall of the format's logit."""
    verbosity: float = 0.0
    """Coefficient of the parameter that raises long arms."""
    verbosity_noise: float = 1.0
    """Noise in the gradient of that parameter, relative to that of the others."""
    exploration: float = 0.0
    """Coefficient of the parameter that raises the logits of style tokens."""

    @property
    def n_common(self) -> int:
        """Number of parameters that all contexts share, besides the matrix and the format's."""
        learnt = (self.sharpening > 0) + self.correctness_parts * (self.correctness > 0)
        return learnt + DAMAGE_PARTS * (self.damage > 0) + (self.verbosity > 0) + (self.exploration > 0)

    @property
    def long_arms(self) -> int:
        """Bits of the arms in all styles but the first."""
        return sum(1 << arm for arm in range(self.n_arms) if arm % self.style.n_styles)

    @property
    def n_parameters(self) -> int:
        """Length of theta: the matrix, the parameters that all contexts share, then the format parameter."""
        features = self.train.features.shape[1]
        rows = features if features else self.train.base_logits.shape[0]
        return rows * self.train.base_logits.shape[1] + self.n_common + 1


NO_ARM = -1e30


def make_contexts(
    features: np.ndarray, base_logits: np.ndarray, base_format: np.ndarray, correct: np.ndarray, answer_tokens: int = 1
) -> Contexts:
    """Return contexts with their log-normaliser; base_logits (N, A or more, padded with NO_ARM), base_format (N,),
    correct (N, A) bool."""
    arms = base_logits.shape[1] if answer_tokens == 1 else correct.shape[1]
    parts = np.split(base_logits[:, :arms], answer_tokens, axis=1)
    lse = np.asarray(sum(_log_normaliser(part) for part in parts))
    bits = (correct.astype(np.uint32) << np.arange(correct.shape[1], dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
    format_logp = -np.logaddexp(0.0, np.stack([base_format, -base_format], axis=1, dtype=np.float64))
    return Contexts(features, base_logits, lse.astype(base_logits.dtype), base_format, format_logp, bits)


def _log_normaliser(logits: np.ndarray) -> np.ndarray:
    top = logits.max(axis=1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=1))


def padded(values: np.ndarray, fill: float) -> np.ndarray:
    """Return values in float32 with columns padded to a multiple of LANES."""
    n, columns = values.shape
    padded = aligned_zeros((n, columns + -columns % LANES), np.float32)
    padded[:, :columns], padded[:, columns:] = values, fill
    return padded
