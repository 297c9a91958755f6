"""Random estimators reach every kind of estimator that there is."""

from dataclasses import fields
from typing import get_args

import pytest

from rftlab.shared.config.mask import Mask
from rftlab.shared.config.surrogate import CustomSurrogate, Surrogate
from tests.support.estimators.random_batches import MASKS, SURROGATES


@pytest.mark.parametrize(("table", "union"), [(SURROGATES, Surrogate), (MASKS, Mask)], ids=("surrogates", "masks"))
def test_every_kind_is_drawn_with_every_number(table, union):
    assert {kind for kind, _ in table} == set(get_args(union)) - {
        CustomSurrogate
    }  # tests/estimators/test_custom.py has those
    for kind, choices in table:
        assert set(choices) == {field.name for field in fields(kind)}, kind.__name__
