"""What the report's theory figures show, as tables."""

import numpy as np
import pandas as pd

from studies.theory.bandits import equal_grid, minimax_grid, worst_regret
from studies.theory.dynamics import plateau_times


def curves_plateau(points: int = 61) -> pd.DataFrame:
    """Time to learn to a pass rate of .5 against the base pass rate: columns estimator, p0 (1e-5 to .1), time (rate times rounds). Both axes log.

    From exact expected flows of the one-logit model (T19, T20); GRPO divides by the sample standard deviation where K is finite.
    """
    p0 = np.logspace(-5, -1, points)
    return pd.concat([pd.DataFrame({"estimator": name, "p0": p0, "time": times}) for name, times in plateau_times(p0).items()], ignore_index=True)


def curves_regret() -> pd.DataFrame:
    """Exact worst regret of batched bandits over √(T log 2T): columns grid (growing, equal), batches, horizon (T, 1e4 to 1e12), ratio. Both axes log.

    Growing batches are those of the minimax grid (T26, T28); two arms, gaps up to 1.
    """
    rows = []
    for grid, ends, many in (("growing", minimax_grid, (2, 3, 4, 5)), ("equal", equal_grid, (4, 16, 64))):
        for batches in many:
            for horizon in np.logspace(4, 12, 9):
                ratio = worst_regret(ends(horizon, batches), 100)[0] / np.sqrt(horizon * np.log(2 * horizon))
                rows.append((grid, batches, horizon, ratio))
    return pd.DataFrame(rows, columns=["grid", "batches", "horizon", "ratio"])
