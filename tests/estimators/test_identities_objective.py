"""Equations between surrogates, levels of the ratio and masks that hold whatever the numbers are."""

import pytest

from tests.support.checks.identities_objective import CHECKS
from tests.support.estimators.vectors import REAL

# --- masks ---


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_identity(check):
    check(REAL)
