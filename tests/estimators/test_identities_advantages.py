"""Equations between advantages that hold whatever the numbers are."""

import pytest

from tests.support.checks.identities_advantages import CHECKS
from tests.support.estimators.vectors import REAL

# --- sampling ---


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_identity(check):
    check(REAL)
