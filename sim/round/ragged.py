"""Scratch arrays of a round of `rftlab.sim.round.general`: rows of the batch, their responses and the tokens of these,
packed.

Quantities of one kind share an array, because kernels compile much faster with few arrays. The tables below name its
rows: `ragged.tokens[TOKEN.weight]`.
"""

from typing import NamedTuple

import numpy as np

from rftlab.sim.state import numbered


class Rows(NamedTuple):
    """Rows of `Ragged.rows`, numbers of a row of the batch."""

    context: int
    first: int
    """Index of the row's first response."""
    gets: int
    """Number of rollouts of the row."""
    set: int
    """Start of the row's baseline set in the pool."""
    other: int
    """Index of the context that the row's context interferes with."""


class Ints(NamedTuple):
    """Rows of `Ragged.ints`, whole numbers of a response."""

    form: int
    group: int
    """Row of the response."""
    start: int
    """Index of the response's first token."""
    selected: int
    """Whether group filtering keeps the response."""


class Numbers(NamedTuple):
    """Rows of `Ragged.numbers`, real numbers of a response."""

    reward: int
    given: int
    """Baseline of the response, where it comes from elsewhere than the group."""
    advantage: int
    weight: int
    """Weight of the response's answer on its score."""
    first_reward: int
    """Reward without the reward of the format. The estimator combines this row and the next one."""
    form_reward: int


class Marks(NamedTuple):
    """Rows of `Ragged.marks`, whole numbers of a token."""

    signs: int
    """Direction of a style token, a bit for each arm."""
    style_token: int
    """The value of a style token, 0 or 1."""
    response: int


class Tokens(NamedTuple):
    """Rows of `Ragged.tokens`, real numbers of a token."""

    style_logit: int
    old_logp: int
    """Log-probability under the trainer's policy at the start of the round, or the sampler's with the correction
    `ratio`."""
    ref_logp: int
    sampler_logp: int
    squares: int
    """Sum of the squared probabilities of the token's distribution, where the baseline reads it."""
    logp: int
    """Log-probability under the current policy."""
    advantage: int
    correction: int
    """Importance weight, for a sampler that differs from the trainer."""
    plain_share: int
    share: int
    """Share of the token times its importance weight."""
    kl_share: int
    weight: int
    """Weight of the token on its score."""


ROW, INT, NUMBER, MARK, TOKEN = (numbered(table) for table in (Rows, Ints, Numbers, Marks, Tokens))


class Ragged(NamedTuple):
    """Scratch arrays of a round."""

    rows: np.ndarray
    """(Rows, rows + 1) of contexts; there is room for two batches, so that a second try can follow the first."""
    ints: np.ndarray
    """(Ints, responses + 1) of responses."""
    numbers: np.ndarray
    """(Numbers, responses) of responses."""
    arms: np.ndarray
    """(responses x T,) arms of each answer."""
    marks: np.ndarray
    """(Marks, tokens) of tokens."""
    tokens: np.ndarray
    """(Tokens, tokens) of tokens."""
    difficulty: np.ndarray
    pool: np.ndarray
    uniform: np.ndarray
    lengths: np.ndarray
    keys: np.ndarray
    words: np.ndarray
    style_score: np.ndarray
    noise: np.ndarray
    common_noise: np.ndarray
    cdf: np.ndarray
    scores: np.ndarray
