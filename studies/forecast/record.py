"""Scores of forecasts on public runs that come with rftlab, and sentences on how far they let a forecast be trusted.

`forecast_designs.csv` has a row for every forecast of a design of a source and task (repeats averaged) from another one
that kept what it had learned. `forecast_ends.csv` has a row for every curve and each part of it from which its end was
forecast. `forecast_leaders.csv` has a row for every two runs of a source and task that are known until the same round.
`python -m dev.forecast_scores FOLDER..` makes them from collections of public runs. docs/forecast.md lists everything
that was fitted to these runs.
"""

from functools import cache

import numpy as np
import pandas as pd

from rftlab.studies.analysis.public.store import DATA
from rftlab.studies.data.results.stats import Estimate

DESIGNS, ENDS, LEADERS = "forecast_designs.csv", "forecast_ends.csv", "forecast_leaders.csv"
PLAIN = ("steps", "still", "sigmoid")
"""Plain forecasts of designs that every case has."""
APART = 0.03
"""Difference of final Pass@1 above which one of two runs counts as better."""
MORE = 0.02
"""Gain of Pass@1 above which going on with a run counts as worthwhile."""
RESAMPLES = 2000


@cache
def record(name: str) -> pd.DataFrame:
    """Return a table of the record, one of DESIGNS, ENDS, LEADERS."""
    with (DATA / name).open("rb") as file:
        return pd.read_csv(file, keep_default_na=False, na_values=[""])


def errors(table: pd.DataFrame, name: str) -> pd.Series:
    """Return the absolute errors of a column of forecasts of the column `truth`."""
    return (table[name] - table["truth"]).abs()


def source_mean(table: pd.DataFrame, values: pd.Series) -> float:
    """Return the mean of values (n,) over the rows of a table. Every source counts alike, in it every task, and in that
    every held-out design, where a table has them; `ahead` counts in the same way."""
    names = [name for name in ("source", "task", "cell") if name in table]
    means = values.groupby([table[name] for name in names]).mean()
    return float(means.groupby(["source", "task"]).mean().groupby("source").mean().mean())


def ahead(table: pd.DataFrame, ours: str, plain: str) -> Estimate:
    """Return the error of the plain forecast less ours, each source alike, with a 95% interval. The interval resamples
    the held-out designs of each source: forecasts of one design from several known ones stay together."""
    own = table[table[[ours, plain]].notna().all(axis=1)]
    gains = (errors(own, plain) - errors(own, ours)).groupby([own["source"], own["task"], own["cell"]]).mean()
    rng, drawn = np.random.default_rng(0), []
    for _, source in gains.groupby("source"):
        tasks = [part.to_numpy() for _, part in source.groupby("task")]
        picks = [part[rng.integers(0, len(part), (RESAMPLES, len(part)))].mean(axis=1) for part in tasks]
        drawn.append(np.mean(picks, axis=0))
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    return Estimate(source_mean(own, errors(own, plain) - errors(own, ours)), float(low), float(high))


def design_lines(other_rate: bool) -> list[str]:
    """Return sentences on the record of designs within the limits, and on whether a plain forecast is as good.
    other_rate: of designs with another learning rate than the known one, else of those with the same."""
    rows = record(DESIGNS)
    rows = rows[(rows["outside"] == 0) & (rows["other_rate"] == int(other_rate))]
    leads = {plain: ahead(rows, "curve", plain) for plain in PLAIN}
    level = [plain for plain, lead in leads.items() if lead.low <= 0]
    shown = ", ".join(f"`{name}` {source_mean(rows, errors(rows, name)):.3f}" for name in (*PLAIN, "law"))
    held = source_mean(rows, rows["truth"].between(rows["low"], rows["high"]).astype(float))
    where = "other learning rates" if other_rate else "the known learning rate"
    said = [
        f"At {where} the forecast was {source_mean(rows, errors(rows, 'curve')):.3f} off on "
        f"{rows.groupby(['source', 'task', 'cell']).ngroups} held-out designs of {rows['source'].nunique()} public "
        f"sources; {shown}. Its 80% intervals held {held:.0%}."
    ]
    if level:
        named = " and ".join(f"`{name}`" for name in level)
        said.append(
            f"It is not ahead of {named} there with confidence: where they differ, the plain forecast is as good."
        )
    else:
        least = min(leads.values(), key=lambda lead: lead.low)
        said.append(f"It is ahead of every plain forecast, by {least.value:.3f} [{least.low:.3f}, {least.high:.3f}].")
    return said


def ending_lines(part: float, split: str = "test") -> list[str]:
    """Return sentences on the errors of ends that were forecast from about this part of a run, and on whether it was
    known that more comes. The nearest part that was scored counts. split: of the Pass@1 that is forecast, "test" or
    "train"."""
    rows, own = record(ENDS), part
    rows = rows[rows["split"] == split]
    part = float(min(rows["part"].unique(), key=lambda one: abs(one - own)))
    rows = rows[rows["part"] == part]
    shown = {name: source_mean(rows, errors(rows, name)) for name in ("forecast", "last", "sigmoid")}
    comes, said = rows["truth"] - rows["last"] > MORE, rows["forecast"] - rows["last"] > MORE
    right, usual = float((comes == said).mean()), float(max(comes.mean(), 1 - comes.mean()))
    known = right > usual + 2 * np.sqrt(right * (1 - right) / len(rows))
    lines = [
        f"From {part:.0%} of a run the ends of {len(rows)} curves of {rows['source'].nunique()} public sources were "
        f"{shown['forecast']:.3f} off, the last value {shown['last']:.3f}, a saturating curve {shown['sigmoid']:.3f}."
    ]
    if own < 0.75 * part:
        lines.append(f"This run is known to {own:.2g} of its length, less than was scored: expect larger errors.")
    if split == "train":
        lines.append(
            "This is Pass@1 of training, averaged over an eighth of what is known, and a test set may end lower. Take "
            "it as a guess: a blind test did not confirm these errors (docs/forecast.md)."
        )
    if not known:
        lines.append(
            f"It is unknown whether going on brings {MORE:g} more: the forecast was right for {right:.0%} of these "
            f"curves, the more frequent answer for {usual:.0%}."
        )
    return lines


def plan_line() -> str:
    """Return a plan for two candidate runs, with its cost and how often it kept the better one, as a sentence."""
    rows = record(LEADERS)
    rows = rows[rows["part"] == rows["part"].min()]
    part, far = float(rows["part"].iloc[0]), rows["gap"].abs() > APART
    held = source_mean(rows[far], (rows.loc[far, "gap"] > 0).astype(float))
    lost = source_mean(rows, np.maximum(-rows["gap"], 0.0))
    return (
        f"Plan: run both for {part:.0%} of their rounds and keep the leader. That costs {(1 + part) / 2:.0%} of "
        f"running both. Of {int(far.sum())} pairs of public runs whose ends differ by more than {APART:g} it kept the "
        f"better one in {held:.0%}; over all {len(rows)} pairs it lost {lost:.3f}."
    )
