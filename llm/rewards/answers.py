r"""Find the answer in a response, and decide whether two answers to a MATH problem are the same as text. Every function
scans the text a constant number of times, however hostile it is.

The strict rules are those of the paper's reward functions, oddities included: they decide what its models were trained
on. The normalisation of answers is that of Hendrycks et al. (2103.03874, appendix). It removes spaces, units, degrees,
percent and dollar signs, and spells fractions and roots in one way. It is a rule about text, not about values: `0.5`
and `\frac{1}{2}` agree because the rule contains this pair, `0.25` and `\frac{1}{4}` do not."""

import re

GSM8K_WINDOW = 300
"""Number of characters at the end of a response that the rules for GSM8K read."""
TAIL = 1000
"""Number of characters at the end of a response in which the flexible rule for MATH looks for an answer outside a
box."""

_NUMBER = re.compile(r"-?[0-9.,]+")
_MARKED = re.compile(r"#### (-?[0-9.,]+)")
_INTEGER = re.compile(r"-?[0-9]+")
_MARKED_INTEGER = re.compile(r"####(-?[0-9]+)")
_BRACE = re.compile(r"[{}]")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_FORMULA = re.compile(
    r"\$\$(?P<display>[^$]+)\$\$|\$(?P<inline>[^$]+)\$|\\\((?P<round>.+?)\\\)|\\\[(?P<square>.+?)\\\]"
    r"|(?P<number>(?<![0-9.,])-?(?:[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?)",
    re.DOTALL,
)


def _last(matches: list[str]) -> str | None:
    return matches[-1] if matches else None


def marked_number(response: str) -> str | None:
    """Return the last `#### number` in the window, without commas (strict rule of GSM8K)."""
    matches = _last(_MARKED.findall(response[-GSM8K_WINDOW:]))
    return None if matches is None else matches.replace(",", "")


def last_number(response: str) -> str | None:
    """Return the last number in the window, with its commas (flexible rule of GSM8K). A lone full stop counts as a
    number only if there is no other."""
    matches = _NUMBER.findall(response[-GSM8K_WINDOW:])
    return _last([number for number in matches if number != "."] or matches[:1])


def marked_symbol(response: str) -> str | None:
    """Return the last integer that directly follows the marker (strict rule of synthetic arithmetic)."""
    return _last(_MARKED_INTEGER.findall(response[-GSM8K_WINDOW:]))


def last_integer(response: str) -> str | None:
    """Return the last integer (flexible rule of synthetic arithmetic)."""
    return _last(_INTEGER.findall(response[-GSM8K_WINDOW:]))


def closing(text: str, start: int) -> int | None:
    r"""Return the place where the first `{` from `start` on is closed, counting every brace, `\{` too; None where it is
    not."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace.group() == "{" else -1
        if brace.group() == "}" and depth == 0:
            return brace.start()
    return None


def boxed(response: str) -> str | None:
    r"""Return the content of the last `\boxed{...}`, or, where `\boxed ` with a space occurs, the text after it up to a
    dollar sign (strict rule of MATH).

    The paper's rule also looks for `\fbox{...}`, but then unwraps only `\boxed{`, so that an `\fbox` never earns a
    reward.
    """
    if "\\boxed " in response:
        return response.rpartition("\\boxed ")[2].partition("$")[0]
    start = response.rfind("\\boxed")
    if start < 0 or not response.startswith("{", start + len("\\boxed")):
        return None
    end = closing(response, start)
    return None if end is None else response[start + len("\\boxed{") : end]


def stated(response: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` or `\fbox{...}`, else the answer in the tail of the response
    (flexible rule of MATH).

    That is the first formula or number after the last word `answer`, or the last formula or number where there is no
    such word.
    """
    start = max(response.rfind("\\boxed"), response.rfind("\\fbox"))
    box = _BOX.match(response, start) if start >= 0 else None
    if box and (end := closing(response, box.end() - 1)) is not None:
        return response[box.end() : end].strip()
    tail = response[-TAIL:]
    said = tail.lower().rfind("answer")
    if said >= 0 and (first := _FORMULA.search(tail, said)):
        return _content(first)
    return _last([_content(formula) for formula in _FORMULA.finditer(tail)])


def _content(formula: re.Match[str]) -> str:
    """Return the text of the alternative that matched."""
    return formula[formula.lastgroup or 0].strip()


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
"""Replacements, made in this order, because one can create a match for the next."""


def same_text(answer: str, truth: str) -> bool:
    """Whether the normalised texts are equal; where one cannot be normalised, whether the texts themselves are
    equal."""
    try:
        return normalised(answer) == normalised(truth)
    except ValueError:
        return answer == truth


def normalised(text: str) -> str:
    r"""Return the normal form of an answer. Raises ValueError for text that the rule cannot treat: two units, or
    `\sqrt` or `\frac` at the end."""
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
    r"""Return the text before `\text{ `, which starts a unit on the right."""
    before, *units = text.split("\\text{ ")
    if len(units) > 1:
        raise ValueError("two units")
    return before


def _braced_roots(text: str) -> str:
    r"""Turn `\sqrt3` into `\sqrt{3}`."""
    before, *rests = text.split("\\sqrt")
    if "" in rests:
        raise ValueError("a root of nothing")
    return "\\sqrt".join([before, *(rest if rest.startswith("{") else f"{{{rest[0]}}}{rest[1:]}" for rest in rests)])


def _braced_fractions(text: str) -> str:
    r"""Turn `\frac12` and `\frac1{2}` into `\frac{1}{2}`; the text stays unchanged where a fraction has one
    character."""
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
    r"""Turn `3/4` into `\frac{3}{4}`, for two integers without leading zeros or plus signs."""
    above, slash, below = text.partition("/")
    return (
        f"\\frac{{{above}}}{{{below}}}"
        if slash and _PLAIN_INTEGER.fullmatch(above) and _PLAIN_INTEGER.fullmatch(below)
        else text
    )
