"""The exponential that vectorises, against the library's in long double."""

import numpy as np
import pytest

from rftlab.shared.plumbing.arithmetic import HIGHEST, LOWEST, exp


def exponentials(values) -> np.ndarray:
    return np.array([exp(float(x)) for x in values])


def error(values, function=exponentials) -> float:
    """Largest relative error."""
    exact = np.exp(np.asarray(values, dtype=np.longdouble))
    return float(np.abs(function(values) / exact - 1).max())


@pytest.mark.parametrize("reach", [1e-9, 0.3, 20.0, 700.0])
def test_it_is_right_to_a_few_units_in_the_last_place(reach):
    assert error(np.linspace(-reach, reach, 20001)) < 4e-16


def test_a_polynomial_that_ends_two_terms_early_is_seen():
    assert (
        error(
            np.linspace(-0.34, 0.34, 1001),
            lambda x: sum(x**k / float(np.prod(np.arange(1.0, k + 1))) for k in range(12)),
        )
        > 4e-15
    )


def test_one_is_exact_and_order_is_kept():
    assert exp(0.0) == exp(-0.0) == 1.0
    steps = exponentials(np.linspace(-1e-12, 1e-12, 201))
    assert (np.diff(steps) >= 0).all()


def test_it_is_held_where_numbers_end():
    assert exp(1e4) == exp(HIGHEST) < np.inf and exp(-np.inf) == exp(LOWEST) > 0


def test_not_a_number_stays_so():
    assert np.isnan(exp(np.nan))
