"""The forecast that is recommended: the simulator's where its worlds do what the known runs did, else the law's.

Which of the two it is, the known runs decide alone. A world that cannot end the runs that it was fitted to where they
ended knows nothing of others; the law then has the same runs, and less to be wrong in.
"""

from typing import Literal, NamedTuple

import numpy as np

from rftlab.studies.forecast.plain import CellForecast, bare
from rftlab.studies.forecast.predict import Forecast

MISFIT = 0.1
"""Mean distance from the ends of the known runs above which the simulator is not asked. Chosen by hand, between the
`tiny` pilots (0.02 to 0.05) and SmolLM2 (0.3)."""
ForecastSource = Literal["simulator", "law"]


class Recommended(NamedTuple):
    """A forecast, and whose it is."""

    source: ForecastSource
    forecast: CellForecast


def recommended(simulated: Forecast | None, law: CellForecast) -> Recommended:
    """simulated: None where nothing was calibrated. Where the law has nothing to say, the simulator's in any case."""
    if simulated is not None and (simulated.misfit <= MISFIT or law.draws is None):
        return Recommended("simulator", simulated.forecast)
    return Recommended("law", law)


def halfway(simulated: Forecast | None, law: CellForecast) -> CellForecast:
    """The mean of the two, without an interval; nan where one of them says nothing. It is scored, not recommended."""
    return bare(np.full(len(law.values), np.nan) if simulated is None else (simulated.mean + law.values) / 2)
