"""Make the formulas of a token for tensors, from the source of the kernels that compute them for numbers.

`shared` writes surrogates, penalties, shares and a mask's test as functions of numbers: choices between values,
minimum, maximum, exponentials. For tensors only these operations need other functions. `formulas` substitutes them,
once for each number type. An `if` statement stays one, because its test is about the estimator, which consists of plain
numbers.
"""

import ast
import functools
import inspect
import math
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from rftlab.shared.aggregation import response_share
from rftlab.shared.correction import importance_weight
from rftlab.shared.kl import anchor_ratio, check_kl, kl_penalty, kl_penalty_at
from rftlab.shared.mask import diverged
from rftlab.shared.objective import check_level, weighted_penalty
from rftlab.shared.prepare import length_penalty
from rftlab.shared.surrogate import clip, ratio_at, surrogate, through_ratio

SOURCES = (
    surrogate,
    clip,
    ratio_at,
    through_ratio,
    kl_penalty,
    kl_penalty_at,
    check_kl,
    anchor_ratio,
    weighted_penalty,
    diverged,
    check_level,
    length_penalty,
    response_share,
    importance_weight,
)
_WORDS = {"min": "_smaller", "max": "_larger"}
_JOIN: dict[type, type] = {ast.And: ast.BitAnd, ast.Or: ast.BitOr}


class _Words(ast.NodeTransformer):
    """Replaces the operations that tensors do not have."""

    def visit_If(self, node: ast.If) -> ast.If:
        """Visit an `if` statement: its test is about the estimator and stays."""
        node.body = [self.visit(part) for part in node.body]
        node.orelse = [self.visit(part) for part in node.orelse]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Replace `a if c else b`: both are computed where c differs from token to token, else only the chosen one."""
        test, yes, no = (self.visit(part) for part in (node.test, node.body, node.orelse))
        return _call("_either", test, _later(yes), _later(no))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Replace `a and b` and `a or b`."""
        return _joined(_JOIN[type(node.op)](), [self.visit(part) for part in node.values])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Replace `a < b < c` by two comparisons."""
        parts = [self.visit(part) for part in (node.left, *node.comparators)]
        pairs: list[ast.expr] = [
            ast.Compare(a, [op], [b]) for a, op, b in zip(parts, node.ops, parts[1:], strict=False)
        ]
        return _joined(ast.BitAnd(), pairs)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace min and max; the minimum of a maximum is one operation on a tensor."""
        parts, name = [self.visit(part) for part in node.args], getattr(node.func, "id", "")
        inner = parts[0] if parts else None
        if name == "min" and isinstance(inner, ast.Call) and getattr(inner.func, "id", "") == "_larger":
            return _call("_within", *inner.args, parts[1])
        return _call(_WORDS[name], *parts) if name in _WORDS else ast.Call(node.func, parts, [])


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _later(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _joined(op: ast.operator, parts: list[ast.expr]) -> ast.expr:
    return functools.reduce(lambda a, b: ast.BinOp(a, op, b), parts)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _smaller(a, b):
    if _is_tensor(a) and _is_tensor(b):
        return torch.minimum(a, b)
    return a.clamp(max=b) if _is_tensor(a) else b.clamp(max=a) if _is_tensor(b) else min(a, b)


def _larger(a, b):
    if _is_tensor(a) and _is_tensor(b):
        return torch.maximum(a, b)
    return a.clamp(min=b) if _is_tensor(a) else b.clamp(min=a) if _is_tensor(b) else max(a, b)


def _within(value, low, high):
    known = _is_tensor(value) and not _is_tensor(low) and not _is_tensor(high)
    return value.clamp(low, high) if known else _smaller(_larger(value, low), high)


def _exp(value):
    return value.exp() if _is_tensor(value) else math.exp(value)


def _either_in(dtype: torch.dtype) -> Callable:
    """Return the function that chooses between two values, which are given as functions without arguments."""

    def either(condition, yes, no):
        if not _is_tensor(condition):
            return yes() if condition else no()
        return _chosen(condition, yes(), no())

    def _chosen(condition, yes, no):
        if isinstance(yes, tuple):
            return tuple(_chosen(condition, a, b) for a, b in zip(yes, no, strict=True))
        if not _is_tensor(yes) and not _is_tensor(no):
            yes = torch.full((), yes, dtype=dtype, device=condition.device)
        return torch.where(condition, yes, no)

    return either


class _Names:
    """Stands for `math` or `np`: a function with a tensor argument is torch's function of that name."""

    def __getattr__(self, name: str) -> Any:
        known = getattr(math, name, None)
        if known is not None and not callable(known):
            return known

        def call(value):
            return getattr(torch, name)(value) if _is_tensor(value) else getattr(math, name)(value)

        return call


def _same(value):
    return value


@functools.cache
def formulas(dtype: torch.dtype) -> SimpleNamespace:
    """Return the functions of `SOURCES` for tensors of a number type, under their names."""
    made: dict[str, Any] = {}
    words: dict[str, Any] = {"_smaller": _smaller, "_larger": _larger, "_within": _within, "_either": _either_in(dtype)}
    words |= {"exp": _exp, "math": _Names(), "np": _Names(), "float": _same, "round": torch.round}
    for source in SOURCES:
        function = getattr(source, "py_func", source)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        assert isinstance(tree.body[0], ast.FunctionDef)
        tree.body[0].decorator_list = []
        place = {**function.__globals__, **words}
        code = compile(ast.fix_missing_locations(_Words().visit(tree)), inspect.getfile(function), "exec")
        exec(code, place)  # the code is our own source with other functions
        made[function.__name__] = place[function.__name__]
    for function in made.values():
        function.__globals__.update(made)
    return SimpleNamespace(**made)
