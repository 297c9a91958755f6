"""The one exception that the command line turns into a single line and exit status 2, and checks that raise it."""

import math
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import get_args

_NUMBA = re.compile(r"Failed in nopython mode pipeline \(step: [^)]*\)")
"""The text that numba prints at each level of calls, before the reason."""


class UserError(Exception):
    """Bad input: the message names the thing that is wrong and what is allowed. It is one line, whatever names from
    files and models are in it."""

    def __init__(self, message: str):
        super().__init__(plain(message))


def plain(text: str) -> str:
    """A text as one line of characters that a terminal shows and does not obey; others are written as Python writes
    them in a literal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def few(names: Sequence[str], most: int = 8) -> str:
    """Some of many names."""
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
    """Turn errors that a user's program raises inside into a UserError of one line; an interrupt stays one."""
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
    """Raise unless `value` is one of `allowed`; the message lists them."""
    known = isinstance(value, Hashable) and value in allowed  # an array is in nothing
    check(known, f"{field} = {shown(value)} is unknown; allowed: {', '.join(allowed)}")


def check_type(field: str, value: object, kind: type | tuple[type, ...], allowed: str) -> None:
    """Raise unless `value` has this kind; the message says what is `allowed`."""
    check(isinstance(value, kind), f"{field} is a {type(value).__name__}; allowed: {allowed}")


def check_finite(field: str, value: float, least: float = -math.inf, above: float = -math.inf) -> None:
    """Raise unless `value` is a finite number, at least `least` and more than `above`; the message says which bound
    there is."""
    bound = (
        f"{least:g} or more, finite"
        if least > -math.inf
        else f"more than {above:g}, finite"
        if above > -math.inf
        else "any finite number"
    )
    check(math.isfinite(value) and value >= least and value > above, f"{field} = {value!r}; allowed: {bound}")


MAX = 10**9
"""Counts beyond it are mistakes: no run of that many rounds, contexts or rollouts ends, and the numbers of compiled
code are 64 bits wide."""
MAX_SEED = 2**63 - 1


def check_count(field: str, value: int, least: int = 1, most: int = MAX) -> None:
    """Raise unless `value` lies between two whole numbers."""
    check(value >= least, f"{field} = {shown(value)}; allowed: {least} or more")
    check(value <= most, f"{field} = {shown(value)}; allowed: {least} to {shown(most)}")


def shown(value: object) -> str:
    """A value as Python writes it, cut short; large powers as such."""
    if not isinstance(value, int):
        return f"{value!r:.60}"
    names = {10**9: "10^9", 2**63 - 1: "2^63 - 1", 2**32 - 1: "2^32 - 1"}
    return names.get(value) or (
        str(value) if abs(value) < 10**30 else f"{'-' * (value < 0)}10^{math.log10(abs(value)):.0f}"
    )


def code_for(choices, value) -> int:
    """Integer code of a choice inside compiled kernels: the place of a name in its Literal, or of a class in its union.

    The constants of kernels are found by it too, so that names are listed once and their order means nothing. Raises
    UserError for a value that is no choice.
    """
    known = get_args(choices)
    if value not in known:
        raise UserError(f"{value!r} is unknown; allowed: {', '.join(str(getattr(k, '__name__', k)) for k in known)}")
    return known.index(value)


def check_labels(field: str, labels, n: int) -> None:
    """Raise unless every label of an integer array lies in 0 .. n-1; the message names the first one that does not."""
    for label in labels[(labels < 0) | (labels >= n)][:1]:
        raise UserError(f"{field} = {label} is unknown; allowed: 0 .. {n - 1}")
