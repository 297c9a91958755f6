"""How much of a gain is credit that the format was in the way of, and how much is right answers that were not there:
the same of simulated runs and of language models."""

import pandas as pd

from rftlab.studies.console.table import Table
from rftlab.studies.data.results.stats import mean


def gains(curves: pd.DataFrame) -> pd.DataFrame:
    """Test Pass@1 before and after training, and the gain's parts: a row per pair and cell, means over seeds,
    half-widths of 95% intervals.

    reasoning: the gain under the flexible rule, which does not ask for the format. format: the rest of the strict
    rule's gain, for answers that were right before. Runs that diverged are left out.
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
        known = mean(values)
        found |= {name: known.value, f"{name}_width": known.half}
    return found


def gain_table(curves: pd.DataFrame) -> Table:
    """The parts of `gains` by configuration, for the terminal."""
    parts = ("gain", "reasoning", "format")
    table = Table("cell", "strict", "", "flexible", "", *parts, title="gain in test Pass@1, and its parts")
    for row in gains(curves).to_dict("records"):
        rates = (f"{row[f'{rule}_{when}']:.3f}" for rule in ("strict", "flexible") for when in ("before", "after"))
        table.add(row["cell"], *rates, *(f"{row[name]:+.3f}" for name in parts))
    return table
