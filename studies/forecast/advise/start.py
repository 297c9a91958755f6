"""A user's own configuration of TRL or verl as the starting point of advice, and what a design changes of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check
from rftlab.studies.forecast.advise import as_trl, as_verl
from rftlab.studies.forecast.advise.engines import EngineFlags
from rftlab.studies.readers.designs import detect_trainer, read_design
from rftlab.studies.readers.designs.config_file import read_config
from rftlab.studies.readers.designs.values import Fallback, Reader, Unknown, value_at
from rftlab.studies.readers.run import KnownDesign

_WORDS: dict[str, tuple[Any, Callable[[Reader], Estimator]]] = {
    "trl": (as_trl, as_trl.read_trl_estimator),
    "verl": (as_verl, as_verl.read_verl_estimator),
}
"""By trainer: its defaults, and what reads its estimator."""
_REPLACED = {
    "trl": ("generation_batch_size",),
    "verl": (f"{as_verl.ACTOR}.ppo_micro_batch_size", "data.gen_batch_size"),
}
"""Settings that contradict what a design is told by."""


class Start(NamedTuple):
    """The content of a configuration."""

    tool: Any
    config: dict[str, Any]
    known: KnownDesign
    notes: tuple[str, ...]
    """Values that could not be read, and assumptions."""
    estimator: Estimator
    epochs: int
    minibatches: int

    def changed(self, design: Design) -> Design:
        """A design of so many prompts and rollouts with the estimator and the updates of the configuration. A group of
        one keeps its own estimator."""
        parts = self.minibatches if design.batch_size % self.minibatches == 0 else 1
        estimator = self.estimator if design.rollouts > 1 else design.estimator
        return replace(design, estimator=estimator, epochs=self.epochs, minibatches=parts)


def read_start(path: Path, processes: int) -> Start:
    """The starting point in a file. Raises UserError where it is of neither trainer, or its estimator is unknown or
    none of ours. processes: GPUs, where the file does not say how many."""
    config = read_config(path)
    tool = detect_trainer(config)
    check(tool in _WORDS, f"{path} is of {tool or 'no trainer that is known'}; allowed: TRL's or verl's configuration")
    words, read = _WORDS[tool]
    known, notes = read_design(config, "", processes)
    reader = Reader(config)
    estimator = read(reader)
    name = "num_iterations" if tool == "trl" else f"{as_verl.ACTOR}.ppo_epochs"
    epochs = reader.stated_or("count", name, 1, words.LIBRARY) or 1
    updates = known.updates_per_round or epochs
    said = dict.fromkeys((*notes, *reader.notes, *(f"assumed: {text}" for text in (*known.assumed, *reader.assumed))))
    return Start(tool, config, known, tuple(said), estimator, epochs, max(1, updates // epochs))


def list_changes(start: Start, told: EngineFlags) -> list[tuple[str, str, str]]:
    """Return the changes of a design to a configuration, in the order of its settings: name, old and new value. A
    setting that is not stated has its trainer's default."""
    words, _ = _WORDS[start.tool]
    changes = []
    for name, new in told.flags.items():
        value = value_at(start.config, name)
        old = words.DEFAULTS.get(name) if value is None else value
        if isinstance(value, Unknown | Fallback) or not _same(old, new):
            default = "" if old is None else f", {words.LIBRARY} has {old}"
            changes.append((name, f"not stated{default}" if value is None else str(value), str(new)))
    stated = (name for name in _REPLACED[start.tool] if value_at(start.config, name) is not None)
    return changes + [(name, str(value_at(start.config, name)), "not stated") for name in stated]


def _same(old: Any, new: Any) -> bool:
    """Whether two values are one, however they are written."""
    try:
        return float(old) == float(new)
    except (TypeError, ValueError):
        return "".join(str(old).split()).lower() == "".join(str(new).split()).lower()
