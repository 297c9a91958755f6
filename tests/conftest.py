"""Settings of every test: hypothesis draws the same examples each time and leaves no database behind."""

import numba
import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("rftlab", deadline=None, derandomize=True, database=None)
settings.load_profile("rftlab")

if numba.config.DISABLE_JIT:
    np.seterr(divide="ignore", invalid="ignore")  # what error_model="numpy" is for compiled code


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory):
    """Where the base models of a test session are kept."""
    return tmp_path_factory.mktemp("models")
