"""Python code in pages that are no tutorial does what it says."""

from rftlab.llm.config import LLMRun
from tests.support.docs.pages import blocks_of, run_page
from tests.support.estimators.vectors import ROOT

DOCS = ROOT / "docs"


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
    runs = {"python", "console"}
    pages = [*DOCS.glob("*.md"), *(DOCS / "lab").glob("*.md")]
    with_code = {page.name for page in pages for block in blocks_of(page.read_text()) if block.language in runs}
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in sorted(with_code) if name not in tests] == []
