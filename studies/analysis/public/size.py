"""Where runs of a model end that nobody ran, from its size and family.

logit(end) is a line in the logarithm of the parameters, one for each task, with an offset for each family that is drawn
to 0. It is fitted to all ends of `reported_scores.csv` and `blind_ends.csv`. The width is that of the errors on sources
that were left out whole, of the same family; of a family that is not there, on families that were left out whole.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from rftlab.shared.plumbing.errors import check, check_choice, check_finite
from rftlab.studies.analysis.public.credit import TASKS, blind_scores, reported_scores
from rftlab.studies.data.results.stats import Estimate

SHRINK = 0.5
"""Ends that draw a family's offset to 0."""
NEAR = 0.005
"""Distance of an end from 0 and 1, at least."""
FEWEST = 5
"""Errors of a family and task that are enough for a width of their own."""


class SizeForecast(NamedTuple):
    """Where runs of a model end: Pass@1 with an 80% interval."""

    end: Estimate
    known: bool
    """Whether ends of the family are known."""
    error: float
    """Mean absolute error on ends like these that were left out."""
    ends: int
    """Behind that error."""
    smallest: float
    largest: float
    """Billions of parameters of the ends that the forecast is from: of the family where it is known."""
    format: Estimate
    """The score that makers report less that of the untrained models in the harness of a run on this task: median, and
    its 10% and 90% quantiles."""


def grouped_ends() -> pd.DataFrame:
    """All ends with columns source (what stands before the first comma or bracket) and group (the letters that a
    model's name begins with)."""
    rows = pd.concat([reported_scores(), blind_scores()], ignore_index=True)
    source = rows["end_source"].str.extract(r"^([^,(]*)")[0].str.strip()
    return rows.assign(source=source, group=rows["model"].str.lower().str.extract(r"^([a-z]+)")[0])


def predict_end(parameters: float, family: str, task: str) -> SizeForecast:
    """Return where runs of a model of so many billions of parameters end. Raises UserError for sizes and tasks of which
    nothing is known."""
    rows = grouped_ends()
    check_choice("task", task, tuple(TASKS))
    check_finite("model size", parameters, above=0)
    own, name = rows[rows["task"] == task], family.lower()
    known = bool((own["group"] == name).sum() >= FEWEST)
    alike = own[own["group"] == name] if known else own
    low, high = float(alike["parameters"].min()), float(alike["parameters"].max())
    check(low / 2 <= parameters <= 2 * high, f"model size = {parameters:g}; allowed: {low / 2:g} to {2 * high:g}")
    asked = pd.DataFrame({"parameters": [parameters], "task": [task], "group": [name]})
    there = logit(_ends(rows, asked))[0]
    left_out = "source" if known else "group"
    forecasts = pd.concat(
        [pd.Series(_ends(rows[rows[left_out] != one], part), index=part.index) for one, part in alike.groupby(left_out)]
    )
    apart = logit(alike["end"].clip(NEAR, 1 - NEAR)) - logit(forecasts[alike.index])
    below, above = np.quantile(apart, [0.1, 0.9])
    reported = (own["reported"] - own["base_in_harness"])[~own["credited"]].dropna()
    return SizeForecast(
        Estimate(float(expit(there)), float(expit(there + min(below, 0.0))), float(expit(there + max(above, 0.0)))),
        known,
        float((forecasts[alike.index] - alike["end"]).abs().mean()),
        len(alike),
        low,
        high,
        Estimate(*(float(one) for one in np.quantile(reported, [0.5, 0.1, 0.9]))),
    )


def _ends(rows: pd.DataFrame, asked: pd.DataFrame) -> np.ndarray:
    """Ends (asked,) by the fit to rows."""
    groups = sorted(set(rows["group"]))

    def features(table: pd.DataFrame) -> np.ndarray:
        tasks = np.array([[one == task for task in TASKS] for one in table["task"]], dtype=float)
        sizes = tasks * np.log10(table["parameters"].to_numpy(dtype=float))[:, None]
        return np.hstack([tasks, sizes, [[float(one == group) for group in groups] for one in table["group"]]])

    x, y = features(rows), logit(rows["end"].clip(NEAR, 1 - NEAR).to_numpy())
    shrink = np.diag([1e-9] * 2 * len(TASKS) + [SHRINK] * len(groups))
    return expit(features(asked) @ np.linalg.solve(x.T @ x + shrink, x.T @ y))


def size_lines(parameters: float, family: str, task: str) -> list[str]:
    """Return `predict_end` in sentences."""
    one = predict_end(parameters, family, task)
    whose = f"ends of {family}" if one.known else f"ends of all families, fewer than {FEWEST} of them of {family},"
    left = "sources" if one.known else "families"
    return [
        f"Runs of {family} with {parameters:g} billion parameters on {TASKS[task]} end at {one.end.value:.2f}, 80% "
        f"{one.end.low:.2f} to {one.end.high:.2f}: from {one.ends} {whose} of {one.smallest:g} to {one.largest:g} "
        f"billion. On {left} that were left out whole the error is {one.error:.3f}.",
        f"Format and prompt are {one.format.value:+.2f} of the gain of such runs (80% of public harnesses "
        f"{one.format.low:+.2f} to {one.format.high:+.2f}): the score that makers report less that of the untrained "
        "model in the harness. It is no learning.",
        "This is a guess from other models. `rftlab pilot --reported SCORE` with the score that makers report is "
        "nearer, and one run is nearer still.",
    ]
