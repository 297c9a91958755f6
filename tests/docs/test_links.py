"""Links of the pages lead somewhere: files that exist, headings that they have. The site shows every page and every
public name, and is built where the trainer is not installed."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import rftlab as rl
from tests.support.docs.notebooks import notebooks, page_of
from tests.support.estimators.vectors import ROOT

DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *notebooks()]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
DATA = {"CARDS", "PAIRS"}
"""Public names that are dictionaries, which the reference names in its text."""


def anchors_of(text: str) -> set[str]:
    """Anchors of the headings of a page, as GitHub and the site make them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead(path: Path, text: str) -> list[str]:
    """Links of a page to files or headings that are not there."""
    found = []
    for target in LINK.findall(text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        inside = file.is_relative_to(ROOT) and file.exists()
        if not inside or (anchor and anchor not in anchors_of(file.read_text() if name else text)):
            found.append(target)
    return found


def test_links_lead_somewhere():
    texts = {path: page_of(path) if path.suffix == ".ipynb" else path.read_text() for path in PAGES}
    assert {str(path): links for path, text in texts.items() if (links := dead(path, text))} == {}


@pytest.mark.parametrize(
    "target", ["nowhere.md", "lab/log.md#no-such-finding", "#nor-here", "../../outside.md", "figures/none.png"]
)
def test_a_dead_link_is_found(target):
    assert dead(DOCS / "index.md", f"# Title\n[a](lab/log.md) [b](#title) [c]({target})") == [target]


def listed(page: str) -> set[str]:
    """Names in the tables of contents of a page of the site."""
    tables = re.findall(r"^```\{toctree\}\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    return {line for table in tables for line in table.splitlines() if line and not line.startswith(":")}


def test_the_site_lists_every_page():
    names = listed("index") | {f"lab/{name}" for name in listed("lab/index")}
    files = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in files}
    assert names | {"index", "reference/public"} == pages
    assert len([name for name in pages if not name.startswith(("tutorial/", "notebooks/", "reference/", "lab/"))]) <= 20


def test_the_reference_has_every_public_name():
    text = (DOCS / "reference" / "public.md").read_text()
    named = set(re.findall(r"^   ~([\w.]+)$", text, re.MULTILINE))
    assert named == {f"{module}.{name}" for module, names in rl._HOMES.items() for name in names if name not in DATA}
    assert all(f"`rl.{name}`" in text for name in DATA)


BROUGHT_ALONG = {"matplotlib", "markupsafe", "llvmlite", "yaml"}
"""Names that the dependencies install, and we import."""


def imported() -> set[str]:
    """Top-level names of what the packages import, inside functions too."""
    names = set()
    for path in [path for package in ("shared", "sim", "llm", "studies") for path in (ROOT / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module)
    return {name.split(".")[0] for name in names}


def test_every_import_is_a_dependency_or_has_a_stand_in_which_the_trainer_imports():
    """Dependencies are those of an installation without extras."""
    settings = [node for node in ast.parse((DOCS / "conf.py").read_text()).body if isinstance(node, ast.Assign)]
    values = {ast.unparse(node.targets[0]): node.value for node in settings}
    stand_ins = set(ast.literal_eval(values["autodoc_mock_imports"]))
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    known = {re.match(r"[\w-]+", line)[0] for line in listed} | BROUGHT_ALONG | {"rftlab", *sys.stdlib_module_names}
    assert imported() - known - stand_ins == stand_ins - imported() == set()
