"""Find the shape of a model, which may be on no list: from a folder, a config.json, a known name, one in the local
cache of the hub, or a number of parameters."""

import os
import re
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from rftlab.llm.budget.shapes import FAMILIES, KNOWN, Shape, check_config, shape_from
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import read_json

REAL = KNOWN | {
    "HuggingFaceTB/SmolLM2-360M": Shape(49152, 960, 32, 15, 5, 64, 2560, tied=True),
    "Qwen/Qwen3-0.6B": Shape(151936, 1024, 28, 16, 8, 128, 3072, tied=True),
    "Qwen/Qwen2.5-1.5B": Shape(151936, 1536, 28, 12, 2, 128, 8960, tied=True, biases=2048),
    "HuggingFaceTB/SmolLM2-1.7B": Shape(49152, 2048, 24, 32, 32, 64, 8192, tied=True),
    "Qwen/Qwen3-1.7B": Shape(151936, 2048, 28, 16, 8, 128, 6144, tied=True),
    "Qwen/Qwen2.5-3B": Shape(151936, 2048, 36, 16, 2, 128, 11008, tied=True, biases=2560),
    "meta-llama/Llama-3.2-3B": Shape(128256, 3072, 28, 24, 8, 128, 8192, tied=True),
    "Qwen/Qwen3-4B": Shape(151936, 2560, 36, 32, 8, 128, 9728, tied=True),
    "Qwen/Qwen2.5-7B": Shape(152064, 3584, 28, 28, 4, 128, 18944, tied=False, biases=4608),
    "meta-llama/Llama-3.1-8B": Shape(128256, 4096, 32, 32, 8, 128, 14336, tied=False),
    "Qwen/Qwen2.5-14B": Shape(152064, 5120, 48, 40, 8, 128, 13824, tied=False, biases=7168),
    "Qwen/Qwen2.5-32B": Shape(152064, 5120, 64, 40, 8, 128, 27648, tied=False, biases=7168),
    "meta-llama/Llama-3.1-70B": Shape(128256, 8192, 80, 64, 8, 128, 28672, tied=False),
    "meta-llama/Llama-3.1-405B": Shape(128256, 16384, 126, 128, 8, 128, 53248, tied=False),
}
"""Models whose shape needs no download, from the config.json of each on the hub. Norms of queries and keys (Qwen 3) are
left out: they are a millionth of the parameters."""
NEAR = 1.25
"""Largest ratio of parameters at which a number of parameters takes the shape of a real model."""
ALLOWED = (
    "a folder with a config.json, that file, parameters as 7e9 or 7B, a name in the hub's local cache, or "
    f"{', '.join(REAL)}"
)
_VARIANTS = re.compile(r"-(?:Instruct|Base)$")
_HUB = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)([MBmb]?)")
_NAMED_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?[bB])(?![\w.])")
_UNITS = {"": 1.0, "m": 1e6, "b": 1e9}
MIN, MAX = 1e8, 1e12
"""Smallest and largest number of parameters that a user may give."""
HEAD_DIM, VOCABULARY, WIDER, KV, STEP = 128, 128_000, 3.5, 4, 64
"""Assumptions where only a number of parameters is given: width of a head, entries of the vocabulary, width of the
feed-forward layer over that of the hidden state, query heads to a key head, and steps of the feed-forward width. There
is a layer for each head, as in Llama 2 7B (32 of both) and nearly so in others of its kind."""


class NamedShape(NamedTuple):
    """Model as far as a plan needs it."""

    name: str
    shape: Shape
    note: str
    """Sentence on what was assumed of the shape; "" for nothing."""
    path: str
    """Path or name by which an engine finds the model."""


def shape_named(text: str) -> NamedShape:
    """Return the shape of a model that a user named, without asking the hub. Raises UserError where it is unknown."""
    path = Path(text)
    if path.is_dir() or path.is_file():
        return _from_file(text, path / "config.json" if path.is_dir() else path)
    name = next((name for name in REAL if text in (name, _VARIANTS.sub("", name))), _VARIANTS.sub("", text))
    if name in REAL:
        return NamedShape(text, REAL[name], "", text)
    cached = _cached(text)
    if cached is not None:
        return _from_file(text, cached)._replace(path=text)
    size = _SIZE.fullmatch(text)
    if size is None:
        raise UserError(f"model = {text!r}; allowed: {ALLOWED}")
    parameters = float(size[1]) * _UNITS[size[2].lower()]
    check(MIN <= parameters <= MAX, f"model = {text!r}: {parameters:.3g} parameters; allowed: {MIN:g} to {MAX:g}")
    near, shape = min(REAL.items(), key=lambda pair: abs(log(pair[1].parameters / parameters)))
    if not 1 / NEAR <= shape.parameters / parameters <= NEAR:
        near, shape = "", sized_shape(parameters)
    like = f"that of {near}, with {shape.parameters / 1e9:.3g} billion parameters: " if near else ""
    note = (
        f"shape assumed: {like}{shape.layers} layers of {shape.hidden}, {shape.heads} heads, "
        f"feed-forward {shape.ffn}, vocabulary {shape.vocabulary:,}"
    )
    return NamedShape(text, shape, note, "MODEL")


def shape_in(name: str) -> NamedShape | None:
    """Return the shape of a run's model, from its name or the size in it; None where it tells neither."""
    size, owner = _NAMED_SIZE.search(name), name.partition("-")[0].rstrip(".0123456789")
    for text in (name, f"{owner}/{name}", *([size[1]] if size else [])) if name else ():
        try:
            return shape_named(text)
        except UserError:
            continue
    return None


def _cached(name: str) -> Path | None:
    """Return config.json of a model in the hub's local cache; None where it is not there. Nothing is downloaded."""
    if not _HUB.fullmatch(name):
        return None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    root = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
    try:
        current = (root / "refs" / "main").read_text(encoding="utf-8")[:64].strip()
    except (OSError, ValueError):
        return None
    path = root / "snapshots" / current / "config.json"
    return path if re.fullmatch(r"[0-9a-f]+", current) and path.is_file() else None


def _from_file(text: str, path: Path) -> NamedShape:
    """Return the shape in a config.json. An unknown kind of model counts as a llama, unless it has experts."""
    try:
        config: Any = read_json(path.resolve())
    except (OSError, ValueError) as error:
        raise UserError(f"model = {text!r}: {str(error)[:200]}; allowed: {ALLOWED}") from None
    check(isinstance(config, dict), f"model = {text!r} holds no configuration; allowed: {ALLOWED}")
    check_config(text, config)
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


def sized_shape(parameters: float) -> Shape:
    """Return a shape of so many parameters with the usual proportions. The feed-forward width makes the number right,
    and the number of heads is the one that brings this width nearest to WIDER times the hidden state's."""
    shapes = []
    for heads in (*range(1, 16), *range(16, 513, 8)):  # vLLM splits heads over GPUs
        hidden = heads * HEAD_DIM
        tied = hidden < 2048  # small models share embedding and head
        bare = Shape(VOCABULARY, hidden, heads, heads, max(1, heads // KV), HEAD_DIM, 0, tied)
        ffn = max(1, round((parameters - bare.parameters) / (3 * heads * hidden * STEP))) * STEP
        shapes.append(bare._replace(ffn=ffn))
    return min(shapes, key=lambda shape: abs(shape.ffn / shape.hidden - WIDER))
