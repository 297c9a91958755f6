r"""When two answers to a MATH problem are the same as text: the normalisation of Hendrycks et al. (2103.03874,
appendix), as the paper used it.

It removes spaces, units, degrees, percent and dollar signs, and spells fractions and roots in one way. It is a rule
about text, not about
values: `0.5` and `\frac{1}{2}` agree because the rule says so, `0.25` and `\frac{1}{4}` do not.
"""

import re

_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_SPELLINGS = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
"""Replacements in this order: one can make the place for the next."""


def same_text(answer: str, truth: str) -> bool:
    """Whether the normalised texts are equal; where one of them cannot be normalised, whether they are equal as they
    stand."""
    try:
        return normalised(answer) == normalised(truth)
    except ValueError:
        return answer == truth


def normalised(text: str) -> str:
    r"""The normal form. Raises ValueError for text that the rule cannot treat: two units, or `\sqrt` or `\frac` at
    the end."""
    for old, new in _SPELLINGS:
        text = text.replace(old, new)
    text = _without_unit(text).replace("\\\\%", "").replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    text = "0" + text if text.startswith(".") else text
    name, equals, value = text.partition("=")
    if equals and len(name) <= 2 and "=" not in value:
        text = value
    text = _braced_fractions(_braced_roots(text).replace(" ", ""))
    return _slash_as_fraction("\\frac{1}{2}" if text == "0.5" else text)


def _without_unit(text: str) -> str:
    r"""Text before `\text{ `, which starts a unit on the right."""
    before, *units = text.split("\\text{ ")
    if len(units) > 1:
        raise ValueError("two units")
    return before


def _braced_roots(text: str) -> str:
    r"""`\sqrt3` becomes `\sqrt{3}`."""
    before, *rests = text.split("\\sqrt")
    if "" in rests:
        raise ValueError("a root of nothing")
    return "\\sqrt".join([before, *(rest if rest.startswith("{") else f"{{{rest[0]}}}{rest[1:]}" for rest in rests)])


def _braced_fractions(text: str) -> str:
    r"""`\frac12` and `\frac1{2}` become `\frac{1}{2}`; the text stays as it is where a fraction has one character."""
    before, *rests = text.split("\\frac")
    parts = [before]
    for rest in rests:
        if rest == "":
            raise ValueError("a fraction of nothing")
        if rest.startswith("{"):
            parts.append(rest)
        elif len(rest) < 2:
            return text
        else:
            below = rest[1:] if rest[1] == "{" else f"{{{rest[1]}}}{rest[2:]}"
            parts.append(f"{{{rest[0]}}}{below}")
    return "\\frac".join(parts)


def _slash_as_fraction(text: str) -> str:
    r"""`3/4` becomes `\frac{3}{4}`, for two integers without leading zeros or plus signs."""
    above, slash, below = text.partition("/")
    return (
        f"\\frac{{{above}}}{{{below}}}"
        if slash and _PLAIN_INTEGER.fullmatch(above) and _PLAIN_INTEGER.fullmatch(below)
        else text
    )
