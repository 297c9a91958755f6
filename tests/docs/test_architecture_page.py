"""The table of docs/architecture.md says where to add things: its paths exist, and the things of each kind that there
are stand there."""

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rftlab.shared.cards import FAMILIES
from rftlab.studies.analysis.public import claims as public_claims
from rftlab.studies.cli.commands import DEV, GROUPS
from rftlab.studies.console.table import Table
from rftlab.studies.data.results import claims
from rftlab.studies.forecast.forecasters import QUICK
from rftlab.studies.readers.designs.named import named_trainers
from rftlab.studies.readers.read import FORMATS
from rftlab.studies.report.chart import Chart
from rftlab.studies.theory.facts.facts import Fact
from tests.support.docs.pages import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text()
ROWS = dict(re.findall(r"^\| (an? .+?) \| (.+) \|$", TEXT, re.MULTILINE))
"""What each row names, and where that goes."""


def paths(row: str) -> list[str]:
    """Files and folders that a row of the table names."""
    return re.findall(r"`([\w/]+/(?:\w+\.(?:py|toml))?|\w+\.md)`", ROWS[row])


def home(thing) -> str:
    """The file of a module, or of where a class or function is written."""
    return Path(inspect.getsourcefile(thing)).resolve().relative_to(ROOT).as_posix()


def makers(name: str) -> set[str]:
    """Files that call a function or class of that name."""
    trees = {path: ast.parse(path.read_text()) for path in (ROOT / "studies").rglob("*.py")}
    calls = {path: [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)] for path, tree in trees.items()}
    return {path.relative_to(ROOT).as_posix() for path, called in calls.items() if name in map(ast.unparse, called)}


COMMANDS = [command for group in (*GROUPS.values(), DEV) for command in group.values()]
THINGS: dict[str, Callable[[], Iterable[str]]] = {
    "an estimator": lambda: map(home, FAMILIES),
    "a log format": lambda: [home(log.read) for log in FORMATS],
    "a trainer's names of its settings": lambda: ["studies/assets/trainers.toml"] if named_trainers() else [],
    "a forecaster": lambda: [home(forecaster) for forecaster in QUICK.values()],
    "a claim": lambda: {home(module) for module in (claims, public_claims) if module.CLAIMS} | makers("Claim"),
    "a check of theory": lambda: makers("theory_check"),
    "a fact of published studies": lambda: [home(Fact)],
    "a table": lambda: [home(Table)],
    "a figure": lambda: [home(Chart)],
    "a command": lambda: map(home, COMMANDS),
}
"""Files in which the things of a row stand."""


def test_every_row_is_tried_and_names_what_exists():
    assert ROWS.keys() - THINGS.keys() == {"a kind of source, `x:NAME`"}
    assert all(map(paths, ROWS)) and [path for row in ROWS for path in paths(row) if not (ROOT / path).exists()] == []
    for name, path in re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", " ".join(ROWS.values())):
        assert re.search(rf"^(class |def |@)?{name}\b", (ROOT / path).read_text(), re.MULTILINE), (name, path)


@pytest.mark.parametrize("row", THINGS)
def test_the_things_of_a_row_stand_where_it_says(row):
    files = list(THINGS[row]())
    assert files and [path for path in files if not path.startswith(tuple(paths(row)))] == []
