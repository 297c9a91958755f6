"""Shares, corrections, masks, surrogates, penalties and the whole way from rewards to weights against their slow
twins, to 1e-12."""

from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from rftlab.shared.config.mask import Mask, TopEntropy
from rftlab.shared.config.surrogate import CustomSurrogate, Surrogate
from tests.support.checks.naive_objective import CHECKS
from tests.support.estimators.random_batches import MASKS, SURROGATES
from tests.support.estimators.vectors import REAL, no_kl


@pytest.mark.parametrize(("table", "union"), [(SURROGATES, Surrogate), (MASKS, Mask)], ids=("surrogates", "masks"))
def test_random_estimators_have_every_kind_with_every_number(table, union):
    """But for functions of a user's own, which tests/estimators/test_custom.py has."""
    assert {kind for kind, _ in table} == set(get_args(union)) - {CustomSurrogate}
    for kind, choices in table:
        assert set(choices) == {field.name for field in fields(kind)}, kind.__name__


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_twin(check):
    check(REAL)


@pytest.mark.parametrize(("fraction", "kept"), [(0.2, [0, 2, 11]), (0.5, [0, 1, 2, 8, 9, 11])])
def test_top_entropy_keeps_what_trl_keeps(fraction, kept):
    """`GRPOTrainer.get_high_entropy_mask` of TRL 1.16.0, threshold 1 - fraction, on rows of 5, 3 and 4 tokens."""
    entropies = [1.99, 0.75, 1.3, 0.53, 0.03, 0.43, 0.64, 0.12, 1.09, 1.17, 0.23, 2.18]
    estimator, logp = no_kl(mask=TopEntropy(fraction)), -np.ones(12)
    batch = REAL.batch_from_advantages(estimator, np.ones(12), np.array([0, 5, 8, 12]), logp)
    assert np.flatnonzero(REAL.apply_mask(estimator, batch, logp, np.array(entropies)).share).tolist() == kept
