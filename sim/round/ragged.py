"""Scratch of a round of `rftlab.sim.round.general`: rows of the batch, their responses, and the responses' tokens,
packed."""

from typing import NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """Scratch of a round. Quantities of one kind share an array, whose rows the constants below name: kernels
    compile much faster so."""

    rows: np.ndarray
    """(4, rows + 1) of contexts; room for two batches, so that a second try can lie behind the first."""
    ints: np.ndarray
    """(5, responses + 1)"""
    numbers: np.ndarray
    """(4, responses)"""
    marks: np.ndarray
    """(3, tokens)"""
    tokens: np.ndarray
    """(11, tokens)"""
    difficulty: np.ndarray
    pool: np.ndarray
    uniform: np.ndarray
    lengths: np.ndarray
    keys: np.ndarray
    words: np.ndarray
    style_score: np.ndarray
    noise: np.ndarray
    cdf: np.ndarray
    scores: np.ndarray


CONTEXT, FIRST, GETS, SET = range(4)
"""Of a row: its context, its first response, the rollouts it gets, the start of its baseline set."""
ARM, FORM, GROUP, START, SELECTED = range(5)
"""Of a response: its arm, its format, its row, its first token, whether group filtering keeps it."""
SCORE, GIVEN, ADVANTAGE, PUSH = range(4)
"""Of a response: its reward, its baseline from elsewhere, its advantage, the weight of its answer."""
SIGNS, STYLE_TOKEN, RESPONSE = range(3)
"""Of a token: its direction and what it says (style tokens), its response."""
STYLE_LOGIT, OLD, REF, SAMPLED, NOW, CREDIT, CORRECTION, PLAIN, SHARE, KL_SHARE, WEIGHT = range(11)
"""Of a token: h of a style token; log-probability under the old, the base, the sampling and the current policy; its
advantage; its importance weight; its share, without and with that weight; its share of the KL penalty; its weight on
its score."""
