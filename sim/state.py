"""The constants, state and work arrays of a run, as the tuples of numbers and arrays that kernels take."""

from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.memory import Windows
from rftlab.sim.lanes.random import Key
from rftlab.sim.world import Style


class OptimizerRule(NamedTuple):
    """An `Optimizer` as plain numbers, for kernels."""

    kind: int
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    bf16: float
    """Factor from a step to that part of the range of bf16 weights which it moves; 0: fp32 weights."""


class RunNumbers(NamedTuple):
    """The numbers of a run that kernels need besides the estimator's rule."""

    key: Key
    optimizer: OptimizerRule
    n_arms: int
    """Arms of all tokens of an answer together."""
    token_starts: tuple[int] | np.ndarray
    """First arm of each token of an answer. One token is a tuple in the plain round: compiled code knows its length,
    and it costs nothing extra. Else they are an array, so that all numbers of tokens share their code."""
    format_scale: float
    nuisance: float
    surprise: float
    """Share of the nuisance's variance that is in proportion to |e - pi|^2 of a response."""
    interference: float
    """Weight of x_j s_i^T, j another context, beside x_i s_i^T in the gradient."""
    forgetting: float
    """How fast the base policy's logits fade with |W|^2."""
    sharpening: float
    """Factor of a learnt number in that of the base policy's logits."""
    correctness: float
    """Factor of each learnt number in the bonus of correct arms."""
    damage: float
    """How much the square of a number that only noise moves lowers the format's logit."""
    n_damaged: int
    """How many such numbers there are; they lie behind those of correctness."""
    verbosity: float
    """Factor of a learnt number in the bonus of long arms."""
    verbosity_noise: float
    """Factor of the noise of its gradient."""
    exploration: float
    """Factor of a learnt number in the logits of style tokens."""
    n_common: int
    """How many of these numbers there are."""
    long_arms: np.uint32
    """Bits of the arms in all styles but the first."""
    n_styles: int
    length_by_style: float
    """How much longer a response of the last style is than the mean, where lengths are virtual; else 0."""
    rollouts: int
    support: int
    epochs: int
    minibatches: int
    replays: bool
    chunk: int
    """Contexts worked on at a time; a whole batch where an update must see it at once (several updates, or the
    batch's mean as baseline, unequal shares)."""


class LearnerState(NamedTuple):
    """Everything that a run changes and a checkpoint would hold."""

    theta: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    grad: np.ndarray
    windows: Windows
    step: np.ndarray
    """(1,) updates so far."""


class Work(NamedTuple):
    """Scratch of a run. Rows stand for contexts of a batch, padded to whole blocks; rollouts lie trained first, then
    support."""

    rows: np.ndarray
    logits: np.ndarray
    probs: np.ndarray
    lse: np.ndarray
    norm: np.ndarray
    """(rows,) sum of exp(logits - largest), of which lse holds the logarithm."""
    format_logp: np.ndarray
    """(2, rows) log-probability of each format."""
    formed: np.ndarray
    """(rows,) probability of a well-formed response."""
    scores: np.ndarray
    noise: np.ndarray
    """(rows, LANES) float32: the nuisance of each context."""
    common_noise: np.ndarray
    """(rows, LANES) float32: that of the parameters that contexts have in common; (0, LANES) where there are none."""
    cdf: np.ndarray
    uniform: np.ndarray
    """(2, draws) float32, context by context."""
    arm: np.ndarray
    form: np.ndarray
    reward: np.ndarray
    logp: np.ndarray
    old_logp: np.ndarray
    ref_logp: np.ndarray
    group: np.ndarray
    starts: np.ndarray
    pool: np.ndarray
    pool_starts: np.ndarray
    advantage: np.ndarray
    share: np.ndarray
    """Shares of an optimiser batch: one token per response, so they are the same in every update."""
    kl_share: np.ndarray
    weight: np.ndarray


def numbered(table: Any) -> Any:
    """A table of names with 0, 1, 2, ... for its values, which compiled code takes for constants; its length is that
    of the array."""
    return table(*range(len(table._fields)))


class Totals(NamedTuple):
    """Sums over rounds; the last four are the counts that turn the others into means."""

    reward: int
    kl: int
    clipped: int
    zero_signal: int
    """Contexts of which no response teaches."""
    grad_norm: int
    tokens: int
    """Of updates, an answer being one."""
    updates: int
    contexts: int
    rollouts: int


TOTAL = numbered(Totals)


def no_totals() -> np.ndarray:
    """Sums over no rounds."""
    return np.zeros(len(TOTAL))


class View(NamedTuple):
    """The outputs of one policy on the contexts of a batch; fields as in `rftlab.sim.state.Work`, and one more."""

    rows: np.ndarray
    logits: np.ndarray
    probs: np.ndarray
    lse: np.ndarray
    norm: np.ndarray
    format_logp: np.ndarray
    formed: np.ndarray
    base_scale: np.ndarray
    """(1,) factor of the base policy's logits (`rftlab.sim.policy.common`)."""
    common: np.ndarray
    """(4,) float64: `slope`, `lift`, `lengthen` and `explore` of `rftlab.sim.policy.common.BasePolicy`."""


class GeneralNumbers(NamedTuple):
    """Numbers of a run with choices beyond those of `rftlab.sim.state.RunNumbers`."""

    style: Style
    tries: int
    keep: int
    by_difficulty: bool
    draws: int
    """Rollouts of a context at most, support included."""
    lag: int
    every: int
    """Rounds between two synchronizations of the sampler."""
    noise: float
    averages: bool
    decay: float
    critic_learning_rate: float
    partial_credit: float
    reward_noise: float
    format_reward: float
    several: bool
    """Whether the rewards of a response are kept apart too."""
    false_positive: float
    false_negative: float


class GeneralState(NamedTuple):
    """The state of a run with options of the general round, besides `rftlab.sim.state.LearnerState`."""

    history: np.ndarray
    """(lag + every, parameters): the latest parameters, those of round r in row r % (lag + every)."""
    averages: np.ndarray
    critic: np.ndarray
    spent: np.ndarray
    """(3,) rollouts sampled, tokens sampled, batches tried."""
    bonus: np.ndarray
    """(2,) of an entropy bonus: its coefficient, and 1 where it is in force."""
    replays: Any
    """`rftlab.sim.round.replays.ReplayBuffer`"""
