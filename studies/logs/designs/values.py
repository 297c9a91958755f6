"""Plain values of other people's configurations: numbers that may be texts, nested or dotted keys, W&B's wrapping."""

import math
import re
from typing import Any

from rftlab.shared.errors import plain

LONGEST = 200
_NAMED = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_VARIABLE = re.compile(r"\$\w|\$[({]")


def at(config: Any, path: str) -> Any:
    """The value at a dotted path, whether the configuration is nested or has dotted keys; None where there is none,
    also for null. Of ${another.path}, as OmegaConf has it, the value there."""
    found = _at(config, path)
    named = _NAMED.fullmatch(found) if isinstance(found, str) else None
    return _at(config, named[1]) if named else found


def _at(config: Any, path: str) -> Any:
    if isinstance(config, dict) and path in config:
        return unwrapped(config[path])
    place = config
    for part in path.split("."):
        place = unwrapped(place.get(part)) if isinstance(place, dict) else None
    return place


def unwrapped(value: Any) -> Any:
    """W&B's config.yaml has {"value": x} for x."""
    return value["value"] if isinstance(value, dict) and "value" in value and set(value) <= {"value", "desc"} else value


def count(value: Any, least: int = 1) -> int | None:
    """A whole number of at least `least`; None of anything else."""
    found = real(value)
    return int(found) if found is not None and found == int(found) and least <= found <= 10**9 else None


def real(value: Any) -> float | None:
    """A finite number, also one in a text; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def word(value: Any) -> str | None:
    """A text, cut to a length that can be shown, its control characters written out; None of anything else, and of
    one with a variable that nobody set."""
    known = isinstance(value, str) and value and not _VARIABLE.search(value)
    return plain(value[:LONGEST]) if known else None


def truth(value: Any) -> bool | None:
    """True or False, also as texts."""
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())
