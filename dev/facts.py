"""Write the table of facts into docs/theory.md: `python -m dev.facts RESULTS`, after `rftlab theory facts` has filled
the results folder."""

import sys
from pathlib import Path

from rftlab.shared.plumbing.errors import check
from rftlab.studies.theory.facts.command import TINY, WORLDS, JudgedFact, count_line, stored_facts

DOC = Path(__file__).parents[1] / "docs" / "theory.md"
START, END = "<!-- facts -->", "<!-- /facts -->"


def between(text: str) -> str:
    """The table in the text of the page."""
    return text[text.index(START) + len(START) : text.index(END)]


def fact_row(one: JudgedFact) -> str:
    """A row of the table, without the bar at its end."""
    fact = one.fact
    said = (f"`{fact.name}`", fact.statement, fact.source, f"{fact.quantity}: {fact.wanted}")
    return "| " + " | ".join((*said, *(one.shown(world) for world in one.verdicts)))


def with_table(text: str, facts: list[JudgedFact]) -> str:
    """The text of the page with the table of these verdicts."""
    heading = ("name", "fact", "source", "number and what is wanted", *WORLDS, TINY)
    rows = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading), *(f"{fact_row(one)} |" for one in facts)]
    lines = "\n".join(["", "", *rows, "", count_line(facts).capitalize() + ".", "", ""])
    return text.replace(START + between(text) + END, START + lines + END)


def main(folder: Path) -> None:
    """Write it. Raises UserError where runs are missing."""
    facts = stored_facts(folder)
    check(facts is not None, f"{folder} lacks runs of facts; `rftlab theory facts --results {folder}` makes them")
    DOC.write_text(with_table(DOC.read_text(encoding="utf-8"), facts or []), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
