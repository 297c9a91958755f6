"""Scratch of a round of `rftlab.sim.round.general`: rows of the batch, their responses, and the responses' tokens,
packed.

Quantities of one kind share an array, because kernels compile much faster so. The tables below name its rows:
`ragged.tokens[TOKEN.weight]`.
"""

from typing import NamedTuple

import numpy as np

from rftlab.sim.state import numbered


class Rows(NamedTuple):
    """Of a row of the batch."""

    context: int
    first: int
    """Its first response."""
    gets: int
    """Rollouts it gets."""
    set: int
    """Start of its baseline set."""
    other: int
    """The context that it interferes with."""


class Ints(NamedTuple):
    """Of a response."""

    form: int
    group: int
    """Its row."""
    start: int
    """Its first token."""
    selected: int
    """Whether group filtering keeps it."""


class Numbers(NamedTuple):
    """Of a response."""

    reward: int
    given: int
    """Its baseline, where that comes from elsewhere."""
    advantage: int
    weight: int
    """That of its answer."""
    first_reward: int
    """Its reward without that of the format; these two rows are what an estimator combines."""
    form_reward: int


class Marks(NamedTuple):
    """Of a token."""

    signs: int
    """Direction of a style token, a bit for each arm."""
    style_token: int
    """The value of a style token, 0 or 1."""
    response: int


class Tokens(NamedTuple):
    """Of a token."""

    style_logit: int
    old_logp: int
    """Under the trainer's policy at the start of the round, or with the correction `ratio` the sampler's."""
    ref_logp: int
    sampler_logp: int
    squares: int
    """Sum of the squared probabilities of its distribution, where the baseline reads it."""
    logp: int
    """Under the current policy."""
    advantage: int
    correction: int
    """Importance weight of the sampler's mismatch."""
    plain_share: int
    share: int
    """With the importance weight."""
    kl_share: int
    weight: int
    """On its score."""


ROW, INT, NUMBER, MARK, TOKEN = (numbered(table) for table in (Rows, Ints, Numbers, Marks, Tokens))


class Ragged(NamedTuple):
    """Scratch of a round."""

    rows: np.ndarray
    """(Rows, rows + 1) of contexts; room for two batches, so that a second try can lie behind the first."""
    ints: np.ndarray
    """(Ints, responses + 1)"""
    numbers: np.ndarray
    """(Numbers, responses)"""
    arms: np.ndarray
    """(responses x T,) those of each answer."""
    marks: np.ndarray
    """(Marks, tokens)"""
    tokens: np.ndarray
    """(Tokens, tokens)"""
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
