"""Lines and tables on the console, plainly: what they say is text, never markup."""

import math

from rich.console import Console
from rich.table import Table


def say(console: Console, text: str, style: str = "") -> None:
    """A line that is broken by the terminal alone."""
    console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def plain_table(title: str, *columns: str, no_wrap: bool = False) -> Table:
    """A table without lines: the first column to the left, the others to the right. no_wrap: cells are not broken,
    and stand closer for that."""
    table = Table(title=title, title_justify="left", box=None, collapse_padding=no_wrap)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=no_wrap)
    return table


def table_of(*columns: str) -> Table:
    """One that has its title above it (`put`), and whose cells are not broken."""
    table = Table(box=None)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    return table


def put(console: Console, title: str, table: Table) -> None:
    """A table below its title, which is a line of its own: above a narrow table it would be broken."""
    say(console, title, "italic")
    console.print(table)


def number(value: float, digits: int = 3) -> str:
    """A number with a fixed number of digits; nothing where it is not known."""
    return "" if math.isnan(value) else f"{value:.{digits}f}"
