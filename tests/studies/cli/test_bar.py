"""How far a command is, where nothing can be drawn over: a line now and then on standard error."""

from io import StringIO
from itertools import count

import pytest
from rich.console import Console

from rftlab.studies.data.runs import progress as module
from rftlab.studies.data.runs.progress import Bar, step_progress
from tests.support.docs.pages import WAITING


@pytest.fixture
def seconds(monkeypatch):
    """A clock on which each look takes four seconds."""
    ticks = count(0, 4)
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(ticks)))


def drive(console: Console, quiet: bool = False) -> None:
    with Bar(console, quiet) as bar:
        task = bar.add_task("a\x1b[2J", total=20)
        for done in range(1, 21):
            bar.update(task, completed=done)


def test_a_pipe_gets_a_line_now_and_then_a_terminal_and_a_quiet_command_none(seconds, capsys):
    printed = StringIO()
    drive(Console(file=printed))
    said = capsys.readouterr().err
    assert said.splitlines()[0] == "rftlab: 15% after 12 s, about 68 s left: a\\x1b[2J"
    assert said.count("\n") == 3, "twenty updates in 80 seconds"
    assert printed.getvalue() == "" and WAITING.sub("", said) == ""
    drive(Console(file=StringIO()), quiet=True)
    drive(Console(file=StringIO(), force_terminal=True))
    assert capsys.readouterr().err == ""


def test_a_quick_command_says_nothing_and_one_without_an_end_what_it_does(monkeypatch, capsys):
    with step_progress(Console(file=StringIO()), "resampling", False) as step:
        step(1, 2)
    assert capsys.readouterr().err == ""
    ticks = count(0, 11)
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(ticks)))
    with step_progress(Console(file=StringIO()), "resampling", False) as step:
        step(0, None)
    assert capsys.readouterr().err == "rftlab: 11 s so far: resampling\n"
