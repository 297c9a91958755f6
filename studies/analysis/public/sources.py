"""The sources of the public runs: where they are, under which licence, what they show, and their traps."""

import json
from importlib.resources import files
from typing import NamedTuple


class Source(NamedTuple):
    """One public repository of training logs."""

    name: str
    reference: str
    """Repository at a commit, where that is recorded, and paper."""
    licence: str
    """As the source states it. Numbers of one without a stated licence are not shipped: figures and statistics are."""
    runs: int
    """Training runs, the untrained model among them where it has rows of its own."""
    points: int
    """Rows of curves."""
    model: str
    data: str
    varied: str
    shows: str
    traps: tuple[str, ...]

    @property
    def shipped(self) -> bool:
        """Whether its numbers come with the package."""
        return not self.licence.startswith("none")


def _read() -> tuple[Source, ...]:
    rows = json.loads((files("rftlab.studies") / "assets" / "public_sources.json").read_text(encoding="utf-8"))
    return tuple(Source(**row | {"traps": tuple(row["traps"])}) for row in rows)


SOURCES = _read()
BY_NAME = {source.name: source for source in SOURCES}
