"""Ship a folder of the collection of public runs with the package: `python -m dev.public_runs FOLDER`.

Numbers of sources with a licence are shipped as tables. From the others come pictures of figures, and the statistics
that rftlab.studies.analysis.public.claims reads, each with its reference.
"""

import json
import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import expit, logit

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.files import write_file
from rftlab.studies.analysis.public.claims import CLAIMS, FACTS, PublicFacts, find
from rftlab.studies.analysis.public.store import (
    COLUMNS,
    CURVES,
    DATA,
    ENDPOINTS,
    RUNS,
    SOURCES,
    of_source,
    score_rows,
)
from rftlab.studies.data.results.stats import Mean, interval
from rftlab.studies.data.results.verdicts import ClaimFinding, Part
from rftlab.studies.report.chart import PALETTE, Chart, Drawn, LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries, shades
from rftlab.studies.report.draw import picture

DOTS_PER_INCH, DIGITS = 130, 6
UNINTENDED = tuple(
    (f"shibuki/offpolicy-broad-{x}", f"shibuki/offpolicy-{x}") for x in ("e2-tb256", "e2-tb128", "e4-tb256")
)
"""Pairs of runs with one configuration and seed under two names, over the rounds that both have."""
COLLAPSED = ("shibuki/lr7e-5", "shibuki/lr2e-4")
"""Runs whose learning rates collapse or stall, as their curves show."""
ONE_AXIS = "c rate × steps"
"""Name of the claim about a fit to the curves of shibukizero."""
LICENSED = [source.name for source in SOURCES if source.shipped]


class Collection(NamedTuple):
    """Tables of public runs."""

    runs: pd.DataFrame
    """One row per run with its settings, licence, commit and path in the source; empty where the source does not give
    it."""
    curves: pd.DataFrame
    """One row per value, with COLUMNS."""
    endpoints: pd.DataFrame
    """Single scores without a curve, as fractions."""

    def of_source(self, source: str) -> pd.DataFrame:
        """Return the curves of a source's runs."""
        return of_source(source, self.runs, self.curves)


def read_folder(folder: Path) -> Collection:
    """Return the whole collection from a folder with runs.csv, curves.csv and endpoints.csv. Raises UserError where one
    is missing or lacks a column."""
    tables = []
    for name in ("runs", "curves", "endpoints"):
        path = folder / f"{name}.csv"
        check(path.is_file(), f"{folder} has no {name}.csv; allowed: a folder of the collection of public runs")
        tables.append(pd.read_csv(path))
    collection = Collection(*tables)
    missing = [name for name in COLUMNS if name not in collection.curves]
    check(not missing, f"{folder / 'curves.csv'} has no column {', '.join(missing)}; allowed: {', '.join(COLUMNS)}")
    return collection


def tables_of(collection: Collection) -> dict[str, bytes]:
    """Return the files with the numbers that are shipped."""
    runs, endpoints = (table[table["source"].isin(LICENSED)] for table in (collection.runs, collection.endpoints))
    curves = collection.curves.loc[collection.curves["run_id"].isin(runs["run_id"]), COLUMNS]
    ends = endpoints.to_csv(index=False, lineterminator="\n").encode()
    return {RUNS: _parquet(runs), CURVES: _parquet(curves), ENDPOINTS: ends}


def _parquet(table: pd.DataFrame) -> bytes:
    buffer = BytesIO()
    table.reset_index(drop=True).to_parquet(buffer, index=False, compression="zstd", compression_level=19)
    return buffer.getvalue()


def pair_differences(curves: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the differences of each unintended pair at the evaluations that both have, without round 0."""
    table = score_rows(curves).pivot(index="round", columns="run_id", values="value")
    table = table[table.index > 0]
    return {own: (table[other] - table[own]).dropna().to_numpy() for other, own in UNINTENDED}


def pair_spreads(curves: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the mean absolute difference of each unintended pair."""
    return [
        {
            "source": "shibukizero",
            "configuration": name.removeprefix("shibuki/"),
            "repeats": 2,
            "measure": "mean absolute difference",
            "value": float(np.abs(differences).mean()),
        }
        for name, differences in pair_differences(curves).items()
    ]


def pair_noise(curves: pd.DataFrame) -> Mean:
    """Return the noise of a difference of two single runs, as a mean square over evaluations and then over pairs."""
    differences = pair_differences(curves)
    return Mean(0.0, float(np.sqrt(np.mean([np.mean(d**2) for d in differences.values()]))), len(differences))


def fit_sigmoid(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return floor, ceiling, slope and log of the middle of the sigmoid in log x (n,) that is closest to y (n,): the
    best of six starts, with floor and ceiling within [0, 1]."""
    middle = np.log(x).mean()
    starts = [[logit(0.05), logit(0.9), slope, middle + shift] for slope in (0.7, 1.5, 3.0) for shift in (-1.0, 1.0)]
    # least squares of a sigmoid has local minima, so that one start is not enough
    tries = (least_squares(lambda fitted: sigmoid_at(fitted, x) - y, start, max_nfev=2000) for start in starts)
    return min(tries, key=lambda fit: fit.cost).x


def sigmoid_at(fitted: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the values of a fit at x (n,)."""
    floor, ceiling = expit(fitted[0]), expit(fitted[1])
    return floor + (ceiling - floor) * expit(fitted[2] * (np.log(x) - fitted[3]))


def left_out_errors(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the root mean square error on each group (G,), sorted by name, of the sigmoid fitted to the others."""
    errors = []
    for group in np.unique(groups):
        own = groups == group
        errors.append(np.sqrt(np.mean((sigmoid_at(fit_sigmoid(x[~own], y[~own]), x[own]) - y[own]) ** 2)))
    return np.array(errors)


def rate_points(curves: pd.DataFrame, collapsed: bool) -> pd.DataFrame:
    """Return test scores after round 0 of the runs that differ only in learning rate: run_id, round, value and rate.
    collapsed: whether to include runs that collapse."""
    rows = score_rows(curves)
    rows = rows[rows["run_id"].str.startswith("shibuki/lr") & (rows["round"] > 0)]
    rows = rows if collapsed else rows[~rows["run_id"].isin(COLLAPSED)]
    return rows.assign(rate=rows["run_id"].str.removeprefix("shibuki/lr").astype(float))


def one_axis(curves: pd.DataFrame) -> list[Part]:
    """Return how much closer to a left-out rate a sigmoid of rate x steps is than one of steps."""
    rows = rate_points(curves, collapsed=False)
    y, rate, steps = (rows[name].to_numpy(float) for name in ("value", "rate", "round"))
    errors = [left_out_errors(x, y, rate) for x in (steps, rate * steps)]
    gains = errors[0] - errors[1]
    name = "error of a left-out rate, by steps less by rate × steps"
    return [Part(name, interval(gains), 0.0, np.inf, note=f"{gains.size} learning rates")]


def judge_source(source: str, curves: pd.DataFrame, noise: Mean) -> list[ClaimFinding]:
    """Return a finding for every claim about a source, from its curves and the noise of single runs."""
    return [
        find(claim, one_axis(curves) if claim.name == ONE_AXIS else claim.parts(curves, noise))
        for claim in CLAIMS
        if claim.source == source
    ]


def rmse(x: np.ndarray, y: np.ndarray) -> float:
    """Return the root mean square error of the sigmoid fitted to these points."""
    return float(np.sqrt(np.mean((sigmoid_at(fit_sigmoid(x, y), x) - y) ** 2)))


def measure_facts(collection: Collection) -> PublicFacts:
    """Return the statistics of a collection that holds every source."""
    own = collection.of_source("shibukizero")
    noise = pair_noise(own)
    findings = judge_source("shibukizero", own, noise)
    parts = {(finding.claim.name, finding.claim.source): finding.parts for finding in findings}
    return PublicFacts(noise, pair_spreads(own), [_fit(own, collapsed) for collapsed in (True, False)], parts)


def _fit(own, collapsed: bool) -> dict[str, float]:
    rows = rate_points(own, collapsed)
    y, steps, rate = (rows[name].to_numpy(float) for name in ("value", "round", "rate"))
    errors = {"steps": rmse(steps, y), "rate_steps": rmse(rate * steps, y)}
    return {"rates": np.unique(rate).size, "evaluations": y.size} | errors


def to_json(facts: PublicFacts) -> str:
    """Return facts as JSON with six digits; an open end of a range is null."""
    whole = {
        "noise": {"scale": facts.noise.error, "pairs": facts.noise.freedom},
        "spreads": facts.spreads,
        "fits": facts.fits,
        "parts": [
            {
                "claim": claim,
                "source": source,
                "name": part.name,
                "measured": part.measured._asdict(),
                "low": part.low,
                "high": part.high,
                "repeats": part.note,
            }
            for (claim, source), parts in facts.parts.items()
            for part in parts
        ],
    }
    return json.dumps(_rounded(whole), indent=1, ensure_ascii=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return round(value, DIGITS) if np.isfinite(value) else None
    return value


def _lines(rows: pd.DataFrame, runs: Mapping[str, str], colours: list[str], dash: str = "-", marker: str = ""):
    """Return a line for each of some runs, with its name in the legend."""
    shown = []
    for (run, name), colour in zip(runs.items(), colours, strict=False):
        own = rows[rows["run_id"] == run].sort_values("round")
        shown.append(PlotSeries(own["round"], own["value"], MarkStyle(colour, dash, marker=marker), name))
    return shown


def _keys(series: list[PlotSeries]) -> tuple[LegendKey, ...]:
    return tuple(LegendKey(one.name, one.style) for one in series)


def learning_rates(curves: pd.DataFrame) -> Drawn:
    """Draw test Pass@1 of runs that differ only in learning rate, against steps and against rate x steps, with the
    sigmoid that is closest to all that do not collapse."""
    rows, kept = rate_points(curves, collapsed=True), rate_points(curves, collapsed=False)
    panels = []
    for label, by_rate in (("steps", False), ("learning rate × steps", True)):
        series = []
        groups = list(rows.sort_values(["rate", "round"]).groupby("rate"))
        for (rate, own), colour in zip(groups, shades(len(groups)), strict=True):
            lost = own["run_id"].iloc[0] in COLLAPSED
            name = f"{rate:.0e}".replace("e-0", "e-") + (" collapses" if lost else "")
            x = own["round"] * (rate if by_rate else 1)
            series.append(PlotSeries(x, own["value"], MarkStyle(colour, ":" if lost else "-", 1.3), name))
        x = (kept["round"] * (kept["rate"] if by_rate else 1)).to_numpy(float)
        line = np.geomspace(x.min(), x.max(), 100)
        fitted = sigmoid_at(fit_sigmoid(x, kept["value"].to_numpy()), line)
        series.append(PlotSeries(line, fitted, MarkStyle(dash="--", width=2.2), "one sigmoid"))
        keys = _keys(series) if by_rate else ()
        panels.append(Panel("", PlotAxis(label, "log"), PlotAxis("test Pass@1"), tuple(series), keys=keys,
                            keys_title="learning rate"))  # fmt: skip
    return Chart(tuple(panels), (10, 3.9), 2, share_y="all"), rows


def single_runs(curves: pd.DataFrame) -> Drawn:
    """Draw test Pass@1 of single runs that differ in one choice, the advantage or the updates a round. Dotted lines are
    unintended repeats of the configuration of the same colour."""
    rows = score_rows(curves)
    advantages = {"lr4e-5": "centred, divided by deviation", "no-std": "centred", "no-baseline": "raw reward"}
    passes = {
        "e2-tb256": "2, 2",
        "e2-tb128": "2, 4",
        "e2-tb64": "2, 8",
        "e2-tb32": "2, 16",
        "e4-tb256": "4, 4",
        "e4-tb128": "4, 8",
        "e8-tb256": "8, 8",
        "e16-tb256": "16, 16",
    }
    left = _lines(rows, {f"shibuki/{run}": name for run, name in advantages.items()}, PALETTE)
    right = _lines(rows, {"shibuki/lr4e-5": "1, 1"}, ["#000000"])
    right += _lines(rows, {f"shibuki/offpolicy-broad-{run}": name for run, name in passes.items()}, PALETTE)
    repeats = _lines(
        rows, {f"shibuki/offpolicy-{run}": f"{name}, repeat" for run, name in passes.items()}, PALETTE, ":"
    )
    y, title = PlotAxis("test Pass@1"), "passes, updates\na round"
    panels = (
        Panel("", PlotAxis("steps"), y, tuple(left), keys=_keys(left)),
        Panel("", PlotAxis("rounds", low=0.0, high=41.0), y, (*right, *repeats), keys=_keys(right), keys_title=title),
    )
    return Chart(panels, (11, 3.9), 2, share_y="all"), rows


def starts(verl: pd.DataFrame, josancamon: pd.DataFrame) -> Drawn:
    """Draw test Pass@1 of two sources with two single runs each."""
    panels = []
    for rows in map(score_rows, (verl, josancamon)):
        series = _lines(
            rows, {run: run.partition("/")[2] for run in dict.fromkeys(rows["run_id"])}, PALETTE, marker="o"
        )
        y = PlotAxis("test Pass@1", low=0.0, high=0.9)
        panels.append(Panel("", PlotAxis("rounds"), y, tuple(series), keys=_keys(series)))
    return Chart(tuple(panels), (11, 3.2), 2, share_y="all"), pd.concat([verl, josancamon])


PICTURES: dict[str, tuple[Callable[..., Drawn], tuple[str, ...]]] = {
    "public_learning_rates.png": (learning_rates, ("shibukizero",)),
    "public_single_runs.png": (single_runs, ("shibukizero",)),
    "public_starts.png": (starts, ("verl_logs", "josancamon")),
}
"""For each picture of rftlab.studies.analysis.public.show, the function that draws it, and the sources whose curves it
gets."""


def pictures_of(collection: Collection) -> dict[str, bytes]:
    """Return the files with figures of the numbers that are not shipped."""
    found = {}
    for file, (draw, sources) in PICTURES.items():
        chart, _ = draw(*(collection.of_source(source) for source in sources))
        found[file] = picture(chart, "png", DOTS_PER_INCH)
    return found


def take(folder: Path, into: Path) -> None:
    """Write every file of the public runs that comes with the package."""
    collection = read_folder(folder)
    contents = tables_of(collection) | pictures_of(collection) | {FACTS: to_json(measure_facts(collection)).encode()}
    for name, content in contents.items():
        write_file(into / name, content)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(str(DATA)))
