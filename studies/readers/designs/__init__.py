"""From the configuration of a trainer to what we call a design: prompts B, rollouts K, updates a round, and the
rest."""

from dataclasses import replace

from rftlab.shared.plumbing.errors import plain
from rftlab.studies.readers.designs import ours, trl, verl
from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.run import KnownDesign

_READERS = {
    "verl": verl,
    "trl": trl,
    "rftlab": ours,
}


def tool_of_config(config: dict) -> str:
    """Whose configuration this is; "" where that cannot be told."""
    return next((tool for tool, reader in _READERS.items() if reader.recognise(config)), "")


def design_of(config: dict, tool: str, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """What a configuration says, and remarks. tool: "" lets the configuration tell. Never raises for what a
    configuration holds."""
    found = tool_of_config(config) or tool
    if found not in _READERS:
        return KnownDesign(), ["the configuration is of no trainer that is known: verl, TRL, rftlab"]
    reader = Reader(config)
    design = _READERS[found].known_of(reader, processes)
    return replace(design, assumed=tuple(map(plain, reader.assumed))), [plain(note) for note in reader.notes]
