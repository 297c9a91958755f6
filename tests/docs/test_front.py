"""The first pages that a stranger reads print what they say, beside the files of examples/, and stay short; so do the
transcripts of five questions in transcripts.md, typed as they stand."""

import re
from pathlib import Path

import pytest

from dev import badges
from tests.support.docs.pages import ROOT, run_page
from tests.support.estimators.custom_cards import shipped_alone  # noqa: F401

README = (ROOT / "README.md").read_text()
TRANSCRIPTS = Path(__file__).with_name("transcripts.md").read_text()


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder that has the examples of a checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def test_the_readme_and_the_questions_that_a_stranger_asks_of_it_print_what_they_say(folder):
    """In one folder: the last question is the README's command again, whose runs are there."""
    assert run_page(README, folder) == 4
    assert len(re.findall(r"^## .*\?$", TRANSCRIPTS, re.MULTILINE)) == 5
    assert run_page(TRANSCRIPTS, folder) == 6


def test_the_answers_to_frequent_questions_print_what_they_say(folder):
    assert run_page((ROOT / "docs" / "faq.md").read_text(), folder) >= 12


def test_every_frequent_question_has_threads():
    questions = (ROOT / "docs" / "faq.md").read_text().split("\n## ")[1:]
    assert len(questions) == 15
    assert [text for text in questions if not re.search(r"github\.com/[\w-]+/[\w.-]+/issues", text)] == []


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120 and len(re.findall(r"(?<!!)\[[^]]*\]\(", README)) < 15
    assert README.split("\n\n")[1].startswith("**For people who fine-tune language models")


def test_the_moving_picture_is_small_and_moves():
    picture = (ROOT / "docs" / "explorer.gif").read_bytes()
    frames = picture.count(b"\x21\xf9\x04")  # graphic control extensions, one a frame
    assert len(picture) < 600_000 and 12 <= frames <= 20


def test_badges_say_what_the_checkout_holds():
    assert badges.BADGES.read_text(encoding="utf-8") == badges.draw()
    assert set(badges.facts()) == {"version", "python", "license", "estimators", "theory checks"}
