"""A bound on the length of a text after a tokenizer's rules. The library applies them in this process, without a limit:
a letter that becomes a thousand four times over, or a table that says it has four billion bytes, ends it where memory
does."""

import base64
import json
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check

LARGEST = 1000
"""Characters that one may become; those of models that people use write at most one for one."""
PARTS = ("normalizer", "decoder")


def check_growth(folder: Path) -> None:
    """Raise UserError where a folder's tokenizer.json has rules that may write more than LARGEST characters for one, or
    a table of characters that goes beyond its end. A file that is no JSON is left to the library, which says so."""
    place = folder / "tokenizer.json"
    rules: Any = {}
    try:
        rules = json.loads(place.read_bytes()) if place.is_file() else {}
    except (ValueError, RecursionError):
        return
    for part in PARTS if isinstance(rules, dict) else ():
        try:
            times = _growth(rules.get(part))
        except ValueError as error:
            raise UserError(f"model.source = {str(folder)!r}: the {part} of its tokenizer has {error}") from None
        check(
            times <= LARGEST,
            f"model.source = {str(folder)!r}: the {part} of its tokenizer may write more than {LARGEST} characters "
            f"for one; allowed: up to {LARGEST}",
        )


def _growth(rule: Any) -> int:
    """Characters that one may become by all replacements in a rule, one after the other. Raises ValueError as
    `_longest`."""
    times, parts = 1, [rule]
    while parts and times <= LARGEST:
        one = parts.pop()
        if isinstance(one, dict):
            if one.get("type") == "Replace":
                times *= max(1, len(str(one.get("content", ""))))
            elif one.get("type") == "Precompiled":
                times *= max(1, _longest(one.get("precompiled_charsmap")))
            parts += one.values()
        elif isinstance(one, list):
            parts += one
    return times


def _longest(table: Any) -> int:
    """Bytes of the longest text in a table of characters, SentencePiece's `precompiled_charsmap`: in base64 the size of
    a trie (4 bytes, little-endian), the trie, and texts that end in a zero byte. Raises ValueError where it is none.

    The library asks for as much memory as the size says, before it looks whether the trie is there.
    """
    try:
        read = base64.b64decode(table, validate=True)
    except (TypeError, ValueError):
        raise ValueError("a table of characters that is no base64") from None
    size = int.from_bytes(read[:4], "little")
    if size > len(read) - 4:
        raise ValueError(f"a table of characters of {size} bytes, of which {max(len(read) - 4, 0)} are there")
    return max(len(text) for text in read[4 + size :].split(b"\0"))
