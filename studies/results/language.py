"""What only a language model has: how much of a gain is format and how much reasoning, and where the time and memory
of a run went."""

import numpy as np
import pandas as pd
from rich.table import Table

from rftlab.llm.config import PHASES
from rftlab.studies.results.stats import interval


def has_gains(curves: pd.DataFrame) -> bool:
    """Whether curves are of language models, which two rules score."""
    return "test_flexible" in curves


def has_costs(curves: pd.DataFrame) -> bool:
    """Whether curves say where time and memory went; those of the shipped reference runs do not."""
    return f"seconds_{PHASES[0]}" in curves


def gains(curves: pd.DataFrame) -> pd.DataFrame:
    """Test Pass@1 before and after training, and the gain's parts: a row per pair and cell, means over seeds,
    half-widths of 95% intervals.

    reasoning: the gain under the flexible rule, which does not ask for the format. format: the rest of the strict
    rule's gain. Runs that diverged are left out.
    """
    rows = []
    for (pair, cell), own in curves.groupby(["pair", "cell"], sort=False):
        before = own[own["round"] == 0].set_index("seed")
        after = own[own["round"] == own["planned_rounds"]].set_index("seed")
        strict, flexible = (
            after[name] - before[name].reindex(after.index) for name in ("test_pass_at_1", "test_flexible")
        )
        parts = {"gain": strict, "reasoning": flexible, "format": strict - flexible}
        levels = {
            f"{name}_{when}": part[column].mean()
            for name, column in (("strict", "test_pass_at_1"), ("flexible", "test_flexible"))
            for when, part in (("before", before), ("after", after))
        }
        rows.append({"pair": pair, "cell": cell, "seeds": len(after), **levels} | _with_widths(parts))
    return pd.DataFrame(rows)


def _with_widths(parts: dict[str, pd.Series]) -> dict[str, float]:
    """Means, and the half-width of each; nan with fewer than two seeds."""
    found: dict[str, float] = {}
    for name, values in parts.items():
        known = interval(values.to_numpy())
        found |= {name: known.mean, f"{name}_width": known.high - known.mean if np.isfinite(known.high) else np.nan}
    return found


def costs(curves: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of a round and peak megabytes by phase, evaluations spread over the rounds: a row per pair and
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
    """Milliseconds of `costs` by phase, and the largest memory of any, for the terminal."""
    table = Table(title="ms per round, by phase", title_justify="left", box=None)
    for name in ("cell", "all", *(phase.replace("_", " ") for phase in PHASES), "peak MB"):
        table.add_column(name, justify="left" if name == "cell" else "right")
    for row in costs(curves).to_dict("records"):
        table.add_row(
            row["cell"],
            *(f"{row[name]:.1f}" for name in ("ms", *(f"ms_{phase}" for phase in PHASES))),
            f"{row['peak_mb']:.0f}",
        )
    return table
