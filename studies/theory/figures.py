"""The figures of the theory page. Each takes a table of a function `curves_...` below, names its lines at their
right ends, and returns a chart with the table."""

import numpy as np
import pandas as pd

from rftlab.studies.report.chart import (
    PALETTE,
    Chart,
    Drawn,
    MarkStyle,
    Outline,
    Panel,
    PlotAxis,
    PlotSeries,
    Remark,
    rule,
    shades,
)
from rftlab.studies.theory.bandits import equal_grid, minimax_grid, worst_regret
from rftlab.studies.theory.dynamics import plateau_times
from rftlab.studies.theory.models import RLOO, beta_rates, measured_factor, zscore
from rftlab.studies.theory.replay import measured_error, old_rates
from rftlab.studies.theory.splits import budget_terms, total_variance

_BEST, _RAW = "o", "s"


def _lines(
    table: pd.DataFrame, name: str, x: str, y: str, texts: dict, colours: list[str], up: dict | None = None, dash="-"
) -> tuple[list[PlotSeries], list[Remark]]:
    """A line for each value of column `name`, and its text at the right end, moved up by `up` points where two would
    touch. The rows marked `best` get a dot."""
    series, remarks = [], []
    for (value, line), colour in zip(table.groupby(name, sort=False), colours, strict=True):
        text = texts.get(value, str(value))
        series.append(PlotSeries(line[x], line[y], MarkStyle(colour, dash), text))
        remarks.append(Remark(line[x].iloc[-1], line[y].iloc[-1], text, colour, (up or {}).get(value, 0)))
        if "best" in line and line["best"].any():
            best = line[line["best"]]
            series.append(PlotSeries(best[x], best[y], MarkStyle(colour, "", marker=_BEST, size=6), f"{text} · best"))
    return series, remarks


def _chart(
    x: PlotAxis, y: PlotAxis, lines: tuple[list[PlotSeries], list[Remark]], shapes: tuple[Outline, ...] = ()
) -> Chart:
    return Chart((Panel("", x, y, tuple(lines[0]), shapes, tuple(lines[1])),), (6.4, 3.5))


def weights(table: pd.DataFrame) -> Drawn:
    """Weight of a context's gradient under GRPO against its pass rate."""
    sizes = list(table["K"].unique())
    lines = _lines(table, "K", "p", "W", {size: f"K = {size}" for size in sizes}, shades(len(sizes)))
    lines[1].append(Remark(0.45, 1.0, "unbiased", up=-7))
    ticks = {value: f"{value:g}" for value in (0.5, 1, 2, 5, 10)}
    y = PlotAxis("weight W(p) on its gradient", "log", 0.5, 12, ticks)
    return _chart(PlotAxis("pass rate p of the context", low=0.0, high=1.0), y, lines, (rule(1.0),)), table


def variance(table: pd.DataFrame) -> Drawn:
    """Gradient variance at a fixed number of rollouts against rollouts per context; squares: K = 1, the raw reward;
    the least of a case is filled."""
    colours, top = shades(table["case"].nunique()), table["K"].max()
    up = dict(zip(table["case"].unique()[:2], (-5, 5), strict=True))
    series, remarks = _lines(table[table["K"] > 1], "case", "K", "variance", {}, colours, up)
    for (case, raw), colour in zip(table[table["K"] == 1].groupby("case", sort=False), colours, strict=True):
        style = MarkStyle(colour, "", marker=_RAW, size=6, hollow=not raw["best"].all())
        series.append(PlotSeries(raw["K"], raw["variance"], style, f"{case} · raw reward"))
    ticks = {size: str(size) for size in (1, 2, 4, 8, 16, 32, 64) if size <= top}
    x = PlotAxis("rollouts per context K (contexts B = N/K)", "log", 0.93, top, ticks)
    return _chart(x, PlotAxis("variance × rollouts N", "log"), (series, remarks)), table


def plateau(table: pd.DataFrame) -> Drawn:
    """Time to reach a pass rate of one half against the base pass rate, harder to the right."""
    ordered = table.sort_values("p0", ascending=False, kind="stable")
    lines = _lines(ordered, "estimator", "p0", "time", {}, shades(table["estimator"].nunique()))
    x = PlotAxis("base pass rate p₀ (harder to the right)", "log", table["p0"].max(), table["p0"].min())
    return _chart(x, PlotAxis("time until p = 1/2 (rate × rounds)", "log"), lines), table


def replay(table: pd.DataFrame) -> Drawn:
    """Error of a replayed baseline against the window, next to that of the last visit alone; the best window of each
    drift is marked."""
    drifts, alone = table["drift"].unique(), table.loc[table["window"] == 1, "mse"].mean()
    texts = {drift: f"drift {drift:g}" for drift in drifts}
    lines = _lines(table, "drift", "window", "mse", texts, shades(len(drifts)), {0.01: 8, 0.03: 8})
    lines[1].append(Remark(2.0, alone, "last visit alone", up=8))
    x = PlotAxis(
        "window (past visits of the context)", "log", 1, table["window"].max(), {n: str(n) for n in (1, 3, 10, 30, 100)}
    )
    ticks = {value: f"{value:g}" for value in (0.005, 0.01, 0.02, 0.05)}
    y = PlotAxis("squared error of the baseline", "log", 0.8 * table["mse"].min(), 1.4 * alone, ticks)
    return _chart(x, y, lines, (rule(alone),)), table


def regret(table: pd.DataFrame) -> Drawn:
    """Worst regret over the best possible rate against the horizon; growing batches solid, equal ones dashed."""
    series, remarks = [], []
    for grid, rows in table.groupby("grid", sort=False):
        many = list(rows["batches"].unique())
        equal = grid == "equal"
        colours = [PALETTE[3]] * len(many) if equal else shades(len(many))
        texts = {batches: f"{batches} {grid}" for batches in many}
        up, dash = (None, "--") if equal else ({4: 3, 5: -3}, "-")
        lines = _lines(rows, "batches", "horizon", "ratio", texts, colours, up, dash)
        series += lines[0]
        remarks += lines[1]
    x, y = PlotAxis("steps T", "log", 1e4, 1e12), PlotAxis("worst regret / √(T log 2T)", "log")
    return _chart(x, y, (series, remarks)), table


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
