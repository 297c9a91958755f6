"""Where tokens lie: responses as rows of a padded (R, L) tensor, or one behind the other in a packed (T,) one.

A number of each response, spread over its tokens, stays a column (R, 1) where rows are padded; every function of tokens
broadcasts it. Hidden places (padding, a prompt, a tool's answer) are never read: they may hold anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rftlab.shared.plumbing.errors import check


def wide(device: torch.device) -> torch.dtype:
    """The number type of rewards and advantages: float64, where a device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclass(frozen=True)
class Layout:
    """Which tokens count, and how numbers of responses and of tokens meet."""

    shown: torch.Tensor
    """(R, L) or (T,) bool: tokens that count."""
    lengths: torch.Tensor
    """(R,) tokens of each response that count."""
    row: torch.Tensor | None = None
    """(T,) index of each token's response where they are packed; None where responses are rows of (R, L)."""

    @property
    def n_rows(self) -> int:
        """R."""
        return self.lengths.shape[0]

    @property
    def divisor(self) -> torch.Tensor:
        """(R,) lengths, 1 where a response is empty."""
        return self.lengths.clamp(min=1)

    def clean(self, values: torch.Tensor) -> torch.Tensor:
        """Numbers of all tokens, 0 where hidden."""
        return torch.where(self.shown, values, 0.0)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Numbers (R,) at the tokens of their responses; a column, which broadcasts, where rows are padded."""
        return values[:, None] if self.row is None else values[self.row]

    def rows(self, values: torch.Tensor) -> torch.Tensor:
        """Sums (R,) over the tokens of each response."""
        if self.row is not None:
            return values.new_zeros(self.n_rows).index_add(0, self.row, self.clean(values))
        if values.shape[1] < self.shown.shape[1]:  # a column stands for a row of equal numbers
            return values[:, 0] * self.lengths
        return self.clean(values).sum(1)


def on_cpu(columns: list[torch.Tensor]) -> list[np.ndarray]:
    """Columns of responses as arrays of float64 or int64; one copy brings all that lie on a device."""
    away = [part.contiguous().view(torch.uint8) for part in columns if part.device.type != "cpu"]
    sizes = [part.shape[0] for part in away]
    brought = iter(torch.cat(away).cpu().split(sizes) if away else ())
    here = (part if part.device.type == "cpu" else next(brought).clone().view(part.dtype) for part in columns)
    return [part.to(torch.float64 if part.is_floating_point() else torch.int64).numpy() for part in here]


def send(
    arrays: Sequence[np.ndarray], device: str | torch.device, dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    """Arrays of one number type on a device, in another type where it is given: in one copy, for which a GPU does not
    wait, because it comes from page-locked memory."""
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays])).to(dtype=dtype)
    if torch.device(device).type == "cuda":
        flat = flat.pin_memory()
    parts = flat.to(device, non_blocking=True).split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def packed_on_cpu(
    layout: Layout, tokens: list[torch.Tensor], rows: list[torch.Tensor]
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray], Callable[[np.ndarray, torch.dtype], torch.Tensor]]:
    """Return starts (R+1,) of the tokens that count, arrays that broadcast to the tokens, packed, and columns of
    responses (R,): in one copy from a device, for kernels of `shared`. And the function that puts packed numbers back
    into the shape of the tokens, on their device, 0 where hidden."""
    flat = [part.expand(layout.shown.shape).flatten() for part in (layout.shown, *tokens)]
    lengths, *brought = on_cpu([layout.lengths, *flat, *rows])
    shown = brought[0].astype(bool)

    def unpacked(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        out = np.zeros(shown.size)
        out[shown] = values
        return send([out.reshape(layout.shown.shape)], layout.shown.device, dtype)[0]

    starts, packed = np.concatenate([[0], np.cumsum(lengths)]), [values[shown] for values in brought[1 : len(flat)]]
    return starts, packed, brought[len(flat) :], unpacked


def make_layout(
    shape: tuple[int, ...], device: torch.device, mask: torch.Tensor | None, starts: torch.Tensor | None
) -> Layout:
    """The layout of tokens, of which there is a `shape`. Raises UserError where shapes disagree."""
    check(len(shape) in (1, 2), f"tokens {shape}; allowed: (responses, tokens), or (tokens,) with starts")
    check(
        (starts is not None) == (len(shape) == 1),
        f"tokens {shape}; starts are needed where they are packed, and only there",
    )
    check(mask is not None or starts is not None, "mask is missing; allowed: (responses, tokens), 1 where one counts")
    check(mask is None or tuple(mask.shape) == shape, f"mask {_shape(mask)} must have the shape of the tokens {shape}")
    shown = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else _bool(mask.to(device))
    if starts is None:
        return Layout(shown, shown.sum(1))
    check_starts(starts)
    if starts.device.type == "cpu":
        rising = bool((starts.diff() >= 0).all()) and int(starts[0]) == 0 and int(starts[-1]) == shape[0]
        check(rising, f"starts; allowed: offsets that begin at 0, never fall, and end at the {shape[0]} tokens")
    starts = starts.to(device, torch.int64)
    row = torch.repeat_interleave(starts.diff(), output_size=shape[0])
    lengths = starts.diff() if mask is None else torch.zeros_like(starts[1:]).index_add(0, row, shown.to(torch.int64))
    return Layout(shown, lengths, row)


def check_starts(starts: torch.Tensor) -> torch.Tensor:
    """The same. Raises UserError where they can be no offsets."""
    check(starts.ndim == 1 and starts.shape[0] > 0, f"starts {_shape(starts)}; allowed: (responses + 1,)")
    whole = not starts.is_floating_point() and starts.dtype != torch.bool
    check(whole, f"starts of type {starts.dtype}; allowed: whole numbers")
    return starts


def _bool(mask: torch.Tensor) -> torch.Tensor:
    """A mask of numbers as one; a weight of a token would be taken for 1, so it is refused, on the CPU alone."""
    if mask.is_floating_point() and mask.device.type == "cpu":
        check(
            bool(((mask == 0) | (mask == 1)).all()), "mask has other numbers than 0 and 1; allowed: 1 where one counts"
        )
    return mask if mask.dtype == torch.bool else mask != 0


def _shape(values: torch.Tensor | None) -> tuple[int, ...]:
    return () if values is None else tuple(values.shape)
