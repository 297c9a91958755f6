"""Tables of the time and memory that runs of language models took or would take."""

from typing import Any

import pandas as pd

from rftlab.llm.budget.footprint import PARTS, MemoryUse
from rftlab.llm.config import PHASES
from rftlab.studies.console.table import Column, Table

PLANNED = {"sample": "sampling", "log_probs": "log-probabilities", "update": "update", "sleep": "sleep"}
"""Names of the phases of a planned run in words."""


def has_costs(curves: pd.DataFrame) -> bool:
    """Whether curves have the time and memory of each phase; those of the shipped reference runs do not."""
    return f"seconds_{PHASES[0]}" in curves


def costs(curves: pd.DataFrame) -> pd.DataFrame:
    """Return milliseconds per round and peak megabytes by phase, evaluations spread over the rounds: a row per pair and
    cell, means and maxima over seeds."""
    rows = []
    for (pair, cell), own in curves.groupby(["pair", "cell"], sort=False):
        rounds = own.groupby("seed")["round"].max().sum()
        times = {f"ms_{phase}": 1000 * own[f"seconds_{phase}"].sum() / max(rounds, 1) for phase in PHASES}
        peaks = {f"peak_mb_{phase}": own[f"peak_mb_{phase}"].max() for phase in PHASES}
        rows.append(
            {"pair": pair, "cell": cell, "ms": sum(times.values()), **times, "peak_mb": max(peaks.values()), **peaks}
        )
    return pd.DataFrame(rows)


def cost_table(curves: pd.DataFrame) -> Table:
    """Return a table of milliseconds per round by phase (`costs`) and of the peak memory, for the terminal."""
    phases = (phase.replace("_", " ") for phase in PHASES)
    table = Table("cell", "all", *phases, "peak MB", title="ms per round, by phase")
    for row in costs(curves).to_dict("records"):
        table.add(
            row["cell"],
            *(f"{row[name]:.1f}" for name in ("ms", *(f"ms_{phase}" for phase in PHASES))),
            f"{row['peak_mb']:.0f}",
        )
    return table


def memory_table(memory: MemoryUse, total: bool = True, **layout: Any) -> Table:
    """Return a table of planned GB by part and phase, the phase with most in bold. total: with a last row that sums all
    parts. layout: arguments of `Table`."""
    phases = (Column(PLANNED[name], style="bold" * (name == memory.peak_phase)) for name in memory.phases)
    table = Table("part", *phases, **layout)
    for part in PARTS:
        values = [parts.get(part, 0.0) for parts in memory.phases.values()]
        if any(values):
            table.add(part, *(f"{value / 1e9:.2f}" if value else "" for value in values))
    if total:
        table.add("all", *(f"{memory.total(phase) / 1e9:.2f}" for phase in memory.phases))
    return table
