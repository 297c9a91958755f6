"""The stale-cache trap: numba's disk cache of a caller does not see that a callee in another file was edited.

Both tests run the same edit on a copy of the packages, in processes of their own. With the folder that is keyed by a
hash of the sources the new code runs; with one folder for all versions the old code does, which shows that the first
test can fail.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rftlab

PACKAGE = Path(rftlab.__file__).parent
# shaped_rewards -> shape_into in shaping.py -> kl_penalty in kl.py: one token with k1 = d = 3 and coefficient 1, from a
# reward of 10
PROGRAM = """
from rftlab.shared.estimator import Estimator
from rftlab.shared.config.kl import KL
from rftlab.shared.prepare import shaped_rewards
from rftlab.shared.prepare import shape_into
reward = shaped_rewards(Estimator(kl=KL("k1", 1.0, "reward")), [10.0], [0, 1], [-1.0], [-4.0])[0]
print(reward, sum(shape_into.stats.cache_hits.values()))
"""
EDIT = """

@jit
def kl_penalty(rule, logp, ref_logp):
    return 2.0 * (logp - ref_logp), 2.0
"""
ONE_FOLDER = '\nsource_hash = lambda: "every version"\n'


@pytest.fixture
def run(tmp_path):
    """A function that runs `PROGRAM` on a copy of the packages in `tmp_path` and gives the reward and the number of
    cache hits."""
    shutil.copytree(PACKAGE, tmp_path / "rftlab", ignore=shutil.ignore_patterns("__pycache__", "llm", "studies"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "PYTHON"))}
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def once(folder=tmp_path) -> tuple[float, int]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        reward, hits = done.stdout.split()
        return float(reward), int(hits)

    return once


def append(path: Path, text: str, before: str = "") -> None:
    """Add text to a file: before the one line that begins with `before`, or at the end."""
    source = path.read_text()
    if before:
        assert source.count(f"\n{before}") == 1, f"{path.name} has no single line that begins with {before!r}"
        source = source.replace(f"\n{before}", f"{text}\n{before}")
    path.write_text(source if before else source + text)


def test_edited_callee_runs(run, tmp_path):
    assert run() == (7.0, 0)
    assert run() == (7.0, 1), "an unchanged source must come from the cache"
    append(tmp_path / "rftlab" / "shared" / "kl.py", EDIT)
    assert run() == (4.0, 0)
    assert len([folder for folder in (tmp_path / "cache").iterdir() if folder.is_dir()]) == 2, (
        "one cache folder per version of the sources"
    )


def test_a_copy_elsewhere_runs_what_was_compiled_here(run, tmp_path):
    assert run() == (7.0, 0)
    shutil.copytree(tmp_path / "rftlab", tmp_path / "elsewhere" / "rftlab", copy_function=shutil.copyfile)
    assert run(tmp_path / "elsewhere") == (7.0, 1)


def test_trap_is_real(run, tmp_path):
    """Without the key, the same edit is not seen. Should numba ever see it by itself, this fails, and the key can
    go."""
    append(tmp_path / "rftlab" / "shared" / "plumbing" / "jit.py", ONE_FOLDER, before="CACHE_FOLDER =")
    assert run() == (7.0, 0)
    append(tmp_path / "rftlab" / "shared" / "kl.py", EDIT)
    assert run() == (7.0, 1)
