"""Single numbers of forecasts: what one wrong sign or bound would change."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.curve import Curve
from rftlab.shared.design import Design
from rftlab.sim.config import Linear
from rftlab.studies.forecast.evidence import observe
from rftlab.studies.forecast.knobs import answer_rates, as_right
from rftlab.studies.forecast.plain import per_round

BLUNT = Linear(n_train=256, n_test=32, n_features=32, n_answers=8, kappa=0.2)


def test_the_error_of_a_point_is_binomial():
    rounds = np.arange(0, 50, 10)
    rates = np.array([0.1, 0.2, 0.5, 0.9, 1.0])
    nothing = np.zeros(5)
    columns = dict.fromkeys(Curve._fields, nothing) | {"round": rounds}
    curve = Curve(**columns | {"train_pass_at_1": rates, "test_pass_at_1": rates[::-1].copy()})
    found = observe(Design(8, 1), curve, (400, 100), responses=4)
    inner = np.clip(found.values, 0.01, 0.99)
    np.testing.assert_allclose(found.errors, np.sqrt(inner * (1 - inner) / [1600, 400]))
    assert found.errors[list(found.rounds).index(20), 1] == pytest.approx(0.5 / 20)
    assert found.errors[-1, 0] == pytest.approx(np.sqrt(0.01 * 0.99 / 1600))


def test_where_align_is_too_little_kappa_is_raised_and_where_that_is_too_little_there_is_no_world():
    reach = answer_rates(replace(BLUNT, align=1.0)).mean()
    wanted = (1 + reach) / 2
    found = as_right(BLUNT, wanted)
    assert found is not None and found.align == 1.0 and found.kappa > BLUNT.kappa
    assert as_right(BLUNT, 0.999999) is None
    assert as_right(BLUNT, 0.01) is None


def test_rollouts_of_a_round_count_support():
    assert per_round(Design(8, 3, support_rollouts=2)) == 40
