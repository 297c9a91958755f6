"""Where the answer stands in a response. Every function looks at the text a constant number of times, however hostile
it is.

The strict rules are those of the paper's reward functions, oddities included: they decide what its models were trained
on.
"""

import re

GSM8K_WINDOW = 300
"""Characters at the end of a response that the rules for GSM8K look at."""
TAIL = 1000
"""Characters at the end of a response in which the flexible rule for MATH looks for an answer outside a box."""

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
    """GSM8K, strict: the last `#### number` in the window, without commas."""
    matches = _last(_MARKED.findall(response[-GSM8K_WINDOW:]))
    return None if matches is None else matches.replace(",", "")


def last_number(response: str) -> str | None:
    """GSM8K, flexible: the last number in the window, commas kept. A lone full stop is no number, unless there is
    nothing else."""
    matches = _NUMBER.findall(response[-GSM8K_WINDOW:])
    return _last([number for number in matches if number != "."] or matches[:1])


def marked_symbol(response: str) -> str | None:
    """Synthetic arithmetic, strict: the last integer that directly follows the marker."""
    return _last(_MARKED_INTEGER.findall(response[-GSM8K_WINDOW:]))


def last_integer(response: str) -> str | None:
    """Synthetic arithmetic, flexible: the last integer."""
    return _last(_INTEGER.findall(response[-GSM8K_WINDOW:]))


def closing(text: str, start: int) -> int | None:
    r"""Where the first `{` from `start` on is closed, counting every brace, `\{` too; None where it never is."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace.group() == "{" else -1
        if brace.group() == "}" and depth == 0:
            return brace.start()
    return None


def boxed(response: str) -> str | None:
    r"""MATH, strict: what the last `\boxed{...}` holds, or, where `\boxed ` with a space occurs, what follows it up to
    a dollar sign.

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
    r"""MATH, flexible: what the last `\boxed{...}` or `\fbox{...}` holds, else the answer that the tail of the response
    states.

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
    """The name of the alternative that matched."""
    return formula[formula.lastgroup or 0].strip()
