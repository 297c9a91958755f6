"""The forecast that is recommended. From a pilot the simulator's, where its worlds do what the known runs did, else the
law's; from imported runs the known curve's.

Which of the first two it is, the known runs decide alone. A world that cannot end the runs that it was fitted to where
they ended knows nothing of others; the law then has the same runs, and less to be wrong in. On runs of pre-trained
models neither was ahead of reading the known curve (docs/forecast.md).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.design import Design
from rftlab.studies.forecast.evidence import Evidence
from rftlab.studies.forecast.law.curve import CellForecast
from rftlab.studies.forecast.law.limits import FAILING, beyond
from rftlab.studies.forecast.predict import Forecast

MISFIT = 0.1
"""Mean distance from the ends of the known runs above which the simulator is not asked. Chosen by hand, between the
`tiny` pilots (0.02 to 0.05) and SmolLM2 (0.3)."""
ForecastSource = Literal["simulator", "law", "curve"]


class Recommended(NamedTuple):
    """A forecast, and whose it is."""

    source: ForecastSource
    forecast: CellForecast


def recommended(
    simulated: Forecast | None,
    law: CellForecast,
    outside: Sequence[str] = (),
    curve: CellForecast | None = None,
) -> Recommended:
    """simulated: None where nothing was calibrated. Where the law has nothing to say, the simulator's in any case.
    curve: of imported runs, whose forecast it is.
    outside: why each cell is beyond what was measured, "" where it is not (studies/forecast/law/limits.py); such a cell
    gets a low forecast with a wide interval."""
    if curve is not None:
        return Recommended("curve", _limited(curve, outside))
    if simulated is not None and (simulated.misfit <= MISFIT or law.draws is None):
        return Recommended("simulator", _limited(simulated.forecast, outside))
    return Recommended("law", _limited(law, outside))


def _limited(forecast: CellForecast, outside: Sequence[str]) -> CellForecast:
    far = np.array([bool(reason) for reason in outside])
    if not far.any():
        return forecast
    middle, low, high = FAILING
    draws = None if forecast.draws is None else np.where(far, middle, forecast.draws)
    bounds = (middle, low, np.fmax(forecast.high, high))
    values, lows, highs = (np.where(far, value, own) for own, value in zip(forecast[:3], bounds, strict=True))
    return CellForecast(values, lows, highs, draws)


def outside(evidence: Evidence, cells: Sequence[Design], rates: Sequence[float | None], split: str) -> list[str]:
    """Why each cell is beyond what was measured; "" where it is not. rates: None where it is that of the known runs."""
    runs = evidence.tried(split)
    return [beyond(cell, rate, runs) for cell, rate in zip(cells, rates, strict=True)]


def best_design(table: pd.DataFrame) -> str:
    """The cell in budget with the highest forecast that is not outside what was measured; "" where there is none.
    table: columns cell, forecast, in_budget, outside."""
    inside = table[table["in_budget"] & (table["outside"] == "") & table["forecast"].notna()]
    return "" if inside.empty else str(inside.sort_values("forecast").iloc[-1]["cell"])
