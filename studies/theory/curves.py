"""What the report's theory figures show, as tables."""

import numpy as np
import pandas as pd

from rftlab.studies.theory.bandits import equal_grid, minimax_grid, worst_regret
from rftlab.studies.theory.dynamics import plateau_times
from rftlab.studies.theory.models import RLOO, beta_rates, measured_factor, zscore
from rftlab.studies.theory.replay import measured_error, old_rates
from rftlab.studies.theory.splits import budget_terms, total_variance


def curves_plateau(points: int = 61) -> pd.DataFrame:
    """Time to learn to a pass rate of .5 against the base pass rate: columns estimator, p0 (1e-5 to .1), time (rate
    times rounds). Both axes log.

    From exact expected flows of the one-logit model (T19, T20); GRPO divides by the sample standard deviation where K
    is finite.
    """
    p0 = np.logspace(-5, -1, points)
    return pd.concat(
        [pd.DataFrame({"estimator": name, "p0": p0, "time": times}) for name, times in plateau_times(p0).items()],
        ignore_index=True,
    )


def curves_regret() -> pd.DataFrame:
    """Exact worst regret of batched bandits over √(T log 2T): columns grid (growing, equal), batches, horizon (T, 1e4
    to 1e12), ratio. Both axes log.

    Growing batches are those of the minimax grid (T26, T28); two arms, gaps up to 1.
    """
    rows = []
    for grid, ends, many in (("growing", minimax_grid, (2, 3, 4, 5)), ("equal", equal_grid, (4, 16, 64))):
        for batches in many:
            for horizon in np.logspace(4, 12, 9):
                ratio = worst_regret(ends(horizon, batches), 60)[0] / np.sqrt(horizon * np.log(2 * horizon))
                rows.append((grid, batches, horizon, ratio))
    return pd.DataFrame(rows, columns=["grid", "batches", "horizon", "ratio"])


def curves_w(ks: tuple[float, ...] = (2, 4, 8, float("inf")), points: int = 99) -> pd.DataFrame:
    """Weight of a context under GRPO (sample std) against its pass rate: columns K (text, ∞ too), p (.01 to .99), W.
    Log W.

    T3; unbiased is W = 1. K = ∞ is the limit 1/√(pq).
    """
    p = np.linspace(0.01, 0.99, points)
    factors = {k: 1 / np.sqrt(p * (1 - p)) if np.isinf(k) else measured_factor(zscore(1), int(k), p) for k in ks}
    return pd.concat(
        [pd.DataFrame({"K": "∞" if np.isinf(k) else f"{int(k)}", "p": p, "W": w}) for k, w in factors.items()],
        ignore_index=True,
    )


SPLITS = {
    "uniform p, ν² = 0": (beta_rates(1, 1), 0.0),
    "Beta(1, 3), ν² = 0": (beta_rates(1, 3), 0.0),
    "Beta(1, 3), ν² = 1": (beta_rates(1, 3), 1.0),
    "Beta(1, 3), ν² = 4": (beta_rates(1, 3), 4.0),
}


def curves_variance(largest: int = 32) -> pd.DataFrame:
    """Total gradient variance at a fixed number N of rollouts against rollouts per context: columns case, K, variance
    (N V), best, optimum. Both axes log.

    T13, T14, D1: one shared feature (ρ = 1), RLOO, the raw reward at K = 1. `best` marks the least variance of a case,
    `optimum` is its K* among K ≥ 2.
    """
    rows = []
    for case, (rates, nuisance) in SPLITS.items():
        slope, _, bend, _ = budget_terms(rates, 1.0, nuisance)
        variances = [total_variance(RLOO, size, rates, 1.0, nuisance) for size in range(1, largest + 1)]
        rows += [(case, size, v, v == min(variances), 1 + np.sqrt(bend / slope)) for size, v in enumerate(variances, 1)]
    return pd.DataFrame(rows, columns=["case", "K", "variance", "best", "optimum"])


def curves_replay(
    drifts: tuple[float, ...] = (0.003, 0.01, 0.03), p: float = 0.5, m: int = 4, longest: int = 100
) -> pd.DataFrame:
    """Error of a replayed baseline against window length: columns drift (of p per visit), window (visits), mse, best,
    useful. Both axes log.

    T17, D2: m rollouts per visit, a rising pass rate that is now p. `useful` marks windows no worse than the last visit
    alone.
    """
    parts = []
    for drift in drifts:
        mse = measured_error(old_rates(p, drift, longest), m, p)
        window = np.arange(1, mse.size + 1)
        parts.append(
            pd.DataFrame(
                {"drift": drift, "window": window, "mse": mse, "best": mse == mse.min(), "useful": mse <= mse[0]}
            )
        )
    return pd.concat(parts, ignore_index=True)
