"""The figure of a pilot: what the base model could already do."""

from dataclasses import replace

import numpy as np
import pandas as pd

from rftlab.studies.forecast.pilot.headroom import Headroom, RateAt
from rftlab.studies.report.chart import (
    GREY,
    PALETTE,
    Chart,
    Drawn,
    MarkStyle,
    Panel,
    PlotAxis,
    PlotSeries,
    Remark,
    error_bars,
    rates,
    rule,
)
from rftlab.studies.report.figures import pretty

_KINDS = {"temperature": PALETTE[0], "pass@k": PALETTE[2], "maj@k": PALETTE[1]}


def headroom_figure(pair: str, headroom: Headroom) -> Drawn:
    """Pass@1 against temperature; pass@k and maj@k against k. Bars are 95%; the dotted line is Pass@1 as trained."""
    parts = dict(zip(_KINDS, (headroom.temperatures, headroom.tries, headroom.majority), strict=True))
    y = rates("share of unseen questions")
    shapes = (rule(headroom.tries[0].value, MarkStyle(GREY, ":", 0.8)),) if headroom.tries else ()
    cold = PlotAxis("temperature of sampling")
    if headroom.temperatures:
        at = [rate.at for rate in headroom.temperatures]
        cold = replace(cold, low=max(at) + 0.05, high=min(at) - 0.05)
    ticks = {rate.at: f"{rate.at:g}" for rate in (*headroom.tries, *headroom.majority)}
    several = PlotAxis("responses k", "log", ticks=dict(sorted(ticks.items())))
    panels = (
        Panel(pretty(pair), cold, y, _series(parts, "temperature"), shapes),
        Panel(
            "several responses",
            several,
            y,
            (*_series(parts, "pass@k"), *_series(parts, "maj@k")),
            shapes,
            tuple(_remark(parts[kind][-1], kind) for kind in ("pass@k", "maj@k") if parts[kind]),
        ),
    )
    return Chart(panels, (7.2, 3.1), 2, widths=(2.0, 3.0), share_y="all"), _numbers(pair, parts)


def _series(parts: dict[str, tuple[RateAt, ...]], kind: str) -> tuple[PlotSeries, ...]:
    if not parts[kind]:
        return ()
    values = np.array([rate.value for rate in parts[kind]])
    half = 1.96 * np.array([rate.error for rate in parts[kind]])
    one = PlotSeries([rate.at for rate in parts[kind]], values, MarkStyle(_KINDS[kind], marker="o"), kind)
    return (error_bars(one, values - half, values + half),)


def _remark(last: RateAt, kind: str) -> Remark:
    return Remark(last.at, last.value, kind, _KINDS[kind], 7)


def _numbers(pair: str, parts: dict[str, tuple[RateAt, ...]]) -> pd.DataFrame:
    rows = [{"pair": pair, "kind": kind, **rate._asdict()} for kind, rates in parts.items() for rate in rates]
    return pd.DataFrame(rows, columns=["pair", "kind", *RateAt._fields])
