"""How pages are written."""

import ast
import re
from typing import get_args

import pytest

from rftlab.studies.analysis.source import FREE, PairLevel
from rftlab.studies.forecast.run import TRUST
from tests.support.docs import sentences
from tests.support.docs.pages import ROOT
from tests.support.docs.prose import PAGES as PROSE
from tests.support.docs.prose import faults

WIDTH = 100
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BESIDE = ("|", "    ", "!", "#")
"""How lines begin that are no prose: tables, code, pictures, headings."""


def too_long(text: str) -> list[str]:
    """Lines of prose beyond the width."""
    found, code = [], False
    for line in text.splitlines():
        code ^= line.startswith("```")
        if len(line) > WIDTH and not code and not line.startswith(BESIDE):
            found.append(line)
    return found


def test_prose_is_wrapped():
    assert {str(path): lines for path in PAGES if (lines := too_long(path.read_text()))} == {}


def test_a_long_line_is_found():
    long = "word " * 21
    assert too_long(f"# {long}\n| {long}\n    {long}\n```text\n{long}\n```\n{long}\n") == [long]


def test_the_line_below_a_forecast_has_the_numbers_of_its_page():
    lines = (ROOT / "docs" / "forecast.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| error |")]
    on_page = [float(number) for number in re.findall(r"0\.\d{3}", " ".join(rows))]
    told = re.findall(r"0\.\d+", TRUST)
    assert told and all(any(f"{value:.{len(number) - 2}f}" == number for value in on_page) for number in told)


def test_nothing_is_installed_by_a_name_that_no_registry_has():
    """rftlab lies in a folder, not in a registry of packages."""
    files = [*PAGES, *(path for path in (ROOT / "studies").rglob("*.py")), *(ROOT / "llm").rglob("*.py")]
    wrong = re.compile(r"pip install [^\n#]*(?<![\w/.~-])rftlab(?![\w/'-]* folder|/)")
    assert [str(path) for path in files if wrong.search(path.read_text())] == []


@pytest.mark.parametrize(("page", "row"), [("reference/glossary.md", "| level |"), ("compare.md", "| `{}` |")])
def test_pages_name_the_levels_that_there_are(page, row):
    lines = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("|")]
    for level in (*get_args(PairLevel), *FREE):
        assert [line for line in lines if line.startswith(row.format(level)) and f"`{level}`" in line], level


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_keeps_the_rules(path):
    assert faults(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# A\n\nThe silence grows in this run.", "zero-variance group: The silence grows in this run."),
        ("# A\n\n" + "word " * 40 + "word.", "41 words"),
        ("# A\n\n" + ("word " * 19 + "end. ") * 3, "median of 20 words"),
        ("# A\n\n* One point.\n* What it does is hidden.", "begins with a clause"),
        ("# A\n\nSo is the other.", "inverted"),
        ("# A\n\n### B\n\nText here.", "level skipped: B"),
        ("# A\n\n## One heading that has far too many words for anybody to read it\n", "heading"),
        ("No title here.", "not one title"),
    ],
)
def test_what_breaks_a_rule_is_found(text, fault):
    assert any(found.startswith(fault) for found in faults(text))


def test_code_tables_and_questions_break_no_rule():
    assert faults("# A\n\n```text\nsilence\n```\n\n| silence |\n\n    silence\n\nWhat is `silence`?\n") == []


def test_docstrings_and_messages_keep_the_rules():
    assert list(sentences.places()) == []


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ('"""What it does."""', "begins with a clause: What it does."),
        ('def f():\n    """Return it. So is the other."""', "inverted: So is the other."),
        ('value: int\n"""Silence of a group."""', "zero-variance group: Silence of a group."),
        ('raise UserError(f"{path} is of another version; allowed: {this}")', "belongs to: "),
        ('print("' + "word " * 50 + 'word.")', "51 words"),
    ],
)
def test_code_that_breaks_a_rule_is_found(code, fault):
    ((_, text),) = sentences.strings(ast.parse(code))
    assert any(found.startswith(fault) for found in sentences.faults(text))


def test_short_texts_questions_and_tables_of_code_break_no_rule():
    code = '"""Whether it ends.\n\n    silence    What it is, for all.\n"""\nx = "so is it"\n"""How many there are."""'
    assert [fault for _, text in sentences.strings(ast.parse(code)) for fault in sentences.faults(text)] == []
