"""Read plain values from configurations: numbers that may be texts, nested or dotted keys, W&B's wrapping."""

import ast
import math
import re
from collections.abc import Callable
from typing import Any

from rftlab.shared.plumbing.errors import plain, shown
from rftlab.shared.plumbing.folders import DEEPEST

LONGEST = 200
MOST, DIGITS = 100_000, 300
"""Largest number of values, each counted as often as it is named, and of digits in a number."""
HOPS = 8
"""Largest number of references that are followed one after another."""
_NAMED = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_VARIABLE = re.compile(r"\$\w|\$[({]")


class Unknown(str):
    """Setting as it is written, whose value the file does not give, and the reason."""

    why: str

    def __new__(cls, text: str, why: str):
        """Make the text of a setting. why: the reason, as a clause."""
        made = super().__new__(cls, text[:LONGEST])
        made.why = why
        return made


class Fallback(str):
    """Value that holds unless something outside of the file says otherwise."""

    why: str

    def __new__(cls, text: str, why: str):
        """Make the text of a value. why: the condition, as a clause that begins with unless."""
        made = super().__new__(cls, text)
        made.why = why[: 2 * LONGEST]
        return made


def plain_values(value: Any, other: Callable[[Any], Any] = shown) -> Any:
    """Return a copy of numbers, texts, lists and dictionaries with texts as keys. other: makes one of anything else.
    Raises ValueError for more than `MOST` of them, because in YAML and in pickles a few lines can stand for any
    number."""
    left = iter(range(MOST))

    def copied(part: Any, depth: int) -> Any:
        if next(left, None) is None or depth > DEEPEST:
            raise ValueError(f"it holds more than {MOST} values, or more than {DEEPEST} levels")
        if isinstance(part, list | tuple):
            return [copied(each, depth + 1) for each in part]
        if isinstance(part, dict):
            return {str(name): copied(each, depth + 1) for name, each in part.items()}
        if isinstance(part, int) and abs(part) >= 10**DIGITS:
            raise ValueError(f"it holds a number of more than {DIGITS} digits")
        return part if part is None or isinstance(part, bool | int | float | str) else other(part)

    return copied(value, 0)


def literal_values(text: str) -> dict[str, Any] | None:
    """Return the plain values of a dictionary that is written as a Python literal; None for another text. The literal
    is parsed, never evaluated."""
    try:
        literal = plain_values(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # TypeError: a list as a key
        return None
    return literal if isinstance(literal, dict) else None


def value_at(config: Any, path: str) -> Any:
    """Return the value at a dotted path, whether the configuration is nested or has dotted keys; None where there is
    none, also for null. A reference ${another.path}, as OmegaConf has it, gives the value there, or its own text where
    it leads nowhere."""
    there = _at(config, path)
    for _ in range(HOPS):
        named = _NAMED.fullmatch(there) if type(there) is str else None
        value = _at(config, named[1]) if named else None
        if value is None:
            break
        there = value
    return there


def _at(config: Any, path: str) -> Any:
    if isinstance(config, dict) and path in config:
        return unwrapped(config[path])
    place = config
    for part in path.split("."):
        place = unwrapped(place.get(part)) if isinstance(place, dict) else None
    return place


def unwrapped(value: Any) -> Any:
    """Return x for {"value": x}, as W&B's config.yaml writes it; another value as it is."""
    return value["value"] if isinstance(value, dict) and "value" in value and set(value) <= {"value", "desc"} else value


def as_count(value: Any, least: int = 1) -> int | None:
    """Return a whole number of at least `least`; None for anything else."""
    number = as_real(value)
    return int(number) if number is not None and number == int(number) and least <= number <= 10**9 else None


def as_real(value: Any) -> float | None:
    """Return a finite number, also one in a text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def as_rate(value: Any) -> float | None:
    """Return a finite number above 0, also one in a text; None for anything else."""
    number = as_real(value)
    return number if number is not None and number > 0 else None


def as_word(value: Any) -> str | None:
    """Return a text, cut to a length that can be shown and with its control characters written out; None for anything
    else, and for one with a variable that nobody set."""
    known = isinstance(value, str) and value and not _VARIABLE.search(value)
    return plain(value[:LONGEST]) if known else None


def as_truth(value: Any) -> bool | None:
    """Return True or False, also from a text; None for anything else."""
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())


def weight_precision(text: str | None) -> str | None:
    """Return fp32 or bf16, whichever a text about weights names first; None where it names neither. Master weights in
    fp32 count, because an optimizer changes the copy that has more digits."""
    names = re.findall(r"no fp32|fp32|float32|(?:pure )?bf16 (?:weights|param)|bfloat16|^bf16$", (text or "").lower())
    return None if not names else "fp32" if names[0] in ("fp32", "float32") else "bf16"


class Reader:
    """Reader of typed values of a configuration, which notes what cannot be read and which defaults were taken."""

    def __init__(self, config: dict[str, Any], processes: int | None = None):
        """Keep a configuration. processes: the world size, which TRL's arguments do not hold."""
        self.config, self.processes = config, processes
        self.notes: list[str] = []
        self.assumed: list[str] = []

    def stated(self, path: str) -> bool:
        """Whether the configuration states a setting."""
        return value_at(self.config, path) is not None

    def count(self, path: str, least: int = 1) -> int | None:
        """Return the whole number at a path; None where there is none."""
        return self._read(path, lambda value: as_count(value, least), "whole number that can be read here")

    def real(self, path: str) -> float | None:
        """Return the finite number at a path; None where there is none."""
        return self._read(path, as_real, "number that can be read here")

    def rate(self, path: str) -> float | None:
        """Return the finite number above 0 at a path; None where there is none."""
        return self._read(path, as_rate, "number above 0 that can be read here")

    def word(self, path: str) -> str | None:
        """Return the text at a path; None where there is none."""
        return self._read(path, lambda value: str(value) if isinstance(value, bool) else as_word(value), "plain text")

    def truth(self, path: str) -> bool | None:
        """Return the truth value at a path; None where there is none."""
        return self._read(path, as_truth, "truth value that can be read here")

    def stated_or(self, kind: str, path: str, default: Any, library: str) -> Any:
        """Return a setting, or a library's default where it is not stated, which is noted. Return None where something
        that was not read may state it. kind: count, real, rate, word, truth."""
        if self.stated(path):
            return getattr(self, kind)(path)
        hidden, unless = (getattr(self.config, name, "") for name in ("hidden", "unless"))
        if hidden:
            self._say(self.notes, f"{path} is not stated, but {hidden} may state it")
            return None
        self._say(self.assumed, f"{path} is not stated; the default of {library} is {default}{unless}")
        return default

    def _read(self, path: str, convert: Callable[[Any], Any], kind: str) -> Any:
        value = value_at(self.config, path)
        read = None if isinstance(value, Unknown) else convert(value)
        if isinstance(value, Unknown):
            self._say(self.notes, f"{path} is {value}, {value.why}")
        elif value is not None and read is None:
            self._say(self.notes, f"{path} is {str(value)[:LONGEST]!r}, which is no {kind}")
        elif isinstance(value, Fallback):
            self._say(self.assumed, f"{path}: {value} {value.why}")
        return read

    def _say(self, lines: list[str], text: str) -> None:
        if text not in lines:
            lines.append(text)
