"""The shape of a model that may be on no list: a folder, a config.json, a known name, or a number of parameters."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from rftlab.llm.budget.shapes import FAMILIES, KNOWN, Shape, check_numbers, shape_from
from rftlab.shared.errors import UserError, check
from rftlab.shared.folders import read_json

ALLOWED = f"a folder with a config.json, that file, parameters as 7e9 or 7B, or {', '.join(KNOWN)}"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)([MBmb]?)")
_UNITS = {"": 1.0, "m": 1e6, "b": 1e9}
MIN, MAX = 1e8, 1e12
"""Parameters that a number may name."""
HEAD_DIM, VOCABULARY, WIDER, KV, STEP = 128, 128_000, 3.5, 4, 64
"""What is assumed where only a number of parameters is given: width of a head, entries of the vocabulary, how much
wider the feed-forward layer is, query heads to a key head, steps of that layer's width. A layer for each head, as in
Llama 2 7B (32 of both) and nearly so in others of its kind."""


class NamedShape(NamedTuple):
    """A model as far as a plan needs it."""

    name: str
    shape: Shape
    note: str
    """What was assumed; "" for nothing."""
    path: str
    """Where an engine finds it."""


def shape_named(text: str) -> NamedShape:
    """The shape of what a user named. Raises UserError where it cannot be told; asks no hub."""
    path = Path(text)
    if path.is_dir() or path.is_file():
        return _from_file(text, path / "config.json" if path.is_dir() else path)
    if text in KNOWN:
        return NamedShape(text, KNOWN[text], "", text)
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UserError(f"model = {text!r}; allowed: {ALLOWED}")
    parameters = float(found[1]) * _UNITS[found[2].lower()]
    check(MIN <= parameters <= MAX, f"model = {text!r}: {parameters:.3g} parameters; allowed: {MIN:g} to {MAX:g}")
    shape = shape_of_size(parameters)
    note = (
        f"shape assumed: {shape.layers} layers of {shape.hidden}, {shape.heads} heads, "
        f"feed-forward {shape.ffn}, vocabulary {shape.vocabulary:,}"
    )
    return NamedShape(text, shape, note, "MODEL")


def _from_file(text: str, path: Path) -> NamedShape:
    """A config.json. A kind of model that is not known counts as a llama, unless it has experts."""
    try:
        config: Any = read_json(path.resolve())
    except (OSError, ValueError) as error:
        raise UserError(f"model = {text!r}: {str(error)[:200]}; allowed: {ALLOWED}") from None
    check(isinstance(config, dict), f"model = {text!r} holds no configuration; allowed: {ALLOWED}")
    check_numbers(text, config)
    kind, note = config.get("model_type"), ""
    experts = [name for name in config if "expert" in name and config[name] not in (None, 0, 1)]
    check(
        not experts,
        f"model = {text!r} has {experts[:1]}: a mixture of experts, which is not planned; allowed: a dense model",
    )
    if kind not in FAMILIES:
        config = config | {"model_type": FAMILIES[0]}
        note = f"model_type {str(kind)[:40]!r} is not known: counted as a {FAMILIES[0]} of its sizes"
    return NamedShape(text, shape_from(text, config), note, str(path.parent))


def shape_of_size(parameters: float) -> Shape:
    """A shape of so many parameters, of the usual proportions: the feed-forward layer is as wide as makes the number
    right, and the heads are as many as bring it nearest to WIDER times the hidden state."""
    heads = (*range(1, 16), *range(16, 513, 8))  # vLLM splits heads over GPUs
    return min(
        (_proportioned(count, parameters) for count in heads), key=lambda shape: abs(shape.ffn / shape.hidden - WIDER)
    )


def _proportioned(heads: int, parameters: float) -> Shape:
    """The shape of so many heads whose parameters are nearest to a number."""
    hidden = heads * HEAD_DIM
    tied = hidden < 2048  # small models share embedding and head
    bare = Shape(VOCABULARY, hidden, heads, heads, max(1, heads // KV), HEAD_DIM, 0, tied)
    ffn = max(1, round((parameters - bare.parameters) / (3 * heads * hidden * STEP))) * STEP
    return bare._replace(ffn=ffn)
