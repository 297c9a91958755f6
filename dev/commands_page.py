"""Write the tables of docs/reference/commands.md from the docstrings of the commands: `python -m dev.commands_page`."""

import re
from inspect import getdoc
from pathlib import Path

from rftlab.studies.cli.commands import DEV, GROUPS

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
MARKS = "<!-- begin: python -m dev.commands_page -->\n", "<!-- end -->\n"


def section(title: str, commands: dict[str, type], prefix: str = "rftlab ") -> str:
    """Return a table of commands with the first lines of their docstrings, and the examples of these as a block."""
    docs = {name: getdoc(kind) or "" for name, kind in commands.items()}
    rows = [f"| `{prefix}{name}` | {text.splitlines()[0]} |" for name, text in docs.items()]
    examples = [line for text in docs.values() for line in text.splitlines() if line.startswith("    rftlab ")]
    table = ["| command | |", "|---|---|", *rows]
    return "\n".join([f"## {title}", "", *table, "", *examples, *[""] * bool(examples)])


def tables() -> str:
    """Return the text between the marks."""
    parts = [section(title, commands) for title, commands in GROUPS.items()]
    return "\n" + "\n".join([*parts, section("Checks of rftlab", DEV, "rftlab dev ")]) + "\n"


def filled(page: str) -> str:
    """Return a page with the present tables between its marks."""
    first, last = map(re.escape, MARKS)
    return re.sub(f"({first}).*?({last})", lambda found: found[1] + tables() + found[2], page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
