"""The page of a follow-up study, and its short form in a terminal."""

from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import Table, put, say
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.report.chart import Drawn
from rftlab.studies.report.report import draw, template


class Section(NamedTuple):
    """A part of the page."""

    name: str
    title: str
    text: str
    tables: list[Table]
    lines: tuple[str, ...] = ()
    figure: Drawn | None = None


def write_study_page(console: Console, root: Path, name: str, title: str, sections: list[Section], about: dict) -> Path:
    """Print the sections, and write them with their figures to root/report-name; returns the page's path."""
    folder = folder_below(root, f"report-{name}")
    check_writable(folder)
    figures = {one.name: draw(folder_below(folder, "figures"), one.name, one.figure) for one in sections if one.figure}
    for one in sections:
        for table in one.tables:
            put(console, one.title, table)
        for line in one.lines:
            say(console, line)
    page = template("followup.html.j2").render(title=title, sections=sections, figures=figures, about=about)
    write_file(folder / "report.html", page.encode())
    say(console, f"report: {folder / 'report.html'}")
    return folder / "report.html"
