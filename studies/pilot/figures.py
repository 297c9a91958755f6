"""The figure of a pilot: what the base model could already do. Drawn like those of studies/report/figures.py."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rftlab.studies.pilot.headroom import Headroom, RateAt
from rftlab.studies.report.figures import BARS, GREY, PALETTE, Drawn, pretty, styled

_KINDS = {"temperature": PALETTE[0], "pass@k": PALETTE[2], "maj@k": PALETTE[1]}


@styled
def headroom_figure(pair: str, found: Headroom) -> Drawn:
    """Pass@1 against temperature; pass@k and maj@k against k. Bars are 95%; the dotted line is Pass@1 as trained."""
    parts = dict(zip(_KINDS, (found.temperatures, found.tries, found.majority), strict=True))
    figure = Figure(figsize=(7.2, 3.1))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    _line(left, found.temperatures, "temperature")
    for kind in ("pass@k", "maj@k"):
        _line(right, parts[kind], kind)
    for ax in (left, right):
        if found.tries:
            ax.axhline(found.tries[0].value, color=GREY, linewidth=0.8, linestyle=":")
    left.set(title=pretty(pair), xlabel="temperature of sampling", ylabel="share of unseen questions", ylim=(0, 1))
    left.invert_xaxis()
    right.set_xscale("log", base=2)
    ticks = sorted({rate.at for rate in (*found.tries, *found.majority)})
    right.set_xticks(ticks, [f"{k:g}" for k in ticks])
    right.minorticks_off()
    right.set(title="several responses", xlabel="responses k")
    return figure, _numbers(pair, parts)


def _line(ax: Axes, rates: tuple[RateAt, ...], kind: str) -> None:
    if not rates:
        return
    at, values = [rate.at for rate in rates], [rate.value for rate in rates]
    ax.errorbar(at, values, [1.96 * rate.error for rate in rates], color=_KINDS[kind], **BARS)
    if kind != "temperature":
        ax.annotate(kind, (at[-1], values[-1]), (-9, 7), textcoords="offset points", ha="right", color=_KINDS[kind])


def _numbers(pair: str, parts: dict[str, tuple[RateAt, ...]]) -> pd.DataFrame:
    rows = [{"pair": pair, "kind": kind, **rate._asdict()} for kind, rates in parts.items() for rate in rates]
    return pd.DataFrame(rows, columns=["pair", "kind", *RateAt._fields])
