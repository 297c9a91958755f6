"""A user's own configuration of TRL or verl as the starting point of advice, and what a design changes of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check
from rftlab.studies.forecast.advise import as_trl, as_verl
from rftlab.studies.forecast.advise.engines import EngineFlags
from rftlab.studies.readers.config_file import read_config
from rftlab.studies.readers.designs import design_of, tool_of_config
from rftlab.studies.readers.designs.values import Fallback, Reader, Unknown, at
from rftlab.studies.readers.run import KnownDesign

_WORDS = {"trl": as_trl, "verl": as_verl}
_REPLACED = {
    "trl": ("generation_batch_size",),
    "verl": (f"{as_verl.ACTOR}.ppo_micro_batch_size", "data.gen_batch_size"),
}
"""Settings that contradict what a design is told by."""


class Start(NamedTuple):
    """What a configuration says."""

    tool: Any
    config: dict[str, Any]
    known: KnownDesign
    notes: tuple[str, ...]
    """What could not be read, and what was assumed."""
    estimator: Estimator
    epochs: int
    minibatches: int

    def changed(self, design: Design) -> Design:
        """A design of so many prompts and rollouts with the estimator and the updates of the configuration. A group of
        one keeps its own estimator."""
        parts = self.minibatches if design.batch_size % self.minibatches == 0 else 1
        estimator = self.estimator if design.rollouts > 1 else design.estimator
        return replace(design, estimator=estimator, epochs=self.epochs, minibatches=parts)


class SettingChange(NamedTuple):
    """A setting that a design changes."""

    name: str
    old: str
    new: str


def start_of(path: Path, processes: int) -> Start:
    """The starting point in a file. Raises UserError where it is of neither trainer, or its estimator is unknown or
    none of ours. processes: GPUs, where the file does not say how many."""
    config = read_config(path)
    tool = tool_of_config(config)
    check(tool in _WORDS, f"{path} is of {tool or 'no trainer that is known'}; allowed: TRL's or verl's configuration")
    known, notes = design_of(config, "", processes)
    reader = Reader(config)
    estimator = _WORDS[tool].estimator_of(reader)
    name = "num_iterations" if tool == "trl" else f"{as_verl.ACTOR}.ppo_epochs"
    epochs = reader.stated_or("count", name, 1, _WORDS[tool].LIBRARY) or 1
    updates = known.updates_per_round or epochs
    said = dict.fromkeys((*notes, *reader.notes, *(f"assumed: {text}" for text in (*known.assumed, *reader.assumed))))
    return Start(tool, config, known, tuple(said), estimator, epochs, max(1, updates // epochs))


def changes_of(start: Start, told: EngineFlags) -> list[SettingChange]:
    """What a design changes of a configuration, in the order of its settings. A setting that is not stated has its
    trainer's default."""
    words = _WORDS[start.tool]
    found = []
    for name, new in told.flags.items():
        value = at(start.config, name)
        stated = value is not None
        old = value if stated else words.DEFAULTS.get(name)
        if isinstance(value, Unknown | Fallback) or not _same(old, new):
            shown = (
                str(value) if stated else f"not stated, {words.LIBRARY} has {old}" if old is not None else "not stated"
            )
            found.append(SettingChange(name, shown, str(new)))
    for name in _REPLACED[start.tool]:
        if at(start.config, name) is not None:
            found.append(SettingChange(name, str(at(start.config, name)), "not stated"))
    return found


def _same(old: Any, new: Any) -> bool:
    """Whether two values are one, however they are written."""
    try:
        return float(old) == float(new)
    except (TypeError, ValueError):
        return "".join(str(old).split()).lower() == "".join(str(new).split()).lower()
