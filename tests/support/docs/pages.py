"""Pages of the documentation: their fenced blocks, run in order in one folder, beside what they say is printed.

console   lines `$ command`, each followed by what it prints
python    code, in one namespace for the whole page; what it prints is in the text block after it, nothing where there
          is none

Three dots in what is printed stand for anything, as in doctest.

    python -m tests.support.docs.pages            # run the tutorials, and keep the figures that they show
"""

import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"!\[[^\]]+\]\((?P<kept>figures/[\w-]+\.png)\)\s+\*From `(?P<made>[^`]+)`")
COMMAND = {"rftlab": [sys.executable, "-m", "rftlab.studies.cli.main"], "python": [sys.executable]}
OWN_PROCESS = {"rftlab train", "python"}
"""Commands of a page that run in a process of their own; every `rftlab` does where `"rftlab"` is added."""
WAITING = re.compile(
    r"^(rftlab: (compiling |\d+% after |\d+ s so far).*|[\w-]+: all runs finished|\d+ of \d+ runs are there already)\n",
    re.MULTILINE,
)
"""What depends on the machine and on the folder: lines about code that is compiled, how far a slow command is, and
which runs are there already."""
TUTORIALS = ROOT / "docs" / "tutorial"
MAX_SECONDS = 600


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in FENCE.finditer(text)]


def apply_diff(text: str, folder: Path) -> str:
    """Change a file of a folder as a diff says, each hunk where its old lines stand; the file's path. Raises
    AssertionError where that is not one place."""
    heads, body = re.match(r"((?:(?:---|\+\+\+) [^\n]*\n)+)(.*)", text, re.DOTALL).groups()
    path = heads.split()[-1]
    source = (folder / path).read_text()
    for hunk in filter(None, re.split(r"^@@.*\n", body, flags=re.MULTILINE)):
        lines = hunk.splitlines()
        old, new = ("".join(line[1:] + "\n" for line in lines if line[:1] in signs) for signs in (" -", " +"))
        assert source.count(old) == 1, f"{path}: {source.count(old)} times: {old}"
        source = source.replace(old, new)
    (folder / path).write_text(source)
    return path


def figures_of(text: str) -> list[tuple[str, str]]:
    """What a page shows: each picture beside the page, and the file that its code makes."""
    return [(found["kept"], found["made"]) for found in FIGURE.finditer(text)]


def tutorials() -> list[Path]:
    return sorted(TUTORIALS.glob("[0-9]*.md"))


def run_page(text: str, folder: Path) -> int:
    """Run the blocks of a page in a folder; returns how many ran. Raises AssertionError where something else is
    printed."""
    blocks, names, ran = blocks_of(text), {"__name__": "page"}, 0
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "console":
            _run_console(block, folder)
        elif block.language == "python":
            expected = after.text if after is not None and after.language == "text" else ""
            _compare(expected, _run_python(block, names, folder), f"line {block.line}")
        ran += block.language in ("console", "python")
    return ran


def _run_python(block: Block, names: dict, folder: Path) -> str:
    code = compile("\n" * (block.line - 1) + block.text, "page", "exec")
    with redirect_stdout(io.StringIO()) as printed, chdir(folder):
        exec(code, names)
    return printed.getvalue()


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Commands of a console block, each with what it prints."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: a console block begins with a command"
    return [tuple(part.replace("\\\n", "").partition("\n")[::2]) for part in parts[1:]]


def _run_console(block: Block, folder: Path) -> None:
    for command, expected in commands_of(block):
        program, *arguments = shlex.split(command)
        alone = program != "rftlab" or OWN_PROCESS & {program, f"{program} {arguments[0]}"}
        status, printed = (_started if alone else _called)([program, *arguments], folder)
        _compare(WAITING.sub("", expected), WAITING.sub("", printed), f"line {block.line}: {command}")
        fails = expected.startswith("rftlab: ")
        assert (status != 0) == fails, f"line {block.line}: {command} ended with status {status}"


def _started(words: list[str], folder: Path) -> tuple[int, str]:
    """Status and output of a command in a process of its own."""
    full = [*COMMAND.get(words[0], words[:1]), *words[1:]]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = os.environ | {"COLUMNS": "80"}
    done = subprocess.run(full, **streams, cwd=folder, env=environment, timeout=MAX_SECONDS)
    return done.returncode, done.stdout


def _called(words: list[str], folder: Path) -> tuple[int, str]:
    """Status and output of a command of rftlab in this process, which has imported most of it."""
    from rftlab.studies.cli.commands import run
    from rftlab.studies.console.terminal import guarded

    printed = io.StringIO()
    narrow = mock.patch.dict(os.environ, {"COLUMNS": "80"})
    with redirect_stdout(printed), redirect_stderr(printed), chdir(folder), narrow:
        return guarded(lambda: run(words[1:])), printed.getvalue()


def _compare(expected: str, got: str, where: str) -> None:
    """Spaces count as one, because a table is as wide as its numbers; at the ends of lines, and empty lines at the
    end, as none."""
    if not doctest.OutputChecker().check_output(_plain(expected), _plain(got), doctest.ELLIPSIS):
        raise AssertionError(f"{where}\n--- the page says\n{expected}--- printed\n{got}")


def _plain(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.rstrip().split("\n")) + "\n"


def main() -> None:
    """Run the tutorials whose names begin with what is asked for, or all, and copy their figures beside them."""
    for path in tutorials():
        if not path.name.startswith(tuple(sys.argv[1:]) or ("",)):
            continue
        with tempfile.TemporaryDirectory() as name:
            text = path.read_text()
            print(path.name, run_page(text, Path(name)), "blocks")
            for kept, made in figures_of(text):
                (TUTORIALS / kept).parent.mkdir(exist_ok=True)
                shutil.copyfile(Path(name) / made, TUTORIALS / kept)


if __name__ == "__main__":
    main()
