"""Describe the layout of tokens: responses are rows of a padded (R, L) tensor, or follow each other in a packed (T,)
one.

Where rows are padded, a number of each response is a column (R, 1), which every function of tokens broadcasts. Hidden
places (padding, a prompt, a tool's answer) are never read and may hold anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rftlab.shared.plumbing.errors import check


def wide(device: torch.device) -> torch.dtype:
    """Return the number type of rewards and advantages: float64 where a device has it, else float32."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclass(frozen=True)
class Layout:
    """The tokens that count, and the mapping between numbers of responses and of tokens."""

    shown: torch.Tensor
    """(R, L) or (T,) bool, the tokens that count."""
    lengths: torch.Tensor
    """(R,) number of tokens of each response that count."""
    row: torch.Tensor | None = None
    """(T,) index of each token's response where they are packed; None where responses are rows of (R, L)."""

    @property
    def n_rows(self) -> int:
        """R, the number of responses."""
        return self.lengths.shape[0]

    @property
    def divisor(self) -> torch.Tensor:
        """(R,) lengths, with 1 where a response is empty."""
        return self.lengths.clamp(min=1)

    def clean(self, values: torch.Tensor) -> torch.Tensor:
        """Return numbers of all tokens, with 0 where hidden."""
        return torch.where(self.shown, values, 0.0)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return numbers (R,) at the tokens of their responses; where rows are padded this is a column, which
        broadcasts."""
        return values[:, None] if self.row is None else values[self.row]

    def rows(self, values: torch.Tensor) -> torch.Tensor:
        """Return sums (R,) over the tokens of each response."""
        if self.row is not None:
            return values.new_zeros(self.n_rows).index_add(0, self.row, self.clean(values))
        if values.shape[1] < self.shown.shape[1]:  # a column is a row of equal numbers
            return values[:, 0] * self.lengths
        return self.clean(values).sum(1)


def on_cpu(columns: list[torch.Tensor]) -> list[np.ndarray]:
    """Return columns of responses as arrays of float64 or int64. All columns on a device are brought over in one
    copy."""
    away = [part.contiguous().view(torch.uint8) for part in columns if part.device.type != "cpu"]
    sizes = [part.shape[0] for part in away]
    brought = iter(torch.cat(away).cpu().split(sizes) if away else ())
    here = (part if part.device.type == "cpu" else next(brought).clone().view(part.dtype) for part in columns)
    return [part.to(torch.float64 if part.is_floating_point() else torch.int64).numpy() for part in here]


def send(
    arrays: Sequence[np.ndarray], device: str | torch.device, dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    """Copy arrays of one number type to a device, in another type if given. It is one copy from page-locked memory, for
    which a GPU does not wait."""
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays])).to(dtype=dtype)
    if torch.device(device).type == "cuda":
        flat = flat.pin_memory()
    parts = flat.to(device, non_blocking=True).split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def packed_on_cpu(
    layout: Layout, tokens: list[torch.Tensor], rows: list[torch.Tensor]
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray], Callable[[np.ndarray, torch.dtype], torch.Tensor]]:
    """Return starts (R+1,) of the tokens that count, packed arrays that broadcast to the tokens, and columns of
    responses (R,), brought from a device in one copy for kernels of `shared`. The last result is a function that puts
    packed numbers back into the shape of the tokens, on their device, with 0 where hidden."""
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
    """Return the layout of tokens of a shape. Raises UserError where shapes disagree."""
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
    """Return starts of packed responses. Raises UserError where they cannot be offsets."""
    check(starts.ndim == 1 and starts.shape[0] > 0, f"starts {_shape(starts)}; allowed: (responses + 1,)")
    whole = not starts.is_floating_point() and starts.dtype != torch.bool
    check(whole, f"starts of type {starts.dtype}; allowed: whole numbers")
    return starts


def _bool(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of numbers as bool. Fractional weights of tokens are refused, on the CPU alone, because each would
    count as 1."""
    if mask.is_floating_point() and mask.device.type == "cpu":
        check(
            bool(((mask == 0) | (mask == 1)).all()), "mask has other numbers than 0 and 1; allowed: 1 where one counts"
        )
    return mask if mask.dtype == torch.bool else mask != 0


def _shape(values: torch.Tensor | None) -> tuple[int, ...]:
    return () if values is None else tuple(values.shape)
