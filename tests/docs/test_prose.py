"""How pages are written."""

import pytest

from tests.support.docs.pages import ROOT

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


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_is_wrapped(path):
    assert too_long(path.read_text()) == []


def test_a_long_line_is_found():
    long = "word " * 21
    assert too_long(f"# {long}\n| {long}\n    {long}\n```text\n{long}\n```\n{long}\n") == [long]
