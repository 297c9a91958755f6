"""Write the theory section of the report: statements with formulas, measured numbers, verdicts, corrections of the
literature and figures. A figure function computes a table, and returns it with a chart whose lines are named at their
right ends."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

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
from rftlab.studies.report.report import draw, template
from rftlab.studies.theory.check import FAIL, INCONCLUSIVE, PASS
from rftlab.studies.theory.command import Result, grouped
from rftlab.studies.theory.dynamics import plateau_times
from rftlab.studies.theory.effective import budget_terms, total_variance
from rftlab.studies.theory.facts.command import JudgedFact
from rftlab.studies.theory.models import GRPO, RLOO, beta_rates, measured_factor
from rftlab.studies.theory.regret import equal_grid, minimax_grid, worst_regret
from rftlab.studies.theory.replay import measured_error, old_rates

_BEST, _RAW = "o", "s"


def _lines(
    table: pd.DataFrame, name: str, x: str, y: str, texts: dict, colours: list[str], up: dict | None = None, dash="-"
) -> tuple[list[PlotSeries], list[Remark]]:
    """Return a line for each value of column `name`, and its text at the right end, moved up by `up` points where two
    would touch. The rows marked `best` get a dot."""
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


SPLITS = {
    "uniform p, ν² = 0": (beta_rates(1, 1), 0.0),
    "Beta(1, 3), ν² = 0": (beta_rates(1, 3), 0.0),
    "Beta(1, 3), ν² = 1": (beta_rates(1, 3), 1.0),
    "Beta(1, 3), ν² = 4": (beta_rates(1, 3), 4.0),
}
"""Pass rates and nuisance of the cases of `variance_figure`."""


def weights_figure() -> Drawn:
    """Draw the weight of a context's gradient under GRPO (sample std) against its pass rate (T3): columns K (text), p,
    W; 1 is unbiased, and K = ∞ the limit 1/√(pq)."""
    p, sizes = np.linspace(0.01, 0.99, 99), ("2", "4", "8", "∞")
    factors = [1 / np.sqrt(p * (1 - p)) if size == "∞" else measured_factor(GRPO, int(size), p) for size in sizes]
    table = pd.DataFrame({"K": np.repeat(sizes, p.size), "p": np.tile(p, len(sizes)), "W": np.concatenate(factors)})
    lines = _lines(table, "K", "p", "W", {size: f"K = {size}" for size in sizes}, shades(len(sizes)))
    lines[1].append(Remark(0.45, 1.0, "unbiased", up=-7))
    ticks = {value: f"{value:g}" for value in (0.5, 1, 2, 5, 10)}
    y = PlotAxis("weight W(p) on its gradient", "log", 0.5, 12, ticks)
    return _chart(PlotAxis("pass rate p of the context", low=0.0, high=1.0), y, lines, (rule(1.0),)), table


def variance_figure() -> Drawn:
    """Draw gradient variance at a fixed number N of rollouts against rollouts per context K (T13, T14, D1), with one
    shared feature (ρ = 1): columns case, K, variance (N V), best, optimum (K* among K ≥ 2).

    Lines are RLOO, squares the raw reward at K = 1; the least of a case is filled.
    """
    rows, top = [], 32
    for case, (rates, nuisance) in SPLITS.items():
        slope, _, bend, _ = budget_terms(rates, 1.0, nuisance)
        variances = [total_variance(RLOO, size, rates, 1.0, nuisance) for size in range(1, top + 1)]
        rows += [(case, size, v, v == min(variances), 1 + np.sqrt(bend / slope)) for size, v in enumerate(variances, 1)]
    table = pd.DataFrame(rows, columns=["case", "K", "variance", "best", "optimum"])
    colours = shades(len(SPLITS))
    up = dict(zip(list(SPLITS)[:2], (-5, 5), strict=True))
    series, remarks = _lines(table[table["K"] > 1], "case", "K", "variance", {}, colours, up)
    for (case, raw), colour in zip(table[table["K"] == 1].groupby("case", sort=False), colours, strict=True):
        style = MarkStyle(colour, "", marker=_RAW, size=6, hollow=not raw["best"].all())
        series.append(PlotSeries(raw["K"], raw["variance"], style, f"{case} · raw reward"))
    ticks = {size: str(size) for size in (1, 2, 4, 8, 16, 32)}
    x = PlotAxis("rollouts per context K (contexts B = N/K)", "log", 0.93, top, ticks)
    return _chart(x, PlotAxis("variance × rollouts N", "log"), (series, remarks)), table


def plateau_figure() -> Drawn:
    """Draw the time to a pass rate of one half against the base pass rate, harder to the right, from exact expected
    flows of the one-logit model (T19, T20): columns estimator, p0, time (rate times rounds)."""
    p0 = np.logspace(-5, -1, 61)
    curves = [pd.DataFrame({"estimator": name, "p0": p0, "time": times}) for name, times in plateau_times(p0).items()]
    table = pd.concat(curves, ignore_index=True)
    ordered = table.sort_values("p0", ascending=False, kind="stable")
    lines = _lines(ordered, "estimator", "p0", "time", {}, shades(len(curves)))
    x = PlotAxis("base pass rate p₀ (harder to the right)", "log", p0.max(), p0.min())
    return _chart(x, PlotAxis("time until p = 1/2 (rate × rounds)", "log"), lines), table


def replay_figure() -> Drawn:
    """Draw the error of a replayed baseline against the window, next to that of the last visit alone (T17, D2). A visit
    has 4 rollouts, and the pass rate rises to .5. Columns: drift (of p per visit), window (visits), mse, best, useful
    (no worse than the last visit alone)."""
    parts = []
    for drift in (0.003, 0.01, 0.03):
        mse = measured_error(old_rates(0.5, drift, 100), 4, 0.5)
        columns = {"window": np.arange(1, mse.size + 1), "mse": mse, "best": mse == mse.min(), "useful": mse <= mse[0]}
        parts.append(pd.DataFrame({"drift": drift} | columns))
    table = pd.concat(parts, ignore_index=True)
    drifts, alone = table["drift"].unique(), table.loc[table["window"] == 1, "mse"].mean()
    texts = {drift: f"drift {drift:g}" for drift in drifts}
    lines = _lines(table, "drift", "window", "mse", texts, shades(len(drifts)), {0.01: 8, 0.03: 8})
    lines[1].append(Remark(2.0, alone, "last visit alone", up=8))
    windows = {n: str(n) for n in (1, 3, 10, 30, 100)}
    x = PlotAxis("window (past visits of the context)", "log", 1, table["window"].max(), windows)
    ticks = {value: f"{value:g}" for value in (0.005, 0.01, 0.02, 0.05)}
    y = PlotAxis("squared error of the baseline", "log", 0.8 * table["mse"].min(), 1.4 * alone, ticks)
    return _chart(x, y, lines, (rule(alone),)), table


def regret_figure() -> Drawn:
    """Draw the exact worst regret of batched bandits over √(T log 2T) against the horizon T; two arms have gaps up to 1
    (T26, T28). Columns: grid, batches, horizon, ratio. Growing batches (minimax grid) are solid, equal ones dashed."""
    rows, horizons = [], np.logspace(4, 12, 9)
    for grid, ends, many in (("growing", minimax_grid, (2, 3, 4, 5)), ("equal", equal_grid, (4, 16, 64))):
        for batches in many:
            for horizon in horizons:
                ratio = worst_regret(ends(horizon, batches), 60)[0] / np.sqrt(horizon * np.log(2 * horizon))
                rows.append((grid, batches, horizon, ratio))
    table = pd.DataFrame(rows, columns=["grid", "batches", "horizon", "ratio"])
    series, remarks = [], []
    for grid, part in table.groupby("grid", sort=False):
        sizes, equal = list(part["batches"].unique()), grid == "equal"
        colours = [PALETTE[3]] * len(sizes) if equal else shades(len(sizes))
        texts = {batches: f"{batches} {grid}" for batches in sizes}
        up, dash = (None, "--") if equal else ({4: 3, 5: -3}, "-")
        lines = _lines(part, "batches", "horizon", "ratio", texts, colours, up, dash)
        series += lines[0]
        remarks += lines[1]
    x, y = PlotAxis("steps T", "log", 1e4, 1e12), PlotAxis("worst regret / √(T log 2T)", "log")
    return _chart(x, y, (series, remarks)), table


SYMBOLS = {PASS: "✓", FAIL: "✗", INCONCLUSIVE: "?"}
FEW = 5
"""Number of comparisons of a check that are shown at once; the others unfold."""
FIGURES: dict[str, Callable[[], Drawn]] = {
    "theory-weights": weights_figure,
    "theory-variance": variance_figure,
    "theory-plateau": plateau_figure,
    "theory-replay": replay_figure,
    "theory-regret": regret_figure,
}
"""Figures of the section by name; their titles and captions are in the template."""


def theory_section(results: list[Result], folder: Path, facts: list[JudgedFact] | None = None) -> str:
    """Return the HTML of the section with its figures, which are also written to the folder as svg, png and csv. facts:
    those of `rftlab.studies.theory.facts`, where their runs exist."""
    groups = grouped(results)
    return template("theory.html.j2").render(
        groups=groups,
        total=len(results),
        counts=Counter(result.verdict for result in results),
        corrections=[result for members in groups.values() for result in members if result.check.corrects],
        figures={name: draw(folder, name, figure()) for name, figure in FIGURES.items()},
        symbols=SYMBOLS,
        facts=facts,
        few=FEW,
        scripts=scripts,
    )


def scripts(text: str) -> Markup:
    """Return plain text as HTML, with the exponents of x^(...) and x^n raised and the index of x_n lowered."""
    safe = str(escape(text))
    while (raised := re.sub(r"\^\(((?:[^()]|\([^()]*\))*)\)", r"<sup>\1</sup>", safe)) != safe:
        safe = raised
    raised = re.sub(r"\^([−-]?\w+)", r"<sup>\1</sup>", safe)
    return Markup(re.sub(r"(?<![\w_])(\w)_([A-Za-z0-9]+)", r"\1<sub>\2</sub>", raised))
