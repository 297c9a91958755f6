"""Read designs by a table of names: studies/assets/trainers.toml says which setting of a trainer holds which fact."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from rftlab.studies.readers.designs.values import Reader, value_at
from rftlab.studies.readers.run import KnownDesign

_VALUES = {"prompts": "count", "batch": "count", "rollouts": "count", "responses": "count", "mini": "count",
           "minibatches": "count", "passes": "count", "rate": "rate", "kl": "real", "temperature": "real",
           "limit": "count", "model": "word", "kl_switch": "truth", "kl_off": "truth",
           "rank_switch": "truth"}  # fmt: skip
"""Kind of value that each fact has."""


@cache
def named_trainers() -> dict[str, dict[str, Any]]:
    """Return the trainers by name, each with the names of its settings."""
    text = (files("rftlab.studies") / "assets" / "trainers.toml").read_text(encoding="utf-8")
    trainers = tomllib.loads(text)
    return {name: table | {fact: _listed(table.get(fact)) for fact in _VALUES} for name, table in trainers.items()}


def _listed(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else names or []


def is_named_config(name: str, config: dict) -> bool:
    """Whether a configuration states all marks of a trainer, and the size of a batch or of a group."""
    trainer = named_trainers()[name]
    sizes = [*trainer["prompts"], *trainer["batch"], *trainer["rollouts"]]
    stated = {path for path in (*trainer["marks"], *sizes) if value_at(config, path) is not None}
    return stated >= set(trainer["marks"]) and bool(stated & set(sizes))


def named_design(name: str, config: Reader) -> KnownDesign:
    """Return the design that a trainer's configuration states."""
    trainer = named_trainers()[name]
    defaults, library = trainer.get("defaults", {}), trainer["library"]

    def stated(fact: str) -> Any:
        paths = trainer[fact]
        path = next((path for path in paths if config.stated(path)), None)
        if path is None and paths and paths[0] in defaults:
            return config.stated_or(_VALUES[fact], paths[0], defaults[paths[0]], library)
        return None if path is None else getattr(config, _VALUES[fact])(path)

    def parts(whole: int | None, by: str, size: int | None) -> int | None:
        """Return how many times a size divides a whole; None where it does not."""
        if whole and size and whole % size:
            config.notes.append(f"{whole} responses are no multiple of {by} = {size}, so that parts differ")
        return whole // size if whole and size and whole % size == 0 else None

    rollouts, batch, passes = stated("rollouts"), stated("batch"), stated("passes")
    prompts = parts(batch, trainer["rollouts"][0], rollouts) if trainer["batch"] else stated("prompts")
    minibatches = trainer.get("updates") or stated("minibatches")
    if minibatches is None and prompts and trainer["mini"] and (mini := stated("mini")):
        minibatches = -(-prompts // mini)
    if minibatches is None and prompts and rollouts and trainer["responses"]:
        minibatches = parts(prompts * rollouts, trainer["responses"][0], stated("responses"))
    unless = trainer.get("note_unless")
    if "note" in trainer and not (unless and config.stated(unless)):
        config.notes.append(trainer["note"])
    return KnownDesign(
        prompts=prompts,
        rollouts=rollouts,
        updates_per_round=minibatches * (passes or 1) if minibatches and (passes or not trainer["passes"]) else None,
        learning_rate=stated("rate"),
        advantage=trainer.get("always") or _advantage(trainer, config),
        loss=_clip(trainer, config),
        kl_coefficient=0.0 if stated("kl_switch") is False or stated("kl_off") else stated("kl"),
        temperature=stated("temperature"),
        response_limit=stated("limit"),
        adapter_rank=_rank(trainer, config, stated("rank_switch")),
        model=stated("model"),
    )


def _advantage(trainer: dict[str, Any], config: Reader) -> str | None:
    """Return the advantage for all of its settings together, else for the first of them. Where a trainer has one such
    setting, a value that the table lacks is kept as the trainer's own name."""
    paths, known = _listed(trainer["advantage"]), trainer["advantages"]
    first, *others = paths
    default = trainer.get("defaults", {}).get(first)
    main = config.stated_or("word", first, default, trainer["library"]) if default else config.word(first)
    values = [main, *map(config.word, others)]
    joined = "/".join(str(value).lower() for value in values)
    return known.get(joined) or known.get(main) or (None if others else main)


def _clip(trainer: dict[str, Any], config: Reader) -> str | None:
    widths = [width for path in trainer.get("clip", ()) if (width := config.real(path)) is not None]
    return f"clip {'/'.join(f'{width:g}' for width in widths)}" if widths else None


def _rank(trainer: dict[str, Any], config: Reader, is_on: bool | None) -> int | None:
    """Return the rank of adapters, 0 where the switch is off; None where a trainer with a switch does not state it."""
    if "rank_switch" in trainer and trainer["rank_switch"] and not is_on:
        return None if is_on is None else 0
    return next((config.count(path, 0) for path in _listed(trainer.get("rank"))), None)
