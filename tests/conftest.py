"""Settings of every test: hypothesis draws the same examples each time and leaves no database behind.

Tests of the trainer need the extra `llm`; without it they are left out, and tests/llm/test_installed.py is skipped and
says so.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.web.browser import browser  # noqa: F401

settings.register_profile("rftlab", deadline=None, derandomize=True, database=None)
settings.load_profile("rftlab")

NO_TORCH = ("benchmarks", "installed", "lock", "pool", "tasks", "tracking", "verify")
_FILES = Path(__file__).parent.glob("llm/**/test_*.py")
_TRAINER = [str(path) for path in _FILES if path.stem.removeprefix("test_") not in NO_TORCH]
collect_ignore = [] if find_spec("torch") and find_spec("transformers") else _TRAINER


def pytest_configure():
    """Hand the compile cache of this process to all processes that tests start, also where a test gives them another
    cache folder. End the session where RFTLAB_GOLDEN is mistyped: the tests that read it would be skipped."""
    from rftlab.shared.plumbing.jit import CACHE_FOLDER
    from tests.support.estimators.vectors import WHOLE, folder_of

    if CACHE_FOLDER:
        os.environ["NUMBA_CACHE_DIR"] = str(CACHE_FOLDER.parent)
    if os.environ.get("RFTLAB_GOLDEN") and not any(folder_of(WHOLE).glob("*.json")):
        raise pytest.UsageError(
            f"RFTLAB_GOLDEN: {folder_of(WHOLE)} holds no json file; allowed: a folder of reference vectors, or "
            "no RFTLAB_GOLDEN"
        )


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory):
    """Where the base models of a test session are kept."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def page_cache(tmp_path_factory):
    """Where the base models of pages are kept: one folder for all processes of a test session."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "models-of-pages"
