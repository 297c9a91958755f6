"""Model and data set of a run, as the folder of its model names them: TRL's arguments hold neither.

PEFT writes the base model to adapter_config.json, TRL to the front of its model card, transformers before version 5 to
config.json. Where no file names the model, config.json still tells its shape.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.folders import FILE, kind_of, read_json
from rftlab.studies.readers.designs.values import word

ADAPTER, CONFIG, CARD = "adapter_config.json", "config.json", "README.md"
LARGEST = 1 << 20
"""Bytes of a file that is read."""
SHAPE = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_FRONT = re.compile(r"---\r?\n(.{0,20000}?)\n---", re.DOTALL)
_STATED = {"model_name_or_path": "base_model", "dataset_name": "datasets"}
"""What the front of a model card calls our facts."""


def model_facts(folders: Iterable[Path]) -> dict[str, Any]:
    """What files say, by the names of TRL's script arguments: model_name_or_path, dataset_name; model_shape where no
    file names the model. Of several folders the first that states a fact decides. A file that cannot be read says
    nothing: it belongs to the model, not to the log."""
    facts: dict[str, Any] = {}
    shapes: list[dict[str, Any]] = []
    for folder in folders:
        adapter, config = (_object(folder / name) for name in (ADAPTER, CONFIG))
        card = _front_of(folder / CARD)
        names = (adapter.get("base_model_name_or_path"), card.get("model_name_or_path"), config.get("_name_or_path"))
        stated = {
            "model_name_or_path": next((name for name in map(word, names) if name), None),
            "dataset_name": word(card.get("dataset_name")),
        }
        facts = {name: value for name, value in stated.items() if value} | facts
        shapes += [shape] if (shape := {name: config[name] for name in SHAPE if name in config}) else []
    if "model_name_or_path" not in facts and shapes:
        facts["model_shape"] = shapes[0]
    return facts


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        value = read_json(path) if kind_of(path) == FILE and path.stat().st_size <= LARGEST else None
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _front_of(path: Path) -> dict[str, str]:
    """Of the lines `key: value` before the text of a model card, those of `_STATED`; several data sets as one text."""
    try:
        text = path.read_text("utf-8", "replace") if kind_of(path) == FILE and path.stat().st_size <= LARGEST else ""
    except OSError:
        return {}
    front = _FRONT.match(text)
    values: dict[str, list[str]] = {}
    key = ""
    for line in front[1].splitlines() if front else ():
        if line.startswith(("- ", "  - ")):
            values.setdefault(key, []).append(line.strip()[2:])
        else:
            key, _, value = line.partition(":")
            values[key] = [value] if value.strip() else []
    cleaned = {key: sorted(one.strip().strip("'\"") for one in parts) for key, parts in values.items()}
    return {name: ", ".join(cleaned[key]) for name, key in _STATED.items() if cleaned.get(key)}
