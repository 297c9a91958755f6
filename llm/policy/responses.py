"""Responses of a batch, packed: tokens lie in one array, `starts` says where each response begins."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Responses(NamedTuple):
    """R responses to G prompts, T tokens in all."""

    prompts: tuple[tuple[int, ...], ...]
    """(G,) ids of each prompt."""
    group: np.ndarray
    """(R,) index of each response's prompt."""
    tokens: np.ndarray
    """(T,) ids, the end-of-sequence id included where there is one."""
    starts: np.ndarray
    """(R+1,)"""

    @property
    def lengths(self) -> np.ndarray:
        """(R,) tokens of each response."""
        return np.diff(self.starts)

    @property
    def totals(self) -> np.ndarray:
        """(R,) tokens of each response and its prompt."""
        return self.lengths + np.array([len(self.prompts[g]) for g in self.group], dtype=np.int64)

    def response(self, row: int) -> np.ndarray:
        """Ids of a response."""
        return self.tokens[self.starts[row] : self.starts[row + 1]]

    def take(self, rows: np.ndarray) -> "Responses":
        """The responses of some rows, with all prompts."""
        starts = np.concatenate([[0], np.cumsum(self.lengths[rows])]).astype(np.int64)
        return Responses(self.prompts, self.group[rows], self.tokens[token_indices(self.starts, rows)], starts)


def token_indices(starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Places (n,) of the tokens of some rows, row by row."""
    lengths = starts[1:][rows] - starts[:-1][rows]
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[:-1][rows] - ends + lengths, lengths)


def packed(responses: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (T,) and starts (R+1,) of lists of ids."""
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in responses])]).astype(np.int64)
    return np.array([token for ids in responses for token in ids], dtype=np.int64), starts


def response_numbers(responses: Responses, rows: np.ndarray) -> np.ndarray:
    """A number (n,) for each of some rows; equal responses to one prompt have the same, the place of the first of
    them among the rows."""
    first: dict[tuple[int, bytes], int] = {}
    return np.array(
        [
            first.setdefault((responses.group[row], responses.response(row).tobytes()), at)
            for at, row in enumerate(rows)
        ],
        dtype=np.int64,
    )
