"""Four pages of the tutorial, from start to end in a project of its own: an empty folder, and an environment that has
rftlab from its wheel and nothing of the checkout."""

import re
import subprocess
import tomllib
import zipfile
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.support.docs.pages import TUTORIALS
from tests.support.machine.wheel import PAGES, ROOT, SOURCES, build_wheel, environment, install, run_page_with

MAKES = {"08-own-task": "make test-llm", "09-in-trl": "make test-trl"}
"""What brings what a page needs."""
LARGEST_WHEEL = 5_000_000
"""Bytes."""
PACKAGES = [name for name in SOURCES if (ROOT / name).is_dir() and name != "rftlab"]

pytestmark = pytest.mark.skipif(
    int(version("setuptools").split(".")[0]) < 77, reason="wheels need setuptools 77: pip install -e '.[test]'"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("project") / "env")


def cases():
    for name, needs in PAGES.items():
        missing = [package for package in needs if not find_spec(package)]
        reason = f"needs {', '.join(missing)}: {MAKES.get(name)}"
        yield pytest.param(name, id=name, marks=[pytest.mark.skipif(bool(missing), reason=reason)])


@pytest.mark.parametrize("name", [*cases()])
def test_a_page_runs_in_a_project_of_its_own(name, python, tmp_path, page_cache, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(page_cache))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # ours leads nowhere
    warnings = "default" if "trl" in PAGES[name] else "error"
    assert run_page_with(python, TUTORIALS / f"{name}.md", tmp_path, warnings) > 0


def test_an_environment_that_sees_the_checkout_is_refused(python, tmp_path):
    """As an editable installation would: the page finds what it wants there, and that is no answer."""
    (tmp_path / "page.md").write_text("```python\nprint(1)\n```\n\n```text\n1\n```\n")
    assert run_page_with(python, tmp_path / "page.md", tmp_path) == 1
    with pytest.raises(AssertionError, match="not from the wheel"):
        run_page_with(environment(tmp_path / "env", ROOT), tmp_path / "page.md", tmp_path)


def test_the_wheel_holds_the_packages_and_what_they_read(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        (points,) = (name for name in file.namelist() if name.endswith(".dist-info/entry_points.txt"))
        entry_points = file.read(points).decode()
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {f"rftlab/{path.relative_to(ROOT)}" for path in files if path.suffix != ".pyc"}
    assert names == wanted | {"rftlab/__init__.py", "rftlab/py.typed"}
    assert any(name.endswith(".j2") for name in names) and any(name.endswith(".parquet") for name in names)
    assert "rftlab = rftlab.studies.cli.main:main" in entry_points
    assert "[verl.plugins]\nrftlab = rftlab.studies.integrations.verl" in entry_points


def test_a_release_is_small_and_its_files_agree_on_the_version(wheel):
    """The newest version of the changelog is that of pyproject.toml, where one was tagged."""
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert wheel.stat().st_size < LARGEST_WHEEL
    assert {wheel.name.split("-")[1], cited[1], *released[:1]} == {stated}


def test_installed_pins_are_for_every_python_that_we_name():
    """A pin that was made on a newer Python may leave out the first releases of the oldest one."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{asked.removeprefix('>=')}.0"
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:])
    pinned = [one for one in distributions() if pins.get(one.name.lower().replace("_", "-")) == one.version]
    needs = {one.name: one.metadata.get("Requires-Python") or "" for one in pinned}
    assert needs and [name for name, need in needs.items() if oldest not in SpecifierSet(need)] == []


@pytest.mark.skipif(not find_spec("verl"), reason="needs verl, in an environment of its own: make test-verl")
def test_verl_finds_the_plug_in_of_the_wheel(python, tmp_path):
    program = (
        "import verl, sys; from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as known; "
        "plugin = sys.modules['rftlab.studies.integrations.verl']; "
        "print(sum(name.startswith('rftlab_') for name in known), plugin.__file__)"
    )
    environment = {"VERL_USE_EXTERNAL_PLUGINS": "auto", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [python, "-c", program], cwd=tmp_path, capture_output=True, text=True, env=environment, check=True
    )
    count, where = done.stdout.split()[-2:]
    assert int(count) > 50 and Path(where).is_relative_to(python.parents[1])
