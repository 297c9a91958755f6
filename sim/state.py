"""Tuples of numbers and arrays that kernels take: the constants, the state and the scratch of a run."""

from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.memory import Windows
from rftlab.sim.lanes.random import Key
from rftlab.sim.world import Style


class OptimizerRule(NamedTuple):
    """The numbers of an `Optimizer` that kernels take."""

    kind: int
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    bf16: float
    """Factor from a step to y, which gives the share of bf16 weights that the step moves
    (`rftlab.sim.round.optimizer`); 0 for fp32 weights."""


class RunNumbers(NamedTuple):
    """Numbers of a run that kernels need besides the estimator's rule."""

    key: Key
    optimizer: OptimizerRule
    n_arms: int
    """Number of arms of all tokens of an answer together."""
    token_starts: tuple[int] | np.ndarray
    """First arm of each token of an answer. For one token in the plain round it is a tuple, whose length is known at
    compile time and costs nothing. Otherwise it is an array, so that all numbers of tokens share their code."""
    format_scale: float
    nuisance: float
    surprise: float
    """Share of the nuisance's variance that is in proportion to |e - pi|^2 of a response."""
    interference: float
    """Weight in the gradient of x_j s_i^T, j another context, relative to x_i s_i^T."""
    forgetting: float
    """Rate at which the base policy's logits fade with |W|^2."""
    sharpening: float
    """Coefficient of the sharpening parameter in the factor of the base policy's logits."""
    correctness: float
    """Coefficient of each correctness parameter in the bonus of correct arms."""
    damage: float
    """Coefficient of the squares of the damage parameters, which only noise moves, in the fall of the format's
    logit."""
    n_damaged: int
    """Number of damage parameters; they follow those of correctness."""
    verbosity: float
    """Coefficient of the verbosity parameter in the bonus of long arms."""
    verbosity_noise: float
    """Factor of the noise in the verbosity parameter's gradient."""
    exploration: float
    """Coefficient of the exploration parameter in the logits of style tokens."""
    n_common: int
    """Number of parameters that all contexts share."""
    long_arms: np.uint32
    """Bits of the arms in all styles but the first."""
    n_styles: int
    length_by_style: float
    """Difference in length of a response of the last style from the mean, where lengths are virtual; else 0."""
    rollouts: int
    support: int
    epochs: int
    minibatches: int
    replays: bool
    chunk: int
    """Number of contexts worked on at a time. It is a whole batch where an update needs all of it at once (several
    updates, a baseline from the batch, unequal shares)."""


class LearnerState(NamedTuple):
    """Everything that a run changes and a checkpoint would store."""

    theta: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    grad: np.ndarray
    windows: Windows
    step: np.ndarray
    """(1,) updates so far."""


class Work(NamedTuple):
    """Scratch arrays of a run. Rows are contexts of a batch, padded to whole blocks; support rollouts follow the
    trained ones."""

    rows: np.ndarray
    logits: np.ndarray
    probs: np.ndarray
    lse: np.ndarray
    norm: np.ndarray
    """(rows,) sum of exp(logits - largest); lse is computed from its logarithm."""
    format_logp: np.ndarray
    """(2, rows) log-probability of each format."""
    formed: np.ndarray
    """(rows,) probability of a well-formed response."""
    scores: np.ndarray
    noise: np.ndarray
    """(rows, LANES) float32, the nuisance of each context."""
    common_noise: np.ndarray
    """(rows, LANES) float32, the nuisance of the parameters that contexts share; (0, LANES) where there are none."""
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
    """Shares of an optimiser batch. They are the same in every update, because a response is one token."""
    kl_share: np.ndarray
    weight: np.ndarray


def numbered(table: Any) -> Any:
    """Return a table of names with the values 0, 1, 2, ..., which compiled code treats as constants. Its length is that
    of the array."""
    return table(*range(len(table._fields)))


class Totals(NamedTuple):
    """Indices of sums over rounds. The last four are counts, by which the others are divided to give means."""

    reward: int
    kl: int
    clipped: int
    zero_signal: int
    """Number of contexts whose advantages are all 0."""
    grad_norm: int
    tokens: int
    """Number of tokens of all updates; an answer counts as one."""
    updates: int
    contexts: int
    rollouts: int


TOTAL = numbered(Totals)


def no_totals() -> np.ndarray:
    """Return sums over no rounds."""
    return np.zeros(len(TOTAL))


class View(NamedTuple):
    """Outputs of one policy on the contexts of a batch; fields as in `rftlab.sim.state.Work`, and two more."""

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
    """Numbers of a run's options beyond those of `rftlab.sim.state.RunNumbers`."""

    style: Style
    tries: int
    keep: int
    by_difficulty: bool
    draws: int
    """Largest number of rollouts of a context, support included."""
    lag: int
    every: int
    """Number of rounds between two synchronizations of the sampler."""
    noise: float
    averages: bool
    decay: float
    critic_learning_rate: float
    partial_credit: float
    reward_noise: float
    format_reward: float
    several: bool
    """Whether the two rewards of a response are also stored separately."""
    false_positive: float
    false_negative: float


class GeneralState(NamedTuple):
    """The state of a run with options of the general round, besides `rftlab.sim.state.LearnerState`."""

    history: np.ndarray
    """(lag + every, parameters) latest parameters; those of round r are in row r % (lag + every)."""
    averages: np.ndarray
    critic: np.ndarray
    spent: np.ndarray
    """(3,) numbers of rollouts sampled, tokens sampled, and batches tried."""
    bonus: np.ndarray
    """(2,) coefficient of the entropy bonus, and 1 where it is in force."""
    replays: Any
    """Buffer of replayed responses, a `rftlab.sim.round.replays.ReplayBuffer`."""
