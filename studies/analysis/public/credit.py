"""Estimate how much of the gain of public runs is credit: a score that had been reported of the model before the run.

Short runs on GSM8K and MATH end near a score that was published before them. An instruct model ends near the score that
its makers report, a base model near the one that the makers report for its instruct sibling. Up to that score the gain
is credit that the harness had not given (answer format, prompt, temperature). Only what is above it can have been
learned.

`reported_scores.csv` has a row for each model, task and source of a run, all scores as fractions. Where a source has
several runs, the end is that of its reference configuration or else the median; the note says which. `base_in_harness`
is the untrained model's score where the run was scored, empty where it is not known. `parameters` are billions, as in
the model's name. MATH-500 counts as MATH.

`blind_scores.csv` is a test of this: scores of 26 model-task pairs, written down before an end of any of them was
looked up, and unchanged since (BLIND is its SHA-256). It does not confirm the rule for base models. `blind_ends.csv`
has every end found afterwards, by the same rules, and whether the run was trained on the task's own training set: yes,
no, or empty where that is not known.

Where no run of a model is known, its end is predicted from its size and family: logit(end) is a line in the logarithm
of the parameters, one for each task, with an offset for each family that is drawn to 0. The fit is to all ends of both
tables. The interval comes from the errors on sources of the same family that were left out whole. For a family without
known ends it comes from the errors on families that were left out whole.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.special import expit, logit

from rftlab.shared.plumbing.errors import check, check_choice, check_finite
from rftlab.studies.analysis.public.store import csv_table
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.paper.experiments import endpoints
from rftlab.studies.data.results.stats import Estimate
from rftlab.studies.report.chart import (
    PALETTE,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Outline,
    Panel,
    PlotAxis,
    PlotSeries,
    bars,
    diamonds,
    dots,
    names,
)

KINDS = {"instruct": "instruct models", "base": "base models"}
RIVALS = {
    "no change": "the base's score in the harness",
    "mean gain": "that and the mean gain of other families",
    "size": "line in log size through other families",
}
TASKS = {"gsm8k": "GSM8K", "math": "MATH"}
DRAWS = 2000
BLIND = "ac03b7199115e1a0e3a9b37f3885546486805085e4686cdbe015c5924d41b509"
WRITTEN = "2026-11-25 17:46 UTC"


def reported_scores() -> pd.DataFrame:
    """Return the reported scores with two columns more: the model's family (its name up to the first hyphen), and
    `credited`, whether the harness of the run gives the base its reported score, so that no credit is left to gain."""
    return _named(csv_table("reported_scores.csv"))


def blind_scores() -> pd.DataFrame:
    """Return a row for each end of `blind_ends.csv`, with the columns of its pair in `blind_scores.csv` and the two
    that `reported_scores` adds."""
    pairs = csv_table("blind_scores.csv")
    return _named(csv_table("blind_ends.csv").merge(pairs, on=["model", "task"], validate="many_to_one"))


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    family = rows["model"].str.partition("-")[0].str.lower()
    return rows.assign(family=family, credited=rows["base_in_harness"] == rows["reported"])


def end_errors(rows: pd.DataFrame, known: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the absolute errors of forecasts of the end of runs, with a column for `reported` and for each of RIVALS;
    nan where the base is not known. Rivals are fitted to the other families of `known` (default: rows). `size` is a
    line of the end's logit in log parameters, with an intercept for each task."""
    known = rows if known is None else known
    forecasts = pd.DataFrame({"reported": rows["reported"], "no change": rows["base_in_harness"]})
    gains = known["end"] - known["base_in_harness"]
    for family in rows["family"].unique():
        own, others = (rows["family"] == family).to_numpy(), (known["family"] != family).to_numpy()
        slopes = np.linalg.lstsq(_size_features(known[others]), logit(known.loc[others, "end"].to_numpy()))[0]
        forecasts.loc[own, "mean gain"] = rows["base_in_harness"] + gains[others].mean()
        forecasts.loc[own, "size"] = expit(_size_features(rows[own]) @ slopes)
    return forecasts.sub(rows["end"], axis=0).abs()


def _size_features(rows: pd.DataFrame) -> np.ndarray:
    return np.column_stack([*(rows["task"] == task for task in TASKS), np.log(rows["parameters"])]).astype(float)


def grouped_mean(values: pd.Series, groups: pd.Series) -> Estimate:
    """Return the mean of values, without nan, and a 95% interval from resampling whole groups of values."""
    sums = values.groupby(groups).agg(["sum", "count"]).to_numpy()
    drawn = sums[np.random.default_rng(0).integers(len(sums), size=(DRAWS, len(sums)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / np.maximum(drawn[:, 1], 1), [0.025, 0.975])
    return Estimate(float(sums[:, 0].sum() / sums[:, 1].sum()), float(low), float(high))


def above_reported(rows: pd.DataFrame) -> Estimate:
    """Return the mean of the end minus the reported score, with its 10% and 90% quantiles in place of an interval. A
    forecast for a new model adds these to the score that is reported for it."""
    above = rows["end"] - rows["reported"]
    return Estimate(float(above.mean()), *map(float, np.quantile(above, [0.1, 0.9])))


def share_between_pairs() -> float:
    """Return the share of the variance of the paper's test gains that lies between its pairs of model and data set. The
    rest lies between the designs of a pair."""
    scores = pd.DataFrame(endpoints()).query("split == 'test'").assign(pair=lambda e: e["model"] + e["dataset"])
    base = scores[scores["advantage"] == "none"].set_index("pair")["pass_at_1"]
    trained = scores[scores["advantage"] != "none"]
    gains = trained["pass_at_1"] - trained["pair"].map(base)
    return float(gains.groupby(trained["pair"]).transform("mean").var(ddof=0) / gains.var(ddof=0))


def credit_table(rows: pd.DataFrame) -> Table:
    """Return the mean distance between forecasts and the end of runs for each kind of model, and how much closer the
    reported score is. rows: as `reported_scores` returns them, of models that were not credited."""
    errors = end_errors(rows)
    known = errors["no change"].notna()
    table = Table("forecast of the end", *(Column(kind, ".3f") for kind in KINDS.values()), "reported is closer by")

    def add(name: str, column: str, closer: str = "") -> None:
        table.add(name, *(errors.loc[known & (rows["kind"] == kind), column].mean() for kind in KINDS), closer)

    add("reported score", "reported")
    for rival, what in RIVALS.items():
        ahead = grouped_mean((errors[rival] - errors["reported"])[known], rows.loc[known, "family"])
        add(what, rival, f"{ahead.value:.3f} [{ahead.low:.3f}, {ahead.high:.3f}]")
    return table


def credit_lines(rows: pd.DataFrame) -> list[str]:
    """Return sentences about the runs behind the table, the distance of ends from reported scores, and the shares of
    variance in the paper. rows: as `reported_scores` returns them."""
    fresh, credited, share = rows[~rows["credited"]], above_reported(rows[rows["credited"]]), share_between_pairs()
    known = fresh[fresh["base_in_harness"].notna()]
    return [
        f"{len(known)} runs with a known base, of {known['family'].nunique()} families; intervals resample families, "
        "and from so few are too narrow. The reported score of a base model is that of its instruct sibling.",
        *(
            f"{name[0].upper()}{name[1:]} end {above.value:+.2f} from the reported score on average, 80% of {len(own)} "
            f"runs between {above.low:+.2f} and {above.high:+.2f}."
            for kind, name in KINDS.items()
            for own in [fresh[fresh["kind"] == kind]]
            for above in [above_reported(own)]
        ),
        f"Where the harness gave the base its reported score, {rows['credited'].sum()} runs end {credited.value:+.2f} "
        f"above it, 80% between {credited.low:+.2f} and {credited.high:+.2f}.",
        f"{share:.0%} of the variance of the paper's test gains lies between its pairs of model and data set, "
        f"{1 - share:.0%} between the designs of a pair.",
    ]


def blind_lines() -> list[str]:
    """Return sentences about how far the blind ends lie from the scores that had been written down, and from the
    rivals, which are fitted to the rows of `reported_scores` alone."""
    rows = blind_scores()
    errors = end_errors(rows, reported_scores().query("not credited"))
    known = errors["no change"].notna()
    pairs, families = rows.drop_duplicates(["model", "task"]), rows.loc[known, "family"]
    leads = {rival: grouped_mean((errors[rival] - errors["reported"])[known], families) for rival in RIVALS}
    trained = errors["reported"].groupby([rows["kind"], rows["trained_on_task"]]).agg(["mean", "count"])
    own, other = (trained.loc["base", answer] for answer in ("yes", "no"))
    return [
        f"Blind: {len(csv_table('blind_scores.csv'))} scores were written down ({WRITTEN}, SHA-256 {BLIND[:12]}) "
        f"before any end was looked up. {len(rows)} ends of {len(pairs)} pairs were found, {known.sum()} with a known "
        f"base, of {families.nunique()} families. Rivals are fitted to the runs above.",
        *(
            f"Blind {name}: reported score {off['reported']:.3f} off, "
            + ", ".join(f"{rival} {off[rival]:.3f}" for rival in RIVALS)
            + f" ({is_one.sum()} runs with a known base). {blind_coverage(kind)}"
            for kind, name in KINDS.items()
            for is_one in [known & (rows["kind"] == kind)]
            for off in [errors[is_one].mean()]
        ),
        "Blind, the reported score is closer than "
        + ", ".join(f"{rival} by {one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for rival, one in leads.items())
        + ".",
        f"Blind base models end {own['mean']:.3f} from the reported score after training on the task itself "
        f"({own['count']:.0f} runs) and {other['mean']:.3f} after training on other problems ({other['count']:.0f}).",
    ]


def blind_coverage(kind: str) -> str:
    """Return a sentence about how many of the blind ends of this kind lie in the 80% range of the other runs."""
    above = above_reported(reported_scores().query("not credited and kind == @kind"))
    ends = blind_scores().query("kind == @kind").eval("end - reported")
    return (
        f"{len(ends)} ends were looked up after their scores were written down: "
        f"{ends.between(above.low, above.high).sum()} lie in the 80% range, all between {ends.min():+.2f} and "
        f"{ends.max():+.2f}."
    )


def ending_lines(reported: float, kind: str) -> list[str]:
    """Return sentences about where runs of a model with this reported score end, and what may be claimed. kind: one of
    KINDS; the score of a base model is that of its instruct sibling. Raises UserError for another kind."""
    check_choice("kind", kind, tuple(KINDS))
    own = reported_scores().query("not credited and kind == @kind")
    above = above_reported(own)
    low, high = (float(np.clip(reported + part, 0.0, 1.0)) for part in (above.low, above.high))
    whose = "score of the instruct sibling" if kind == "base" else "reported score"
    return [
        f"Runs of {KINDS[kind]} end {above.low:+.2f} to {above.high:+.2f} from the {whose} (80% of {len(own)} public "
        f"runs): expect {low:.2f} to {high:.2f}.",
        blind_coverage(kind),
        f"Up to about {reported:.2f} nothing need be learned: it is credit for format, prompt and temperature. Claim "
        "only what is above it.",
        "This covers training on the task itself and its usual test set. It does not cover tasks that nobody trained "
        "the model for, other test sets, and learning rates at which runs fail.",
    ]


def show_credit(console: Console) -> None:
    """Print the table of forecasts of the end, and the sentences about credit."""
    rows = reported_scores()
    title = "Distance between the end of a run and what could be said before it"
    put(console, title, credit_table(rows[~rows["credited"]]))
    for line in credit_lines(rows) + blind_lines():
        say(console, line)


def credit_figure() -> Drawn:
    """Return a figure with a line for each run with a known base: its score in the harness, the reported score, and the
    end. The band between the first two is the credit."""
    numbers = reported_scores().dropna(subset="base_in_harness")
    numbers = numbers.assign(credit=numbers["reported"] - numbers["base_in_harness"]).sort_values("credit")
    panels = []
    for kind, title in KINDS.items():
        own = numbers[numbers["kind"] == kind].reset_index(drop=True)
        places = np.arange(len(own), dtype=float)
        band = MarkStyle(PALETTE[1], width=5.0, alpha=0.35)
        series = [
            PlotSeries(own["base_in_harness"], places, bars(), "base in the harness"),
            PlotSeries(own["reported"], places, diamonds(), "reported"),
            PlotSeries(own["end"], places, dots(PALETTE[0]), "end of the run"),
        ]
        shapes = [
            Outline(np.array([[row.base_in_harness, place], [row.reported, place]]), band)
            for place, row in zip(places, own.itertuples(), strict=True)
        ]
        labels = [f"{model}, {TASKS[task]}" for model, task in zip(own["model"], own["task"], strict=True)]
        panels.append(
            Panel(title, PlotAxis("Pass@1", low=-0.02, high=1.0), names("", labels), tuple(series), tuple(shapes))
        )
    keys = [LegendKey(one.name, one.style) for one in series]
    return Chart(tuple(panels), (10, 5.4), 2, (*keys, LegendKey("credit", band))), numbers


SHRINK = 0.5
"""Weight that draws a family's offset to 0, as a number of ends."""
NEAR = 0.005
"""Least distance of an end from 0 and from 1, so that its logit is finite."""
FEWEST = 5
"""Least number of known ends of a family on a task for which the interval comes from the family's own errors."""


class SizeForecast(NamedTuple):
    """Forecast of the end of a model's runs from its size: Pass@1 with an 80% interval."""

    end: Estimate
    known: bool
    """Whether ends of the family are known."""
    error: float
    """Mean absolute error on ends like these that were left out."""
    ends: int
    """Number of ends behind the mean absolute error."""
    smallest: float
    largest: float
    """Sizes in billions of parameters between which the ends behind the forecast lie: the family's where it is
    known."""
    format: Estimate
    """Reported score minus the untrained model's score in the harness of a run on this task: the median, and the 10%
    and 90% quantiles."""


def grouped_ends() -> pd.DataFrame:
    """Return all ends with the columns source (the text before the first comma or bracket) and group (the letters that
    a model's name begins with)."""
    rows = pd.concat([reported_scores(), blind_scores()], ignore_index=True)
    source = rows["end_source"].str.extract(r"^([^,(]*)")[0].str.strip()
    return rows.assign(source=source, group=rows["model"].str.lower().str.extract(r"^([a-z]+)")[0])


def predict_end(parameters: float, family: str, task: str) -> SizeForecast:
    """Forecast the end of runs of a model from its size in billions of parameters, its family and its task. Raises
    UserError for tasks without known ends, and for sizes far outside the known ones."""
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
    """Return the ends (asked,) that the fit to the known ends in `rows` predicts."""
    groups = sorted(set(rows["group"]))

    def features(table: pd.DataFrame) -> np.ndarray:
        tasks = np.array([[one == task for task in TASKS] for one in table["task"]], dtype=float)
        sizes = tasks * np.log10(table["parameters"].to_numpy(dtype=float))[:, None]
        return np.hstack([tasks, sizes, [[float(one == group) for group in groups] for one in table["group"]]])

    x, y = features(rows), logit(rows["end"].clip(NEAR, 1 - NEAR).to_numpy())
    # slopes and intercepts are almost unpenalized; only the offsets of families are drawn to 0
    shrink = np.diag([1e-9] * 2 * len(TASKS) + [SHRINK] * len(groups))
    return expit(features(asked) @ np.linalg.solve(x.T @ x + shrink, x.T @ y))


def size_lines(parameters: float, family: str, task: str) -> list[str]:
    """Return sentences about the end that `predict_end` forecasts from a model's size."""
    one = predict_end(parameters, family, task)
    whose = f"ends of {family}" if one.known else f"ends of all families, fewer than {FEWEST} of them of {family},"
    left = "sources" if one.known else "families"
    return [
        f"Runs of {family} with {parameters:g} billion parameters on {TASKS[task]} should end at {one.end.value:.2f}, "
        f"80% {one.end.low:.2f} to {one.end.high:.2f}: from {one.ends} {whose} of {one.smallest:g} to {one.largest:g} "
        f"billion. On {left} that were left out whole the error is {one.error:.3f}.",
        f"Format and prompt are {one.format.value:+.2f} of the gain of such runs (80% of public harnesses "
        f"{one.format.low:+.2f} to {one.format.high:+.2f}): the score that makers report less that of the untrained "
        "model in the harness. It is no learning.",
        "This is a guess from other models. `rftlab pilot --reported SCORE` with the score that makers report is "
        "nearer, and one run is nearer still.",
    ]
