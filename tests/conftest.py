"""Settings of every test: hypothesis draws the same examples each time and leaves no database behind."""

import numba
import numpy as np
from hypothesis import settings

settings.register_profile("rftlab", deadline=None, derandomize=True, database=None)
settings.load_profile("rftlab")

if numba.config.DISABLE_JIT:
    np.seterr(divide="ignore", invalid="ignore")  # what error_model="numpy" is for compiled code
