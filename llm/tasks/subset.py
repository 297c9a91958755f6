"""Which problems are evaluated; apart from tasks, which configurations name without NumPy."""

import numpy as np


def subset(n: int, size: int) -> np.ndarray:
    """The problems that are evaluated: the same for every run and every seed."""
    return np.sort(np.random.Generator(np.random.Philox(n)).permutation(n)[:size])
