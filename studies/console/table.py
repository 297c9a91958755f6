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
    """Console on which commands print.

    `rftlab.studies.console.terminal.guarded` handles a closed pipe, as any other error. Only where lines can be drawn
    again is the console a terminal: FORCE_COLOR, which notebooks set, gives a pipe colors, but no progress bars.
    """

    _colours_known = False

    def __init__(self, **settings: Any):
        super().__init__(**{"emoji": False} | settings)
        self._colours_known = True

    @property
    def is_terminal(self) -> bool:
        """Whether lines can be drawn again, as progress bars need. rich's constructor asks too, for colors."""
        return super().is_terminal and (not self._colours_known or self.file.isatty())

    def on_broken_pipe(self) -> None:
        """Print nothing more and raise BrokenPipeError, where rich would end the process."""
        self.quiet = True
        raise BrokenPipeError


Align = Literal["left", "right", "center"]
Wrap = Literal["words", "never"]
"""Treatment of a cell wider than its column: broken between words, and inside a word that is too wide itself; or never
broken, but cut off."""


class Column(NamedTuple):
    """Column of a table: its heading, the format of its values, and the layout of its cells.

    format: a format specification such as ".3f"; None and nan are shown as an empty cell. align, wrap: None for those
    of the table. width, least: fixed and least width in characters.
    """

    name: str
    format: str = ""
    align: Align | None = None
    wrap: Wrap | None = None
    style: str = ""
    width: int | None = None
    least: int | None = None

    def written(self, value: Any) -> Text:
        """Return a value as the text of its cell: strings as they are, None and nan as "", others by `format`."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return Text("")
        if not isinstance(value, str | Text):
            value = format(value, self.format)
        return value if isinstance(value, Text) else Text(value)


class Table:
    """Table of columns and rows that a console can print.

    align: alignment of all columns but the first, which is aligned to the left. wrap: treatment of cells that are too
    wide. layout: other arguments of rich.table.Table, such as `padding` or `expand`.
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
        """Add a row of values in the order of the columns. Empty values at the end may be left out."""
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
    """Print a line without markup, and leave its wrapping to the terminal."""
    console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def put(console: Console, title: str, table: Table) -> None:
    """Print a title and below it a table. rich would wrap a table's own title to the width of the table."""
    say(console, title, "italic")
    console.print(table)


def write_numbers(path: Path, numbers: "pd.DataFrame") -> None:
    """Write a table as CSV; see `csv_bytes`."""
    write_file(path, csv_bytes(numbers))


def csv_bytes(numbers: "pd.DataFrame") -> bytes:
    """Return a table as CSV with six decimals, so that equal numbers give equal bytes. An apostrophe is put before a
    text that a spreadsheet would take for a formula."""
    guarded = numbers.copy()
    for name in guarded.columns:
        if guarded[name].dtype.kind not in "iufbM":
            guarded[name] = [_guarded(cell) for cell in guarded[name]]
    guarded.columns = [_guarded(name) for name in guarded.columns]
    return guarded.to_csv(index=False, float_format="%.6f", lineterminator="\n").encode()


def _guarded(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip()[:1] in ("=", "+", "-", "@") else cell


def number(value: float, digits: int = 3) -> str:
    """Return a number as text with a fixed number of decimals; "" where it is nan or infinite."""
    return f"{value:.{digits}f}" if math.isfinite(value) else ""
