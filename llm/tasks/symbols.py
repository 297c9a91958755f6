"""The vocabulary of synthetic arithmetic: 20 symbols, each one token, `####` among them."""

import re
from collections.abc import Iterable

from rftlab.shared.plumbing.errors import check_choice

PAD, START, END = range(3)
"""Ids of the symbols that have no text: padding, the start of a sequence, the end of a response."""
SYMBOLS = ("<pad>", "<start>", "<end>", *"0123456789", "+", "-", "*", "%", "=", ",", "####")
"""Symbol by id."""

_ID = {symbol: i for i, symbol in enumerate(SYMBOLS) if i > END}
_SYMBOL = re.compile("####|.", re.DOTALL)


def encode(text: str) -> list[int]:
    """Ids of a text. Raises UserError for a character that is no symbol."""
    parts = _SYMBOL.findall(text)
    for symbol in parts:
        check_choice("symbol", symbol, tuple(_ID))
    return [_ID[symbol] for symbol in parts]


def decode(ids: Iterable[int]) -> str:
    """Text of ids; padding, start and end have none."""
    return "".join(SYMBOLS[i] for i in ids if i > END)
