"""Rules that judge responses to a user's own data. Strictly an answer stands where the prompt asks for it, flexibly
anywhere sensible; what is strictly right is flexibly right too. Every function looks at a bounded number of characters.

number   strictly what follows the last `####`; flexibly the last number. Compared as numbers: 1,875 is 1875.0
choice   strictly the letter that the last line is, that follows its last `####` or `Answer:`, or that is boxed;
         flexibly the last capital letter that stands alone
text     strictly the whole response, but for spaces; flexibly its last line, but for case, a leading `####` or
         `Answer:`, and what is no letter or digit at its ends
"""

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

TAIL = 1000
"""Characters at the end of a response that the rules look at; those for text look at more where the truth is
longer."""
LONGEST_NUMBER = 60
"""Characters of a number."""

_NUMBER = re.compile(r"(?:(?<![0-9)])[-+])?(?:[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_MARKED = re.compile(r"####\s*\$?\s*([-+0-9.,eE]+)")
_LETTER = re.compile(r"(?:####|[Aa]nswer:|\\boxed\{|^)[\s*]*\(?([A-Z])\)?[\s.*}]*$")
_ALONE = re.compile(r"(?<![A-Za-z0-9'])([A-Z])(?![A-Za-z0-9'])")
_LEAD = re.compile(r"^\s*(?:####|answer:)\s*", re.IGNORECASE)


class AnswerRules(NamedTuple):
    """The rules that judge responses to one kind of truth."""

    strict: Callable[[str, str], bool]
    """Of a response and the truth."""
    flexible: Callable[[str, str], bool]
    answer: Callable[[str], str | None]
    """The answer that the strict rule finds, right or wrong, None without one: equal answers are equal texts."""


def parse_number(text: str) -> Decimal | None:
    """The number that a text is, commas and a full stop at its end aside; None where it is none."""
    text = text.strip().rstrip(".")
    if len(text) > LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None


def _marked_number(response: str) -> Decimal | None:
    marks = _MARKED.findall(response[-TAIL:])
    return parse_number(marks[-1].rstrip(",")) if marks else None


def _number_text(response: str) -> str | None:
    number = _marked_number(response)
    return None if number is None else "/".join(map(str, number.as_integer_ratio()))


def _last_number(response: str) -> Decimal | None:
    marks = _NUMBER.findall(response[-TAIL:])
    return parse_number(marks[-1]) if marks else None


def _strict_number(response: str, truth: str) -> bool:
    number = _marked_number(response)
    return number is not None and number == parse_number(truth)


def _flexible_number(response: str, truth: str) -> bool:
    number = _last_number(response)
    return _strict_number(response, truth) or (number is not None and number == parse_number(truth))


def _last_line(response: str, length: int = TAIL) -> str:
    return response[-length:].strip().rpartition("\n")[2].strip()


def _chosen(response: str) -> str | None:
    match = _LETTER.search(_last_line(response))
    return match[1] if match else None


def _strict_choice(response: str, truth: str) -> bool:
    return _chosen(response) == truth


def _flexible_choice(response: str, truth: str) -> bool:
    marks = _ALONE.findall(response[-TAIL:])
    return _strict_choice(response, truth) or (bool(marks) and marks[-1] == truth)


def _strict_text(response: str, truth: str) -> bool:
    near = len(response) <= 2 * len(truth) + TAIL  # spaces apart, a longer one is another text
    return near and response.split() == truth.split()


def _bare(line: str) -> str:
    text = _LEAD.sub("", line, count=1)
    places = [i for i, character in enumerate(text) if character.isalnum()]
    return " ".join(text[places[0] : places[-1] + 1].casefold().split()) if places else ""


def _flexible_text(response: str, truth: str) -> bool:
    line = _last_line(response, TAIL + 2 * len(truth))
    return _strict_text(response, truth) or (bool(_bare(truth)) and _bare(line) == _bare(truth))


OWN_RULES = {
    "number": AnswerRules(_strict_number, _flexible_number, _number_text),
    "choice": AnswerRules(_strict_choice, _flexible_choice, _chosen),
    "text": AnswerRules(_strict_text, _flexible_text, lambda response: " ".join(response.split()) or None),
}
"""By kind of truth."""
