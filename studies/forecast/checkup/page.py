"""The answer of `rftlab check` on the terminal, and as a page with its sentences as CSV and JSON."""

import json
from pathlib import Path
from textwrap import wrap

import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.errors import plain
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import say, write_numbers
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.forecast.checkup.changes import name_changes, name_unknowns
from rftlab.studies.forecast.checkup.sections import (
    Sentence,
    compare_settings,
    describe_batch,
    describe_ends,
    describe_health,
)
from rftlab.studies.forecast.checkup.subject import Subject
from rftlab.studies.readers.store import name_for
from rftlab.studies.report.report import template

PARTS = {
    "Your batch": describe_batch,
    "Unusual": compare_settings,
    "Health": describe_health,
    "Where it ends": describe_ends,
    "Worth trying": name_changes,
    "Unknown": name_unknowns,
}
WIDTH, INDENT = 96, 14


def make_sections(subject: Subject) -> dict[str, list[Sentence]]:
    """All that is said of a run, by title; sections without a sentence are left out."""
    return {title: sentences for title, part in PARTS.items() if (sentences := list(part(subject)))}


def show_sections(console: Console, sections: dict[str, list[Sentence]], evidence: bool) -> None:
    """Print the sentences, each below its title, with what they rest on where that is asked for."""
    width = max(40, min(console.width, WIDTH)) - INDENT
    for title, sentences in sections.items():
        for number, (text, rests_on) in enumerate(sentences):
            lines = wrap(plain(text), width, break_on_hyphens=False)
            for reason in rests_on if evidence else ():
                lines += wrap(f"  - {plain(reason)}", width, subsequent_indent="    ", break_on_hyphens=False)
            for i, line in enumerate(lines):
                say(console, f"{title if number == i == 0 else '':<{INDENT}}{line}")
    if not evidence:
        say(console, "\n--evidence prints what each sentence rests on; --page writes a page to send.", "dim")


def write_check(subject: Subject, sections: dict[str, list[Sentence]], root: Path) -> Path:
    """Write root/check-NAME/check.html, check.csv and check.json; returns the page's path."""
    open_store(root)
    folder = folder_below(root, f"check-{name_for(Path(subject.name))}")
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(title, text, " | ".join(evidence)) for title, own in sections.items() for text, evidence in own]
    write_numbers(folder / "check.csv", pd.DataFrame(rows, columns=["section", "sentence", "evidence"]))
    content = {title: [one._asdict() for one in own] for title, own in sections.items()}
    write_file(folder / "check.json", (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    about = {"commit": commit(), **versions()}
    text = template("check.html.j2").render(title=subject.name, sections=sections, about=about)
    write_file(folder / "check.html", text.encode())
    return folder / "check.html"
