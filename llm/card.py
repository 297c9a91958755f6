"""The card of an exported model: how it was trained, and what was measured."""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd

from rftlab.llm.stored import StoredRun
from rftlab.shared.plumbing.errors import plain
from rftlab.shared.plumbing.folders import FILE, path_kind

COLUMNS = ("round", "rollouts", "tokens", "reward", "train_pass_at_1", "test_pass_at_1")
"""Of the curve, as far as a table has them."""
ROWS = 12


def model_card(run: StoredRun, done: int, adapter: bool) -> str:
    """README.md of a checkpoint's folder, in Markdown with the fields that a hub reads."""
    config, source = _without_paths(run.config), _name(run.config["model"]["source"])
    fields = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rftlab", "reinforcement-learning"],
    } | ({"base_model": source} if _is_hub_name(source) else {})
    kind = "Adapters for" if adapter else "Weights of"
    return "\n".join(
        [
            "---",
            *(f"{name}: {json.dumps(value)}" for name, value in fields.items()),  # JSON is YAML
            "---",
            "",
            f"# {_code(source)} after {done} rounds of reinforcement fine-tuning",
            "",
            f"{kind} {_code(source)}, trained with rftlab {_version()} on the task {_code(config['task']['name'])} for "
            f"{done} of {run.rounds} rounds, seed {_code(config['seed'])}.",
            "",
            "## Design",
            "",
            "| choice | value |",
            "|---|---|",
            *(f"| {_code(name)} | {_code(value)} |" for name, value in _choices(config)),
            "",
            "## Curve",
            "",
            *_curve(run, done),
            "",
            "Pass@1 is that of one sampled response to each question, under the strict rule of the task. The whole "
            "configuration:",
            "",
            "```json",
            json.dumps(config, indent=1),  # ASCII, one line for a line of it
            "```",
            "",
        ]
    )


def _name(source: Any) -> str:
    """The name of a source; for a path on this machine its last part."""
    text = str(source)
    return text if _is_hub_name(text) and not Path(text).exists() else Path(text).name


def _without_paths(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration whose sources are names."""
    places = {"model": ("source",), "task": ("source", "test_source")}
    return config | {
        part: config[part] | {key: _name(config[part][key]) for key in keys if config[part].get(key)}
        for part, keys in places.items()
    }


def _is_hub_name(source: str) -> bool:
    return (
        source.count("/") == 1 and source.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
    )


def _version() -> str:
    try:
        return version("rftlab")
    except PackageNotFoundError:
        return "(unknown)"


def _choices(config: dict[str, Any]) -> list[tuple[str, Any]]:
    """The first settings that a reader asks for, by dotted names; estimators flat."""
    settings = [(name, value) for name, value in _flat(config["design"], "") if value not in (None, (), [], "")]
    settings += [(f"optimizer.{name}", value) for name, value in config["optimizer"].items()]
    settings += [(f"lora.{name}", value) for name, value in config["lora"].items() if config["lora"].get("rank")]
    settings += [(f"rewards.{name}", f"weight {own['weight']}") for name, own in config.get("rewards", {}).items()]
    return settings + [(name, config[name]) for name in ("temperature", "top_p", "top_k", "min_p") if name in config]


def _flat(facts: Any, prefix: str) -> list[tuple[str, Any]]:
    if not isinstance(facts, dict):
        return [(prefix, facts)]
    return [pair for name, value in facts.items() for pair in _flat(value, f"{prefix}.{name}" if prefix else name)]


def _curve(run: StoredRun, done: int) -> list[str]:
    """A table of a few evaluations up to a round, the first and the last among them."""
    place = run.folder / "curve.parquet"
    try:
        frame = pd.read_parquet(place) if path_kind(place) == FILE else pd.DataFrame()
        frame = frame[frame["round"] <= done] if "round" in frame else frame
    except (OSError, ValueError, TypeError):
        frame = pd.DataFrame()
    names = [name for name in COLUMNS if name in frame and frame[name].dtype.kind in "if"]
    if not names or not len(frame):
        return ["None was found beside the weights."]
    every = max(1, -(-len(frame) // ROWS))
    shown = frame.iloc[sorted({*range(0, len(frame), every), len(frame) - 1})]
    rows = [
        " | ".join(f"{value:.3f}" if isinstance(value, float) else f"{value}" for value in row)
        for row in shown[names].itertuples(index=False)
    ]
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names), *(f"| {row} |" for row in rows)]


def _code(value: Any) -> str:
    """Any text as code of one line, in a table too."""
    text = plain(str(value)).replace("`", "'").replace("|", "/")
    return f"`{text[:200] or ' '}`"
