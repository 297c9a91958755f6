"""Every page of the tutorial prints what it says, from a folder of its own; those of test_own_project.py not from the
checkout either. Parts 5 and 6, whose training and study take minutes, are run in order alone."""

import re
from importlib.util import find_spec
from itertools import pairwise

import pytest

from tests.support.docs.pages import TUTORIALS, blocks_of, commands_of, figures_of, run_page, tutorials
from tests.support.machine.wheel import PAGES as OWN_PROJECT

TRAINS, STUDY = "05-train-a-small-model", "06-read-a-report"
HAS_TRAINER = bool(find_spec("torch") and find_spec("transformers"))
PAGES = [pytest.param(path, id=path.stem) for path in tutorials() if path.stem not in {TRAINS, STUDY, *OWN_PROJECT}]
TRAIN_APART = {name for name, needs in OWN_PROJECT.items() if needs}
"""Pages that train and need nothing of the other parts: each runs in a project of its own alone."""


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, page_cache):
    """No display, and no base model in the user's cache."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(page_cache))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_prints_what_it_says(path, tmp_path):
    text = path.read_text()
    assert run_page(text, tmp_path) > 0
    for kept, made in figures_of(text):
        assert (tmp_path / made).stat().st_size > 0 and (TUTORIALS / kept).is_file()


@pytest.mark.skipif(not HAS_TRAINER, reason="needs the extra llm: make test-llm")
def test_the_parts_run_in_order_in_one_folder(tmp_path):
    """The parts pass as somebody types them, beside what the earlier ones left. Those before the training pass once
    more after the study."""
    parts = [path for path in tutorials() if path.stem not in TRAIN_APART]
    for path in [*parts, *(path for path in parts if path.stem < TRAINS)]:
        try:
            run_page(path.read_text(), tmp_path)
        except AssertionError as error:
            pytest.fail(f"{path.stem}: {error}")


def test_the_pages_are_numbered_and_lead_to_each_other():
    pages = tutorials()
    assert [path.name[:2] for path in pages] == [f"{n:02}" for n in range(1, len(pages) + 1)]
    for path, after in pairwise(pages):
        assert f"({after.name})" in path.read_text(), path.name


def test_pages_say_how_long_they_take_and_show_no_picture_that_they_do_not_make():
    for path in tutorials():
        text = path.read_text()
        assert re.search(r"^\*(Two|Five|Ten) minutes", text, re.MULTILINE), path
        assert re.search(r"^This part needs the setup|^## Set up$", text, re.MULTILINE), path
        assert text.count("![") == len(figures_of(text)) + text.count("](../gallery/"), path
        assert {block.language for block in blocks_of(text)} <= {"console", "python", "text", "sh"}, path


PAGE = """
```python
x = 2
print(x + 1)
```

```text
3
```

```console
$ python -c "print('a b', 7)"
a ... 7
```
"""


def test_a_page_that_tells_the_truth(tmp_path):
    assert run_page(PAGE, tmp_path) == 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("\n3\n", "\n4\n"),
        ("```text\n3\n```", ""),
        ("a ... 7", "a ... 8"),
        ("a ... 7", "a b 7\nand more"),
        ("print('a b', 7)", "raise SystemExit(1)"),
        ("x = 2", "x = 2; print()"),
    ],
)
def test_a_page_that_lies_is_found(right, wrong, tmp_path):
    assert right in PAGE
    with pytest.raises(AssertionError, match=r"line \d+"):
        run_page(PAGE.replace(right, wrong), tmp_path)


def test_a_command_that_fails_must_say_so(tmp_path):
    block = "```console\n$ rftlab run cell --rollouts 0\n{}```\n"
    assert run_page(block.format("rftlab: rollouts = 0; allowed: 1 or more\n"), tmp_path) == 1
    with pytest.raises(AssertionError, match="status 2"):
        run_page(block.format("...\n"), tmp_path)


def test_commands_go_over_lines():
    (block,) = blocks_of("```console\n$ a \\\n    b\nc\n$ d\n```\n")
    assert commands_of(block) == [("a     b", "c\n"), ("d", "")]
