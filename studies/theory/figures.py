"""The figures of the theory page. Drawn like those of studies/report/figures.py: no pyplot, the same look, equal data
give equal bytes.

Each takes a table of a function `curves_...` below, names its lines at their right ends, and returns the figure with
the table.
"""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from rftlab.studies.report.figures import GREY, PALETTE, Drawn, styled
from rftlab.studies.theory.bandits import equal_grid, minimax_grid, worst_regret
from rftlab.studies.theory.dynamics import plateau_times
from rftlab.studies.theory.models import RLOO, beta_rates, measured_factor, zscore
from rftlab.studies.theory.replay import measured_error, old_rates
from rftlab.studies.theory.splits import budget_terms, total_variance

SIZE = (5.4, 3.5)
_MIN: dict[str, Any] = {"marker": "o", "markersize": 6, "linestyle": "none", "zorder": 5}
_RAW: dict[str, Any] = {"marker": "s", "markersize": 6, "markeredgewidth": 1.3, "linestyle": "none", "zorder": 5}


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE)
    return figure, figure.subplots()


def _shades(count: int) -> list[str]:
    """Sequential colours, dark first, none too light to read."""
    return sns.color_palette("viridis", count + 1).as_hex()[:count]


def _lines(
    ax: Axes,
    table: pd.DataFrame,
    name: str,
    x: str,
    y: str,
    texts: dict,
    colours: list[str],
    shifts: dict | None = None,
    **style,
) -> None:
    """A line for each value of column `name`, with its text at the right end, moved up by `shifts` points where two
    would touch."""
    for (value, line), color in zip(table.groupby(name, sort=False), colours, strict=True):
        ax.plot(line[x], line[y], color=color, **style)
        place: dict[str, Any] = {
            "xytext": (5, (shifts or {}).get(value, 0)),
            "textcoords": "offset points",
            "va": "center",
            "annotation_clip": False,
        }
        ax.annotate(
            texts.get(value, str(value)), (line[x].iloc[-1], line[y].iloc[-1]), color=color, fontsize=9, **place
        )
        if "best" in line:
            ax.plot(line[x][line["best"]], line[y][line["best"]], color=color, **_MIN)


def _decades(axis) -> None:
    """Ticks at powers of ten alone."""
    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


@styled
def weights(table: pd.DataFrame) -> Drawn:
    """Weight of a context's gradient under GRPO against its pass rate."""
    figure, ax = _panel()
    ax.axhline(1, color=GREY, linestyle="--", linewidth=1)
    ax.annotate(
        "unbiased", (0.5, 1), xytext=(0, -4), textcoords="offset points", ha="center", va="top", color=GREY, fontsize=9
    )
    names = list(table["K"].unique())
    _lines(ax, table, "K", "p", "W", {name: f"K = {name}" for name in names}, _shades(len(names)))
    ax.set(
        yscale="log",
        xlabel="pass rate p of the context",
        ylabel="weight W(p) on its gradient",
        xlim=(0, 1),
        ylim=(0.5, 12),
    )
    ax.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    ax.yaxis.set_minor_locator(NullLocator())
    return figure, table


@styled
def variance(table: pd.DataFrame) -> Drawn:
    """Gradient variance at a fixed number of rollouts against rollouts per context; squares: K = 1, the raw reward;
    the least of a case is filled."""
    figure, ax = _panel()
    colours = _shades(table["case"].nunique())
    _lines(
        ax,
        table[table["K"] > 1],
        "case",
        "K",
        "variance",
        {},
        colours,
        dict(zip(table["case"].unique()[:2], (-5, 5), strict=True)),
    )
    for (_, raw), color in zip(table[table["K"] == 1].groupby("case", sort=False), colours, strict=True):
        ax.plot(raw["K"], raw["variance"], color=color, **_RAW, markerfacecolor=color if raw["best"].all() else "white")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="rollouts per context K (contexts B = N/K)",
        ylabel="variance × rollouts N",
        xlim=(0.93, table["K"].max()),
    )
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= table["K"].max()]
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    return figure, table


@styled
def plateau(table: pd.DataFrame) -> Drawn:
    """Time to reach a pass rate of one half against the base pass rate, harder to the right."""
    figure, ax = _panel()
    _lines(
        ax,
        table.sort_values("p0", ascending=False, kind="stable"),
        "estimator",
        "p0",
        "time",
        {},
        _shades(table["estimator"].nunique()),
    )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="base pass rate p₀ (harder to the right)",
        ylabel="time until p = 1/2 (rate × rounds)",
    )
    ax.set_xlim(table["p0"].max(), table["p0"].min())
    _decades(ax.xaxis)
    _decades(ax.yaxis)
    return figure, table


@styled
def replay(table: pd.DataFrame) -> Drawn:
    """Error of a replayed baseline against the window, next to that of the last visit alone; the best window of each
    drift is marked."""
    figure, ax = _panel()
    drifts = table["drift"].unique()
    _lines(
        ax,
        table,
        "drift",
        "window",
        "mse",
        {drift: f"drift {drift:g}" for drift in drifts},
        _shades(len(drifts)),
        {0.01: 8, 0.03: 8},
    )
    alone = table.loc[table["window"] == 1, "mse"].mean()
    ax.axhline(alone, color=GREY, linestyle="--", linewidth=1)
    ax.annotate("last visit alone", (2.2, alone), xytext=(0, 4), textcoords="offset points", color=GREY, fontsize=9)
    ax.set(
        xscale="log", yscale="log", xlabel="window (past visits of the context)", ylabel="squared error of the baseline"
    )
    ax.set(xlim=(1, table["window"].max()), ylim=(0.8 * table["mse"].min(), 1.4 * alone))
    ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    ax.set_yticks([0.005, 0.01, 0.02, 0.05], ["0.005", "0.01", "0.02", "0.05"])
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    return figure, table


@styled
def regret(table: pd.DataFrame) -> Drawn:
    """Worst regret over the best possible rate against the horizon; growing batches solid, equal ones dashed."""
    figure, ax = _panel()
    for grid, rows in table.groupby("grid", sort=False):
        many = list(rows["batches"].unique())
        colours = [PALETTE[3]] * len(many) if grid == "equal" else _shades(len(many))
        texts = {batches: f"{batches} {grid}" for batches in many}
        _lines(
            ax,
            rows,
            "batches",
            "horizon",
            "ratio",
            texts,
            colours,
            {4: 3, 5: -3} if grid == "growing" else None,
            linestyle="--" if grid == "equal" else "-",
        )
    ax.set(xscale="log", yscale="log", xlabel="steps T", ylabel="worst regret / √(T log 2T)", xlim=(1e4, 1e12))
    ax.set_xticks(np.logspace(4, 12, 5))
    _decades(ax.yaxis)
    return figure, table


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
