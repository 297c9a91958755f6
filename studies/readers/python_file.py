"""Settings of a trainer in a Python file: keywords of a call such as GRPOConfig(...), or verl's words in texts. The
file is parsed, not run.

A name is known where the file assigns it exactly once, at its top level and under no condition, to a constant.
"""

import ast
import re
import warnings
from collections import Counter

from rftlab.studies.readers.designs.values import Fallback, Unknown
from rftlab.studies.readers.launch import TRL, Launch, Settings, settings_of

UNSET, TWICE = "which the file does not set", "which the file sets more than once"
ELSEWHERE, COMPUTED = "which the file sets inside of something else", "which cannot be told without running the file"
_SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w.]{0,100})=(.{1,200})")


def python_settings(text: str) -> Settings:
    """Settings of a Python file. Raises ValueError for one that is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        return _File(tree).settings()
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"it is no Python: {type(error).__name__}") from None


class _File:
    def __init__(self, tree: ast.Module):
        self.nodes = list(ast.walk(tree))
        stored = [node.id for node in self.nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
        bound = [node.arg for node in self.nodes if isinstance(node, ast.arg)]
        self.times = Counter(stored + bound)
        self.values = {}
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign) and len(targets) == 1 and isinstance(targets[0], ast.Name):
                self.values[targets[0].id] = node.value

    def settings(self) -> Settings:
        """Keywords of TRL's, of all calls that have some; verl's settings in texts where there is none."""
        launches = [launch for node in self.nodes if (launch := self._launch(node))]
        found = settings_of(launches, True)
        if found:
            return found
        dotted = {}
        for node in self.nodes:
            if isinstance(node, ast.Constant | ast.JoinedStr):
                setting = _SETTING.fullmatch(self._text(node)) if not _is_number(node) else None
                if setting:
                    unknown = isinstance(node, ast.JoinedStr)
                    dotted[setting[1]] = Unknown(setting[2], COMPUTED) if unknown else setting[2]
        return settings_of([Launch({}, dotted, [])], False)

    def _launch(self, node: ast.AST) -> Launch | None:
        """Settings of a call, of a dictionary, or of an assignment to an attribute."""
        hidden: list[str] = []
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Call):
            pairs = [(word.arg, word.value) for word in node.keywords if word.arg]
            hidden = [f"**{_written(word.value)}" for word in node.keywords if word.arg is None]
        elif isinstance(node, ast.Dict):
            pairs = [(key.value, value) for key, value in zip(node.keys, node.values, strict=True)
                     if isinstance(key, ast.Constant) and isinstance(key.value, str)]  # fmt: skip
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
            pairs = [(node.targets[0].attr, node.value)]
        if not {name for name, _ in pairs} & set(TRL):
            return None
        return Launch({}, {name: self._value(value) for name, value in pairs}, hidden)

    def _value(self, node: ast.expr):
        """A constant, a name that stands for one, or a default of the environment; anything else is unknown."""
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Call):
            return self._from_environment(node)
        constant = _constant(node)
        return Unknown(_written(node), COMPUTED) if constant is _NONE else constant

    def _named(self, name: str):
        if name not in self.times:
            return Unknown(name, UNSET)
        if self.times[name] > 1:
            return Unknown(name, TWICE)
        node = self.values.get(name)
        if node is None:
            return Unknown(name, ELSEWHERE)
        constant = self._from_environment(node) if isinstance(node, ast.Call) else _constant(node)
        if constant is _NONE or isinstance(constant, Unknown):
            return Unknown(name, COMPUTED)
        return constant

    def _from_environment(self, node: ast.Call):
        """The default of os.environ.get("N", 16), of os.getenv, and of a number made of either."""
        written, inner = _written(node), node
        if isinstance(node.func, ast.Name) and node.func.id in ("int", "float") and len(node.args) == 1:
            inner = node.args[0] if isinstance(node.args[0], ast.Call) else node
        if _written(inner.func) in ("os.environ.get", "os.getenv", "environ.get", "getenv") and len(inner.args) == 2:
            name, default = map(_constant, inner.args)
            if isinstance(name, str) and default is not _NONE:
                return Fallback(str(default), f"unless {name[:80]} is set in the environment")
        return Unknown(written, COMPUTED)

    def _text(self, node: ast.Constant | ast.JoinedStr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value) if isinstance(node.value, str) else ""
        parts = [f"{{{_written(part.value)}}}" if isinstance(part, ast.FormattedValue) else part.value
                 for part in node.values if isinstance(part, ast.FormattedValue | ast.Constant)]  # fmt: skip
        return "".join(map(str, parts))


_NONE = object()
"""No constant."""


def _constant(node: ast.expr):
    """The value of a constant, of a negative number among them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = node.operand.value if isinstance(node.operand, ast.Constant) else None
        return -inner if isinstance(inner, int | float) else _NONE
    return _NONE


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)


def _written(node: ast.AST) -> str:
    """An expression as it may be written, cut."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        return f"{_written(node.value)}.{node.attr}"
    return ast.unparse(node)[:80]
