"""The answer of `rftlab check` on the terminal, and as a page with its sentences as CSV and JSON."""

import json
from pathlib import Path
from textwrap import wrap

import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import say, write_numbers
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.forecast.checkup.changes import name_changes, name_unknowns
from rftlab.studies.forecast.checkup.sections import (
    compare_settings,
    describe_batch,
    describe_ends,
    describe_health,
    describe_signal,
)
from rftlab.studies.forecast.checkup.subject import CheckSection, Subject, named_shape, plan_step
from rftlab.studies.readers.store import name_for
from rftlab.studies.report.report import template

WIDTH, INDENT = 96, 14


def make_sections(subject: Subject) -> list[CheckSection]:
    """All that is said of a run, in the order of the page; a section without sentences is left out."""
    model = named_shape(subject)
    plan = plan_step(subject, model) if model else None
    parts = {
        "Your batch": (*describe_batch(subject, model, plan), *describe_signal(subject)),
        "Unusual": compare_settings(subject, model),
        "Health": describe_health(subject),
        "Where it ends": describe_ends(subject),
        "Worth trying": name_changes(subject, model),
        "Unknown": name_unknowns(subject, model, plan),
    }
    return [CheckSection(title, own) for title, sentences in parts.items() if (own := tuple(sentences))]


def show_sections(console: Console, sections: list[CheckSection], evidence: bool) -> None:
    """Print the sentences, each below its title, with what they rest on where that is asked for."""
    width = max(40, min(console.width, WIDTH)) - INDENT
    for title, sentences in sections:
        for number, (text, rests_on) in enumerate(sentences):
            lines = wrap(text, width, break_on_hyphens=False)
            for i, line in enumerate(lines):
                say(console, f"{title if number == i == 0 else '':<{INDENT}}{line}")
            for reason in rests_on if evidence else ():
                for i, line in enumerate(wrap(reason, width - 4, break_on_hyphens=False)):
                    say(console, f"{'':<{INDENT}}{'  - ' if i == 0 else '    '}{line}", "dim")
    if not evidence:
        say(
            console,
            f"{'':<{INDENT}}--evidence prints what each sentence rests on; --page writes a page to send.",
            "dim",
        )


def write_page(subject: Subject, sections: list[CheckSection], root: Path) -> Path:
    """Write root/check-NAME/check.html, check.csv and check.json; returns the page's path."""
    open_store(root)
    folder = folder_below(root, f"check-{name_for(Path(subject.name.split(', ')[0]))}")
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(title, text, " | ".join(evidence)) for title, own in sections for text, evidence in own]
    write_numbers(folder / "check.csv", pd.DataFrame(rows, columns=["section", "sentence", "evidence"]))
    content = {title: [one._asdict() for one in own] for title, own in sections}
    write_file(folder / "check.json", (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    about = {"commit": commit(), **versions()}
    text = template("check.html.j2").render(title=subject.name, sections=sections, about=about)
    write_file(folder / "check.html", text.encode())
    return folder / "check.html"
