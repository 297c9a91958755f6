"""The command in this process."""

from contextlib import redirect_stderr
from io import StringIO

from rich.console import Console

from rftlab.studies.cli.commands import parse
from rftlab.studies.console.terminal import guarded


def rftlab(*arguments):
    """Status and output, in this process."""
    console = Console(file=StringIO(), width=200)
    with redirect_stderr(console.file):
        status = guarded(lambda: parse([str(argument) for argument in arguments]).execute(console))
    return status, console.file.getvalue()


def printed(show, *arguments, width=200):
    """What a function prints on a console, its first argument."""
    console = Console(file=StringIO(), width=width)
    show(console, *arguments)
    return console.file.getvalue()


def shown(*arguments):
    """Output of a command that succeeds."""
    status, text = rftlab(*arguments)
    assert status == 0, text
    return text


def refused(*arguments):
    """The one line with which the command ends."""
    status, text = rftlab(*arguments)
    assert status == 2 and text.startswith("rftlab: ") and text.count("\n") == 1, text
    return text
