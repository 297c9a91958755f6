"""The exception for bad input, which the command line prints as one line with exit status 2, and checks that raise
it."""

import math
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import get_args

_NUMBA = re.compile(r"Failed in nopython mode pipeline \(step: [^)]*\)")
"""Text that numba prints at each level of calls, before the reason."""


class UserError(Exception):
    """Bad input: the message names what is wrong and what is allowed. It is one line, also where it quotes names from
    files and models."""

    def __init__(self, message: str):
        super().__init__(plain(message))


def plain(text: str) -> str:
    """Return a text as one line of printable characters; other characters are escaped as in a Python literal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def few(names: Sequence[str], most: int = 8) -> str:
    """Return the first `most` names as one text, with the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def said_by(error: BaseException) -> str:
    """Return the error that a user's program raised as one line, even where the error cannot print itself."""
    name = type(error).__name__
    try:
        text = " ".join(_NUMBA.sub("", str(error)).split())
    except Exception:
        return name
    return f"{name}: {text[:200]}" if text else name


@contextmanager
def blaming(where: str) -> Iterator[None]:
    """Turn exceptions that a user's code raises inside the block into a UserError of one line. KeyboardInterrupt is
    passed on."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except UserError as error:
        raise UserError(f"{where}{error}") from None
    except BaseException as error:  # also what is no Exception: an exit, a cancelled task, a panic in compiled code
        raise UserError(where + said_by(error)) from None


def check(condition: bool, message: str) -> None:
    """Raise `UserError(message)` unless `condition` holds."""
    if not condition:
        raise UserError(message)


def check_choice(field: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise UserError unless `value` is one of `allowed`; the message lists them."""
    known = isinstance(value, Hashable) and value in allowed  # an array cannot be hashed
    check(known, f"{field} = {shown(value)} is unknown; allowed: {', '.join(allowed)}")


def check_type(field: str, value: object, kind: type | tuple[type, ...], allowed: str) -> None:
    """Raise UserError unless `value` has the type `kind`; the message says what is `allowed`."""
    check(isinstance(value, kind), f"{field} is a {type(value).__name__}; allowed: {allowed}")


def check_finite(field: str, value: float, least: float = -math.inf, above: float = -math.inf) -> None:
    """Raise UserError unless `value` is a finite number, at least `least` and more than `above`; the message names the
    bound."""
    bound = (
        f"{least:g} or more, finite"
        if least > -math.inf
        else f"more than {above:g}, finite"
        if above > -math.inf
        else "any finite number"
    )
    check(math.isfinite(value) and value >= least and value > above, f"{field} = {value!r}; allowed: {bound}")


MAX = 10**9
"""Largest count that is allowed. A run with more rounds, contexts or rollouts would not end, and compiled code has
64-bit integers."""
MAX_SEED = 2**63 - 1


def check_count(field: str, value: int, least: int = 1, most: int = MAX) -> None:
    """Raise UserError unless `value` lies between two whole numbers."""
    check(value >= least, f"{field} = {shown(value)}; allowed: {least} or more")
    check(value <= most, f"{field} = {shown(value)}; allowed: {least} to {shown(most)}")


def shown(value: object) -> str:
    """Return a value as Python writes it, cut to 60 letters; large powers are written as powers."""
    if not isinstance(value, int):
        return f"{value!r:.60}"
    names = {10**9: "10^9", 2**63 - 1: "2^63 - 1", 2**32 - 1: "2^32 - 1"}
    return names.get(value) or (
        str(value) if abs(value) < 10**30 else f"{'-' * (value < 0)}10^{math.log10(abs(value)):.0f}"
    )


def code_for(choices, value) -> int:
    """Return the integer code of a choice in compiled kernels: the index of a name in its Literal, or a class in its
    union.

    The constants of kernels are defined by it too, so that names are listed once and their order does not matter.
    Raises UserError for a value that is no choice.
    """
    known = get_args(choices)
    if value not in known:
        raise UserError(f"{value!r} is unknown; allowed: {', '.join(str(getattr(k, '__name__', k)) for k in known)}")
    return known.index(value)


def check_labels(field: str, labels, n: int) -> None:
    """Raise UserError unless every label of an integer array lies in 0 .. n-1; the message names the first that does
    not."""
    for label in labels[(labels < 0) | (labels >= n)][:1]:
        raise UserError(f"{field} = {label} is unknown; allowed: 0 .. {n - 1}")
