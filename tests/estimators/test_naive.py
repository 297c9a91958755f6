"""Baseline sets, advantages, windows, averages and sampling against their slow twins, on random batches, to 1e-12."""

import pytest

from tests.support.checks.naive import CHECKS
from tests.support.estimators.vectors import REAL


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_twin(check):
    check(REAL)
