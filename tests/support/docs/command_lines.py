"""Command lines of rftlab that pages name: in fenced and indented blocks, and in the text."""

import re
import shlex
from typing import NamedTuple

ASSIGNMENT = re.compile(r"(\w+=\S+ )*(\.venv/bin/|\$\(BIN\)/)?rftlab (?P<arguments>.*)")
SPAN = re.compile(r"(?<!`)`(\.venv/bin/)?(rftlab\s[^`]+)`(?!`)")
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Line(NamedTuple):
    """A command line of a page."""

    arguments: str
    number: int
    """Of the page's line where it begins."""


def lines_of(text: str) -> list[Line]:
    """Every command line that begins with rftlab, without it and without comments."""
    joined = re.sub(r"\\\n\s*", lambda found: " " * len(found[0]), text)
    found = [*_in_blocks(joined), *_in_text(joined)]
    return sorted(found, key=lambda line: line.number)


def _in_blocks(text: str) -> list[Line]:
    found, fenced = [], False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        command = ASSIGNMENT.fullmatch(line.strip().removeprefix("$ "))
        if command and (fenced or line.startswith("    ")):
            found.append(Line(re.split(r"\s+#|\s\|\s", command["arguments"])[0].strip(), number))
    return found


def _in_text(text: str) -> list[Line]:
    prose = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return [
        Line(" ".join(found[2].split()).removeprefix("rftlab "), text.count("\n", 0, found.start()) + 1)
        for found in SPAN.finditer(prose)
    ]


def words_of(line: Line) -> list[str]:
    """The arguments as a shell gives them; three dots stand for others."""
    return [word for word in shlex.split(line.arguments) if word != "..."]
