"""How much longer the rules of a tokenizer make a text. The library applies them in this process, without a limit: a
letter that becomes a thousand four times over ends it where memory does."""

import json
from pathlib import Path
from typing import Any

from rftlab.shared.errors import check

LARGEST = 1000
"""Characters that one may become; those of models that people use write at most one for one."""
PARTS = ("normalizer", "decoder")


def check_growth(folder: Path) -> None:
    """Raise UserError where a folder's tokenizer.json has rules that may write more than LARGEST characters for one.
    What is no JSON is left to the library, which says so."""
    place = folder / "tokenizer.json"
    rules: Any = {}
    try:
        rules = json.loads(place.read_bytes()) if place.is_file() else {}
    except (ValueError, RecursionError):
        return
    for part in PARTS if isinstance(rules, dict) else ():
        times = _growth(rules.get(part))
        check(
            times <= LARGEST,
            f"model.source = {str(folder)!r}: the {part} of its tokenizer may write more than {LARGEST} characters "
            f"for one; allowed: up to {LARGEST}",
        )


def _growth(rule: Any) -> int:
    """Characters that one may become by all replacements in a rule, one after the other."""
    times, parts = 1, [rule]
    while parts and times <= LARGEST:
        one = parts.pop()
        if isinstance(one, dict):
            times *= max(1, len(str(one.get("content", "")))) if one.get("type") == "Replace" else 1
            parts += one.values()
        elif isinstance(one, list):
            parts += one
    return times
