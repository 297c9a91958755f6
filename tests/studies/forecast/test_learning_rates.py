"""Forecasts at other learning rates: the law's curve is read where rate x rounds is equal."""

import numpy as np
import pytest

from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.studies.forecast.evidence import Evidence, Observed
from rftlab.studies.forecast.forecasters import QUICK, forecasts_at, quick_forecasts
from rftlab.studies.forecast.knobs import SHORT, Facts

FACTS = Facts(SHORT, 2048, 64, 0.1, 0.5)
ROUNDS = np.array([50, 100, 200, 400])


def design(rounds: int, batch_size: int = 32) -> Design:
    return Design(batch_size, 8, estimator=preset("grpo"), rounds=rounds, eval_every=rounds)


def evidence(rate: float | None = 1e-5) -> Evidence:
    """A run that rises from .1 to .5."""
    values = np.repeat([[0.2], [0.28], [0.38], [0.5]], 2, axis=1)
    return Evidence(FACTS, (Observed(design(400), ROUNDS, values, np.full((4, 2), 0.01), learning_rate=rate),))


def law_at(rate: float | None, rounds: int, known: float | None = 1e-5) -> float:
    return float(forecasts_at(evidence(known), (design(rounds),), (rate,))["law"].values[0])


@pytest.mark.parametrize("times", [0.25, 0.5, 2.0])
def test_a_rate_is_worth_as_many_rounds(times):
    there = law_at(1e-5 * times, 200)
    assert there == pytest.approx(law_at(None, round(200 * times)), abs=0.01)
    assert (there > law_at(None, 200) + 0.03) == (times > 1) and (there < law_at(None, 200) - 0.03) == (times < 1)


def test_without_both_rates_nothing_changes():
    plain = law_at(None, 200)
    assert law_at(None, 200, known=None) == law_at(2e-5, 200, known=None) == law_at(1e-5, 200) == plain


def test_cells_at_rates_of_their_own_keep_their_places():
    cells = tuple(design(200, batch_size) for batch_size in (8, 32, 64, 128))
    rates = (None, 2e-5, None, 2e-5)
    mixed = forecasts_at(evidence(), cells, rates)
    assert tuple(mixed) == tuple(QUICK)
    for rate in (None, 2e-5):
        at = [i for i, one in enumerate(rates) if one == rate]
        alone = quick_forecasts(evidence()._replace(learning_rate=rate), tuple(cells[i] for i in at))
        for name, one in mixed.items():
            for column in ("values", "low", "high"):
                np.testing.assert_array_equal(getattr(one, column)[at], getattr(alone[name], column))
        np.testing.assert_array_equal(mixed["law"].draws[:, at], alone["law"].draws)
    assert mixed["law"].values[1] > mixed["law"].values[0] and mixed["still"].draws is None
