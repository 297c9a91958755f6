"""Every command that a page names exists, and so do its flags: it is parsed, not run."""

import re
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO

import pytest

from dev import commands_page
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.cli.commands import DEV, GROUPS, parse
from tests.support.docs.command_lines import Line, lines_of, words_of
from tests.support.docs.notebooks import notebooks, page_of
from tests.support.estimators.vectors import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_THE_PAGES = ("tanh", "--preset median_mad")
"""Estimators that pages add as examples; tests/studies/test_cards.py and test_tutorials.py run them."""
NAMES = {name for group in GROUPS.values() for name in group} | {f"dev {name}" for name in DEV}
"""Commands that a sentence may name without what they need."""
MAKE = re.compile(r"(?:^    |^|`)make ([a-z][\w-]*)", re.MULTILINE)
MODULE = re.compile(r"python -m ((?:rftlab|tests|dev|benchmarks)\b[\w.]*)")


def without_files(arguments: list[str]) -> list[str]:
    """A command line without `--plugins FILE`, because the page's file is not there."""
    place = arguments.index("--plugins") if "--plugins" in arguments else len(arguments)
    return arguments[:place] + arguments[place + 2 :]


def refused(arguments: list[str]) -> str:
    """What is wrong with a command line, empty where it can be parsed."""
    printed = StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            parse(without_files(arguments))
    except UserError as error:
        return str(error)
    except SystemExit as end:
        return printed.getvalue() if end.code else ""
    return ""


def is_refused(text: str, line: Line) -> bool:
    """Whether the page shows that the command is refused; `test_tutorials.py` runs those."""
    return "".join(text.splitlines()[line.number : line.number + 1]).startswith("rftlab: ")


def test_every_command_of_a_page_can_be_parsed():
    wrong = {}
    for path in [*PAGES, *notebooks()]:
        text = page_of(path) if path.suffix == ".ipynb" else path.read_text()
        for line in lines_of(text):
            known = line.arguments in NAMES or any(one in line.arguments for one in OF_THE_PAGES)
            if not known and not is_refused(text, line):
                wrong[f"{path.name}:{line.number}: rftlab {line.arguments}"] = refused(words_of(line))
    assert {line: why for line, why in wrong.items() if why} == {}


def test_commands_are_found_wherever_they_stand():
    blocks = "    rftlab run batch    # why\n\n```sh\n.venv/bin/rftlab dev doctor | tail\n```\n"
    text = blocks + "text `rftlab run\ncell --rollouts 2` text\n\n```console\n$ rftlab a \\\n    b\n```\n"
    expected = [("run batch", 1), ("dev doctor", 4), ("run cell --rollouts 2", 6), ("a b", 10)]
    assert [(" ".join(line.arguments.split()), line.number) for line in lines_of(text)] == expected
    assert sum(len(lines_of(path.read_text())) for path in PAGES) > 100


@pytest.mark.parametrize(
    "arguments", ["run cell --rollout-count 2", "runn cell", "run cell --rollouts two", "train --pair tiny-mix96"]
)
def test_a_wrong_command_is_refused(arguments):
    assert refused(arguments.split())


def flags_in_help(flag, capsys):
    with pytest.raises(SystemExit) as end:
        parse(["train", flag])
    assert not end.value.code
    return set(re.findall(r"--[\w.-]+", capsys.readouterr().out))


def test_the_help_of_train_shows_what_pages_use_and_help_all_the_rest(capsys):
    shown, every = (flags_in_help(flag, capsys) for flag in ("--help", "--help-all"))
    lines = [words_of(line) for path in PAGES for line in lines_of(path.read_text())]
    used = {word.replace("no-", "") for words in lines if words[:1] == ["train"] for word in words if word[:2] == "--"}
    assert len(used) > 20 and used <= shown < every and len(shown) < 45 and len(every) > 110
    assert parse(["train", "--estimator.kl.coef", "0.5"]).design.estimator.kl.coef == 0.5


def test_every_target_of_make_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for path in PAGES for name in MAKE.findall(path.read_text())}
    assert "study" in named and named - targets == set()


def test_every_module_that_is_run_exists():
    named = {name.rstrip(".") for path in PAGES for name in MODULE.findall(path.read_text())}
    assert named and [name for name in named if find_spec(name) is None] == []


def test_the_page_of_commands_is_that_of_the_code():
    """Where this fails: python -m dev.commands_page."""
    page = commands_page.PAGE.read_text()
    assert commands_page.filled(page) == page and all(f"| `rftlab {name}` |" in page for name in NAMES)
    assert commands_page.filled(page.replace("| `rftlab run` |", "| `rftlab walk` |")) == page
