"""Somebody adds an estimator from CONTRIBUTING.md alone: its blocks are applied to a copy, its commands are run."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import COMMAND, apply_diff, blocks_of
from tests.support.estimators.vectors import ROOT

pytest.importorskip("torch", reason="the page tests the trainer too, which needs the extra llm: make test-llm")

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
COPIED = ("rftlab", "shared", "sim", "llm", "studies", "tests", "docs", "examples", "pyproject.toml", "README.md")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess:
    """Run a command in a copy, with what is imported from there."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path) -> Path:
    """What a clone has, by the names of the project alone."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_an_estimator_is_added_by_what_the_page_says(copy):
    blocks = blocks_of(PAGE)
    for block in blocks:
        if block.language == "diff":
            apply_diff(block.text, copy)
    commands = [line for block in blocks if block.language == "sh" for line in block.text.splitlines()]
    assert len(commands) == 4
    assert len({path for block in blocks if block.language == "diff" for path in block.text.split()[1:2]}) == 4
    for line in commands:
        name, *rest = shlex.split(line)
        done = run(copy, *COMMAND[name], *rest)
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    made = run(copy, sys.executable, "-c", MEDIAN)
    where, *values = made.stdout.split()
    assert values == ["-1.0", "0.0", "2.0", "0.0", "-3.0", "4.0"], made.stderr[-3000:]
    assert Path(where).is_relative_to(copy)


def test_a_name_without_a_kernel_is_refused(copy):
    """What steps 1 and 3 to 5 alone make never trains another estimator."""
    for block in blocks_of(PAGE):
        if block.language == "diff" and "--- shared/advantage.py" not in block.text:
            apply_diff(block.text, copy)
    made = run(copy, sys.executable, "-c", MEDIAN)
    assert made.returncode and "advantage.baseline has a name that no kernel computes" in made.stderr


MEDIAN = """
import rftlab as rl
print(rl.__file__)
spec = rl.Estimator(rl.Advantage("median"))
print(*rl.losses.advantages([1.0, 2.0, 4.0, 5.0, 2.0, 9.0], [0, 0, 0, 1, 1, 1], estimator=spec).tolist())
"""


def test_a_wrong_kernel_does_not_pass(copy):
    """The twin sees a mean in the place of the median."""
    for block in blocks_of(PAGE):
        if block.language == "diff":
            apply_diff(block.text.replace("np.median(", "np.mean("), copy)
    tests = ("tests/estimators/test_naive.py", "-k", "advantages")
    done = run(copy, sys.executable, "-m", "pytest", "-q", "-x", *tests)
    assert done.returncode == 1 and "advantages" in done.stdout


def test_a_block_that_fits_nowhere_is_named(copy):
    with pytest.raises(AssertionError, match="0 times"):
        apply_diff("--- README.md\n-no such line\n+another", copy)
