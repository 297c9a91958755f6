"""Tables and lines in a terminal, and numbers as CSV files.

Output is text, never markup: names come from logs, from models and from users.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.console import Console
from rich.table import Table as Layout
from rich.text import Text

from rftlab.shared.plumbing.files import write_file

if TYPE_CHECKING:
    import pandas as pd


class Screen(Console):
    """The console on which commands print. It leaves a closed pipe to
    `rftlab.studies.console.terminal.guarded`, as every other error, and is a
    terminal only where lines can be drawn again: FORCE_COLOR, which notebooks set, gives a pipe colours, but no
    bars."""

    _colours_known = False

    def __init__(self, **settings: Any):
        super().__init__(**{"emoji": False} | settings)
        self._colours_known = True

    @property
    def is_terminal(self) -> bool:
        """Whether bars may move. rich asks this before colors are known."""
        return super().is_terminal and (not self._colours_known or self.file.isatty())

    def on_broken_pipe(self) -> None:
        """Nobody reads any more."""
        self.quiet = True
        raise BrokenPipeError


Align = Literal["left", "right", "center"]
Wrap = Literal["words", "never"]
"""Where a cell may be broken that is wider than its column: between words, and inside a word that is wider; or not at
all, so that it is cut."""


class Column(NamedTuple):
    """A column: its heading, how its values are written, and how its cells stand.

    format: a format specification such as ".3f". None and nan are shown as an empty cell. align, wrap: those of the
    table where left out.
    """

    name: str
    format: str = ""
    align: Align | None = None
    wrap: Wrap | None = None
    style: str = ""
    width: int | None = None
    least: int | None = None

    def written(self, value: Any) -> Text:
        """Return a value as it is shown. Texts are shown as they are."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return Text("")
        if not isinstance(value, str | Text):
            value = format(value, self.format)
        return value if isinstance(value, Text) else Text(value)


class Table:
    """Columns and rows, to be printed on a console.

    align: of the columns after the first, which stands to the left. wrap: of all. layout:
    what else rich.table.Table takes, such as `padding` or `expand`.
    """

    def __init__(
        self,
        *columns: str | Column,
        title: str = "",
        align: Align = "right",
        wrap: Wrap = "words",
        **layout: Any,
    ):
        self.columns = [Column(one) if isinstance(one, str) else one for one in columns]
        self.title, self.align, self.wrap, self.layout = title, align, wrap, layout
        self.rows: list[tuple[tuple[Any, ...], str]] = []

    def add(self, *values: Any, style: str = "") -> None:
        """Add a row: values in the order of the columns, later ones left out where they are empty."""
        self.rows.append((values, style))

    @property
    def texts(self) -> list[list[str]]:
        """The cells of every row as they are shown."""
        return [[text.plain for text in self._written(values)] for values, _ in self.rows]

    def __rich__(self) -> Layout:
        """Return the table as rich draws it."""
        title = Text(self.title, "table.title") if self.title else None
        layout = Layout(
            **{"title": title, "title_justify": "left", "caption_justify": "left", "box": None} | self.layout
        )
        for i, one in enumerate(self.columns):
            wrap = one.wrap or self.wrap
            layout.add_column(
                Text(one.name),
                justify=one.align or (self.align if i else "left"),
                no_wrap=wrap == "never",
                overflow="ellipsis" if wrap == "never" else "fold",
                style=one.style,
                width=one.width,
                min_width=one.least,
                ratio=1 if self.layout.get("expand") and one.width is None else None,
            )
        for values, style in self.rows:
            layout.add_row(*self._written(values), style=style)
        return layout

    def _written(self, values: tuple[Any, ...]) -> list[Text]:
        return [column.written(value) for column, value in zip(self.columns, values, strict=False)]


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line that is broken by the terminal alone."""
    console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def put(console: Console, title: str, table: Table) -> None:
    """Print a table below its title, which is a line of its own: above a narrow table it would be broken."""
    say(console, title, "italic")
    console.print(table)


def write_numbers(path: Path, numbers: "pd.DataFrame") -> None:
    """Write a table as CSV; see `csv_bytes`."""
    write_file(path, csv_bytes(numbers))


def csv_bytes(numbers: "pd.DataFrame") -> bytes:
    """Return a table as CSV with six decimals, so that equal numbers give equal bytes. A text that a spreadsheet would
    compute begins with an apostrophe."""
    guarded = numbers.copy()
    for name in guarded.columns:
        if guarded[name].dtype.kind not in "iufbM":
            guarded[name] = [_guarded(cell) for cell in guarded[name]]
    guarded.columns = [_guarded(name) for name in guarded.columns]
    return guarded.to_csv(index=False, float_format="%.6f", lineterminator="\n").encode()


def _guarded(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip()[:1] in ("=", "+", "-", "@") else cell


def number(value: float, digits: int = 3) -> str:
    """Return a number with a fixed number of digits; nothing where it is not known or not finite."""
    return f"{value:.{digits}f}" if math.isfinite(value) else ""
