"""Pack the responses of a batch into one array, and into sequences for the model: responses to one prompt side by side,
so that the prompt is computed once for all of them.

A *sequence* is a prompt with one or more different responses to it. Each response attends to the prompt and itself, at
the same positions as in a sequence of its own, so its log-probabilities and their gradients are the same up to
rounding."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Responses(NamedTuple):
    """R responses to G prompts, T tokens in all."""

    prompts: tuple[tuple[int, ...], ...]
    """(G,) token ids of each prompt."""
    group: np.ndarray
    """(R,) index of each response's prompt."""
    tokens: np.ndarray
    """(T,) token ids, including the end-of-sequence id where there is one."""
    starts: np.ndarray
    """(R+1,) offsets of the responses in tokens."""

    @property
    def lengths(self) -> np.ndarray:
        """(R,) number of tokens of each response."""
        return np.diff(self.starts)

    @property
    def totals(self) -> np.ndarray:
        """(R,) number of tokens of each response with its prompt."""
        return self.lengths + np.array([len(self.prompts[g]) for g in self.group], dtype=np.int64)

    def response(self, row: int) -> np.ndarray:
        """Return the token ids of a response."""
        return self.tokens[self.starts[row] : self.starts[row + 1]]

    def take(self, rows: np.ndarray) -> "Responses":
        """Return the responses of some rows, with all prompts."""
        starts = np.concatenate([[0], np.cumsum(self.lengths[rows])]).astype(np.int64)
        return Responses(self.prompts, self.group[rows], self.tokens[token_indices(self.starts, rows)], starts)


def token_indices(starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the places (n,) of the tokens of some rows, row by row."""
    lengths = starts[1:][rows] - starts[:-1][rows]
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[:-1][rows] - ends + lengths, lengths)


def packed(responses: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens (T,) and starts (R+1,) of lists of token ids."""
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in responses])]).astype(np.int64)
    return np.array([token for ids in responses for token in ids], dtype=np.int64), starts


def response_numbers(responses: Responses, rows: np.ndarray) -> np.ndarray:
    """Return a number (n,) for each of some rows. Equal responses to one prompt have the same number, the place among
    the rows of the first of them."""
    first: dict[tuple[int, bytes], int] = {}
    return np.array(
        [
            first.setdefault((responses.group[row], responses.response(row).tobytes()), at)
            for at, row in enumerate(rows)
        ],
        dtype=np.int64,
    )


PAIRS = 4
"""Pairs of tokens in attention that cost as much as one token elsewhere, for each number of a hidden state; measured as
8 at width 64, and 4 at 576."""


class Sharing(NamedTuple):
    """Rule that decides when responses share a sequence."""

    room: int
    """Largest number of tokens of a sequence with several responses; 0: none are shared."""
    pairs: int
    """Pairs of tokens in attention that cost as much as one token elsewhere."""


ALONE = Sharing(0, 1)
"""Rule by which each response has its own sequence."""


class PackedInput(NamedTuple):
    """S sequences of up to L tokens, and the places where the model predicts the n tokens of the different
    responses."""

    ids: np.ndarray
    """(S, L) token ids."""
    positions: np.ndarray
    """(S, L) position of a token in its prompt and response, without the other responses."""
    segment: np.ndarray
    """(S, L) 0 in the prompt, j in the j'th response, -1 in the padding on the right."""
    places: np.ndarray
    """(n,) flat places of the states that predict the tokens. The first tokens of all responses share that of the
    prompt's end."""
    targets: np.ndarray
    """(n,) token ids that are predicted."""
    spread: np.ndarray
    """For each token of all rows, row by row, its index among the n tokens; equal responses are read once."""

    @property
    def shared(self) -> bool:
        """Whether a sequence has several responses. Otherwise padding is only where a causal model never attends, and
        plain attention is right."""
        return bool((self.segment > 1).any())


def read(responses: Responses, rows: np.ndarray, sharing: Sharing = ALONE) -> PackedInput:
    """Return the sequences that the model reads for some rows."""
    firsts, which = np.unique(response_numbers(responses, rows), return_inverse=True)
    heads = rows[firsts]
    lengths, parts = responses.lengths[heads], sequences(responses, heads, sharing)
    shape = len(parts), max(_length(responses, heads[part]) for part in parts)
    ids, positions, segment = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), np.full(shape, -1)
    places: dict[int, np.ndarray] = {}
    for s, part in enumerate(parts):
        prompt = responses.prompts[responses.group[heads[part[0]]]]
        at = len(prompt)
        ids[s, :at], positions[s, :at], segment[s, :at] = prompt, np.arange(at), 0
        for j, head in enumerate(part, 1):
            end = at + lengths[head]
            ids[s, at:end], segment[s, at:end] = responses.response(heads[head]), j
            positions[s, at:end] = np.arange(end - at) + len(prompt)
            places[head] = s * shape[1] + np.concatenate([[len(prompt) - 1], np.arange(at, end - 1)])
            at = end
    starts = np.concatenate([[0], np.cumsum(lengths)])
    targets = responses.tokens[token_indices(responses.starts, heads)]
    predicting = np.concatenate([places[i] for i in range(len(heads))])
    return PackedInput(ids, positions, segment, predicting, targets, token_indices(starts, which))


def sequences(responses: Responses, rows: np.ndarray, sharing: Sharing) -> list[np.ndarray]:
    """Cut different responses into sequences. Each is returned as places among the rows, the one with the earliest
    first.

    The responses to a prompt are taken from the shortest on. Each joins the one before it where this saves time and
    there is room. If one does not join, no later one would, so the rows of some of the sequences alone are cut in the
    same way.
    """
    group, lengths, total = responses.group[rows], responses.lengths[rows], 0
    parts: list[list[int]] = []
    for at in np.lexsort((lengths, group)):  # by group, and within it from the shortest on
        prompt, length = len(responses.prompts[group[at]]), int(lengths[at])
        if (
            parts
            and group[parts[-1][0]] == group[at]
            and total + length <= sharing.room
            and pays(prompt, total, length, sharing.pairs)
        ):
            parts[-1].append(at)
            total += length
        else:
            parts.append([at])
            total = prompt + length
    return sorted((np.array(part) for part in parts), key=min)


def pays(prompt: int, total: int, length: int, pairs: int) -> bool:
    """Whether a response costs less in a sequence of `total` tokens than in its own, where the prompt is computed
    again.

    A sequence of L tokens costs L + L^2 / pairs, so this is length + ((total + length)^2 - total^2) / pairs < prompt +
    length + (prompt + length)^2 / pairs.
    """
    return 2 * length * (total - prompt) < prompt * (pairs + prompt)


def micro_batches(responses: Responses, budget: int, sharing: Sharing = ALONE) -> list[np.ndarray]:
    """Cut rows into parts for which the result of `read` stays within `budget` tokens, padding included. A longer
    sequence is a part by itself.

    The longest sequences come first, and without rows there are no parts. Equal responses to one prompt stay together,
    because the model reads them once.
    """
    heads, which = np.unique(response_numbers(responses, np.arange(len(responses.group))), return_inverse=True)
    parts = sorted(sequences(responses, heads, sharing), key=lambda part: -_length(responses, heads[part]))
    cuts, first = [], 0
    while first < len(parts):
        cuts.append(first)
        first += max(1, budget // _length(responses, heads[parts[first]]))
    rank = np.empty(len(heads), dtype=np.int64)
    for s, part in enumerate(parts):
        rank[part] = s
    order = np.lexsort((which, rank[which]))
    return np.split(order, np.searchsorted(rank[which][order], cuts[1:])) if cuts else []


def _length(responses: Responses, rows: np.ndarray) -> int:
    """Return the number of tokens of the sequence of some responses to one prompt."""
    lengths = responses.starts[rows + 1] - responses.starts[rows]
    return len(responses.prompts[responses.group[rows[0]]]) + int(lengths.sum())
