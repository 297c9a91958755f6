"""What a field of a configuration is, in the words of `--help`: the docstring below it."""

import ast
import inspect
from functools import cache
from itertools import pairwise
from textwrap import dedent


@cache
def sentences_of(kind: type) -> dict[str, str]:
    """Docstrings of the fields that a class itself declares, each as one line."""
    body = next(node for node in ast.parse(dedent(inspect.getsource(kind))).body if isinstance(node, ast.ClassDef)).body
    found = {}
    for field, below in pairwise(body):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            found[ast.unparse(field.target)] = " ".join(text.value.split())
    return found


def help_of(kind: type, field: str) -> str:
    """The docstring of a field. Raises KeyError where it has none."""
    return sentences_of(kind)[field]
