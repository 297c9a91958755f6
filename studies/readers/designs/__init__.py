"""Read designs from configurations of trainers: prompts B, rollouts K, updates a round, and the other fields of
`KnownDesign`."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rftlab.shared.plumbing.errors import plain
from rftlab.studies.readers.designs.completions import is_script_config, script_design
from rftlab.studies.readers.designs.named import is_named_config, named_design, named_trainers
from rftlab.studies.readers.designs.ours import is_own_config, own_design
from rftlab.studies.readers.designs.trl import is_trl_config, trl_design
from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.designs.verl import is_verl_config, verl_design
from rftlab.studies.readers.run import KnownDesign

_TRAINERS: dict[str, tuple[Callable[[dict], bool], Callable[[Reader], KnownDesign]]] = {
    "verl": (is_verl_config, verl_design),
    **{name: (partial(is_named_config, name), partial(named_design, name)) for name in named_trainers()},
    "trl": (is_trl_config, trl_design),
    "CS336": (is_script_config, script_design),
    "rftlab": (is_own_config, own_design),
}
"""For each trainer, a test of whether a configuration is its own, and a function that reads the design."""


def detect_trainer(config: dict) -> str:
    """Return the trainer to which a configuration belongs; "" where it is unknown."""
    return next((name for name, (is_config, _) in _TRAINERS.items() if is_config(config)), "")


def read_design(config: dict, tool: str, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """Return the design in a configuration, and notes. tool: the trainer, where the configuration is recognised as
    nobody's; "" where it is unknown. Never raises for what a configuration holds."""
    trainer = detect_trainer(config) or tool
    if trainer not in _TRAINERS:
        return KnownDesign(), [f"the configuration is of no trainer that is known: {', '.join(_TRAINERS)}"]
    reader = Reader(config, processes)
    design = _TRAINERS[trainer][1](reader)
    return replace(design, assumed=tuple(map(plain, reader.assumed))), [plain(note) for note in reader.notes]
