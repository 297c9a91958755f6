"""The site's settings: it is built where the trainer is not installed."""

import ast
import re
import sys
import tomllib

from tests.support.estimators.vectors import ROOT

CONF = ROOT / "docs" / "conf.py"
BROUGHT_ALONG = {"matplotlib", "markupsafe", "llvmlite"}
"""What the dependencies themselves install, and we import."""
IMPORTED_AS = {"pyyaml": "yaml"}


def imported() -> set[str]:
    """Top-level names of what the packages import, inside functions too."""
    found = set()
    for path in [path for package in ("shared", "sim", "llm", "studies") for path in (ROOT / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module.split(".")[0])
    return found


def stand_ins() -> set[str]:
    """Names for which the site has stand-ins."""
    settings = {
        ast.unparse(node.targets[0]): node.value
        for node in ast.parse(CONF.read_text()).body
        if isinstance(node, ast.Assign)
    }
    return set(ast.literal_eval(settings["autodoc_mock_imports"]))


def dependencies() -> set[str]:
    """Names of what an installation without extras has."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.match(r"[\w-]+", line)[0] for line in listed}
    return {IMPORTED_AS.get(name, name) for name in names} | BROUGHT_ALONG


def test_every_import_is_a_dependency_or_has_a_stand_in():
    assert imported() - set(sys.stdlib_module_names) - {"rftlab"} - dependencies() - stand_ins() == set()


def test_every_stand_in_is_imported_by_the_trainer():
    assert stand_ins() - imported() == set()
