"""What a table of text has where a step or a number should be."""

from pathlib import Path

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.text import LARGEST_STEP

MISSING = ("", "nan", "na", "none", "null")
"""How a cell says that it has no value."""


class Odd:
    """Rows without a step, and cells that are no numbers, of a table: the first place of each, and what is there."""

    def __init__(self, step: str):
        self._step, self._rows, self._stepless = step, 0, 0
        self._cells: dict[str, str] = {}

    def stepless(self, step: int | None, text: str, place: int) -> bool:
        """Count a row; whether it has no step. One whose cell is empty is no reason to doubt the others."""
        self._rows += 1
        if step is None and text.strip().lower() not in MISSING:
            self._stepless += 1
            self._cells.setdefault(
                "", f"line {place}: {self._step} = {_shown(text)} is no whole number from 0 to {LARGEST_STEP}"
            )
        return step is None

    def cell(self, name: str, text: str, place: int) -> None:
        """A cell with something else than a number."""
        if name not in self._cells and text.strip():
            self._cells[name] = f"line {place}: {name} = {_shown(text)} is no number"

    def notes(self, path: Path, numbers: bool) -> list[str]:
        """What to tell. Raises UserError where half of the rows have no step, or no cell has a number."""
        said = [f"{text}; such {'cells' if name else 'rows'} are left out" for name, text in self._cells.items()]
        if self._cells and (2 * self._stepless >= self._rows or not numbers):
            first = self._cells.get("", next(iter(self._cells.values())))
            raise UserError(f"{path}: {first}; allowed: such as 12 for steps, and 0.5 or 1e-6 for numbers")
        return said[:6]


def _shown(text: str) -> str:
    return repr(text.strip()[:40])
