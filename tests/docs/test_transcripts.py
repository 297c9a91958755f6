"""The transcripts of five questions that a stranger asks, typed as they stand; transcripts.md has them."""

import re
from pathlib import Path

from tests.support.docs.pages import run_page
from tests.support.estimators.custom_cards import shipped_alone  # noqa: F401

TRANSCRIPTS = (Path(__file__).parent / "transcripts.md").read_text(encoding="utf-8")


def test_five_questions_are_answered(tmp_path):
    assert len(re.findall(r"^## .*\?$", TRANSCRIPTS, re.MULTILINE)) == 5
    assert run_page(TRANSCRIPTS, tmp_path) == 7
