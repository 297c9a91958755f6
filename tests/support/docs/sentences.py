"""The prose of the code: docstrings and messages of every module, held to the rules of pages.

python -m tests.support.docs.sentences [FOLDER...]    # what breaks a rule, with its place
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.docs import prose

ROOMS = ("shared", "sim", "llm", "studies", "rftlab", "dev")
WORDS = {rule: instead for rule, instead in prose.WORDS.items() if not rule.startswith("nuisances")}
"""Those of pages. Nuisance is a parameter of the simulator, whose name the code needs."""
ORDER = {
    r"^(What|Whatever|How (?!much|many|often|long|far|fast)\w+) [^?]*[^?]$": "begins with a clause",
    **{rule: name for rule, name in prose.ORDER.items() if "Whether" not in rule},
}
"""Those of pages, but a field may begin with "Whether" or "How many"."""
SHORTEST, LONGEST = 5, 50
"""Words of a string that counts as a message, and of a sentence, which may hold a formula."""


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, also those below a field, and of every longer string, with x for values."""
    docs = {id(node.value): node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if id(node) in docs or len(text.split()) >= SHORTEST:
            yield node.lineno, inspect.cleandoc(text)


def sentences(text: str) -> Iterator[str]:
    """Sentences of a docstring or message, tables and definitions aside: their lines have gaps, or are indented."""
    for part in re.split(r"\n\s*\n|\n(?=\* )", text):
        lines = [line for line in part.splitlines() if not re.search(r"\S {2,}\S|^ {2,}(?! )\S* {2,}|^ {4}|<\w+", line)]
        yield from prose.sentences(" ".join(lines))


def faults(text: str) -> list[str]:
    """What in a docstring or message breaks a rule, a line each."""
    broken = []
    for line in sentences(text):
        length = len(line.split())
        broken += [f"{length} words: {line}"] * (length > LONGEST)
        broken += [f"{name}: {line}" for rule, name in ORDER.items() if re.search(rule, line)]
        broken += [f"{name}: {line}" for rule, name in WORDS.items() if re.search(rf"(?i)\b({rule})\b", line)]
    return broken


def places(rooms: tuple[str, ...] = ROOMS) -> Iterator[str]:
    """Every fault of the code, with its file and line."""
    for path in sorted(path for room in rooms for path in (prose.ROOT / room).rglob("*.py")):
        for line, text in strings(ast.parse(path.read_text())):
            for fault in faults(text):
                yield f"{path.relative_to(prose.ROOT)}:{line}: {fault}"


if __name__ == "__main__":
    for fault in places(tuple(map(str, map(Path, sys.argv[1:]))) or ROOMS):
        print(fault)
