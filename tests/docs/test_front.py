"""The first pages that a stranger reads print what they say, beside the files of examples/, and stay short; so do the
transcripts of five questions in transcripts.md, typed as they stand, and the code in pages that are no tutorial."""

import re
from pathlib import Path

import pytest

from dev import badges
from rftlab.llm.config import LLMRun
from tests.support.docs.pages import ROOT, blocks_of, run_page
from tests.support.estimators.custom_cards import shipped_alone  # noqa: F401

DOCS = ROOT / "docs"
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


def test_the_answers_to_frequent_questions_print_what_they_say_and_have_threads(folder):
    page = (DOCS / "faq.md").read_text()
    assert run_page(page, folder) >= 12
    questions = page.split("\n## ")[1:]
    assert len(questions) == 15
    assert [text for text in questions if not re.search(r"github\.com/[\w-]+/[\w.-]+/issues", text)] == []


def test_the_pilot_page_prints_what_it_says(tmp_path):
    assert run_page((DOCS / "pilot.md").read_text(), tmp_path) == 1


def test_the_trainer_page_makes_a_run_that_train_takes():
    """All but the training, which takes minutes: tutorial 5 has one."""
    source, call = blocks_of((DOCS / "llm.md").read_text())[0].text.split("outcome = train(")
    assert call.startswith('run, Path("results/example"))')
    page: dict = {}
    exec(compile(source.replace("from rftlab.llm.train import train\n", ""), "docs/llm.md", "exec"), page)
    assert isinstance(page["run"], LLMRun) and page["run"].design.rounds == 600


def test_every_page_with_code_is_run():
    """Pages whose blocks nothing runs would go out of date in silence."""
    pages = [*DOCS.glob("*.md"), *(DOCS / "lab").glob("*.md")]
    languages = {page.name: {block.language for block in blocks_of(page.read_text())} for page in pages}
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, used in languages.items() if used & {"python", "console"} and name not in tests] == []


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
