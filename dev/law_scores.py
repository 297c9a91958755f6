"""Score the law, how well it ranks designs and how large the errors of its forecasts are, wherever both are known:
`python -m dev.law_scores [RESULTS]` prints both tables and draws the runs.

The runs are those of language models that come with rftlab, simulated pairs of a results folder, published numbers, and
public runs that repeat their designs.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios, time_per_round
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.public import store
from rftlab.studies.analysis.public.claims import SIX_HOURS, without_repeat
from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, label, published
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.data.runs.study import has_study, read_study
from rftlab.studies.forecast.law.curve import KnownRun, forecast
from rftlab.studies.forecast.law.noise import MeasuredNoise, pilot_noise
from rftlab.studies.forecast.law.show import NARROW, shipped_cells, simulated_noise
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS
from rftlab.studies.forecast.pilot.store import shipped_base, shipped_pairs
from rftlab.studies.forecast.score.score import FEWEST, rank_agreement
from rftlab.studies.report.chart import (
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotAxis,
    PlotSeries,
    Remark,
    dots,
    shades,
)
from rftlab.studies.report.draw import save_chart
from rftlab.studies.report.figures import pretty

SCANNED = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of r that are tried where it was not measured."""
AXES = {"rollouts": "rollouts", "tau": "τ = t √(B_eff / B_eff(32, 1))"}
SHOWN = {"simulator": "llama-math", "published": "llama-math"}
"""Pair to draw for levels with many pairs (train, where no ceiling of generalisation hides the order)."""
RAW = label(BASELINE)
_SHADES = shades(9)
"""Colours of K = 1, 2, 4, ..., 256."""


class RankedPair(NamedTuple):
    """Designs of a pair with the Pass@1 (n,) at the end of each."""

    level: str
    """"language model", "simulator", "published" or "public"."""
    pair: str
    split: str
    noise: tuple[NoiseRatios, ...]
    """r and phi; several values to try where they were not measured."""
    designs: tuple[Design, ...]
    """Designs with their numbers of rounds."""
    ends: np.ndarray
    base: float = float("nan")
    """Pass@1 of the base model."""
    error: MeasuredNoise | None = None
    """Measurements behind `noise`, with their errors."""
    base_noise: NoiseRatios | None = None
    """r and phi of the base policy, where `noise` was measured after some training."""
    known: tuple[KnownRun, ...] = ()
    """Runs that a forecast may use."""
    curves: pd.DataFrame = pd.DataFrame()
    """Means over seeds, with columns design (index into `designs`), round and value."""


def language_pairs() -> Iterator[RankedPair]:
    """Yield test Pass@1 of the runs that come with rftlab, with r and phi of the pilots. Forecasts know the pilot's
    designs where the whole grid was run, otherwise the baseline alone; seed 0."""
    curves = shipped_runs()
    for name in shipped_pairs():
        own, base = curves[curves["pair"] == name], shipped_base(name)
        pair = ranked_pair("language model", name, "test", own, pilot_noise(base), shipped_cells(own))
        before = pilot_noise(base._replace(midway=None)).ratios if base.midway else None
        yield pair._replace(base_noise=before)


def ranked_pair(
    level: str, pair: str, split: str, own: pd.DataFrame, noise: MeasuredNoise, known: tuple[str, ...]
) -> RankedPair:
    """Return a pair from the rows of its runs; runs that ended early are left out."""
    column = f"{split}_pass_at_1"
    own = own[own["cell"].isin(list(CELLS))]
    last = own[own["round"] == own["planned_rounds"]].groupby("cell")
    ends, rounds = last[column].mean(), last["round"].first()
    cells = [cell for cell in CELLS if cell in ends.index]
    designs = tuple(replace(CELLS[cell], rounds=int(rounds[cell]), eval_every=int(rounds[cell])) for cell in cells)
    seen = own[(own["seed"] == own["seed"].min()) & (own["round"] > 0)]
    runs = {cell: seen[seen["cell"] == cell] for cell in known if cell in cells}
    points = [
        KnownRun(CELLS[cell], run["round"].to_numpy(dtype=np.float64), run[column].to_numpy())
        for cell, run in runs.items()
    ]
    lines = own[own["round"] > 0].groupby(["cell", "round"])[column].mean().rename("value").reset_index()
    lines = lines[lines["cell"].isin(cells)]
    lines = lines.assign(design=lines["cell"].map(cells.index))[["design", "round", "value"]]
    base = float(own.loc[own["round"] == 0, column].mean())
    values = ends[cells].to_numpy()
    ratios = (noise.ratios,)
    return RankedPair(level, pair, split, ratios, designs, values, base, noise, None, tuple(points), lines)


def curve_points(pair: RankedPair) -> pd.DataFrame:
    """Return rows design, batch_size, rollouts_each, round, rollouts, tau, value, last: those of the curves, or of the
    ends where there are no curves."""
    rows = pair.curves
    if rows.empty:
        rounds = [design.rounds for design in pair.designs]
        rows = pd.DataFrame({"design": range(len(rounds)), "round": rounds, "value": pair.ends})
    designs = [pair.designs[i] for i in rows["design"]]
    spent = [one.round_rollouts for one in designs]
    each = [time_per_round(one, pair.noise[0]) for one in designs]
    return pd.DataFrame(
        {
            "level": pair.level,
            "pair": pair.pair,
            "split": pair.split,
            "design": [short_label(label(one)) for one in designs],
            "batch_size": [one.batch_size for one in designs],
            "rollouts_each": [one.rollouts for one in designs],
            "round": rows["round"].to_numpy(),
            "rollouts": rows["round"].to_numpy() * spent,
            "tau": rows["round"].to_numpy() * each,
            "value": rows["value"].to_numpy(),
            "last": [row.round == designs[i].rounds for i, row in enumerate(rows.itertuples())],
        }
    )


def collapse(pairs: list[RankedPair]) -> Drawn:
    """Draw a column for each pair: Pass@1 along the runs of all designs against rollouts, above, and against tau,
    below. Dots are ends, their colour is K, and titles have Spearman correlations of the ends."""
    tables = [curve_points(pair) for pair in pairs]
    panels = []
    for axis in AXES:
        for pair, table in zip(pairs, tables, strict=True):
            name = pair.level if pair.level != "language model" else "measured"
            panels.append(_panel(f"{pretty(pair.pair)}\n{name}, {pair.split}", table, axis))
    keys = tuple(LegendKey(f"K = {k}", dots(_colour(k))) for k in (1, 8, 64, 256))
    size = (2.35 * len(pairs) + 0.6, 5.0)
    return Chart(tuple(panels), size, len(pairs), keys, share_y="column"), pd.concat(tables, ignore_index=True)


def _colour(rollouts: int) -> str:
    return _SHADES[int(np.clip(round(np.log2(rollouts)), 0, len(_SHADES) - 1))]


def _panel(title: str, table: pd.DataFrame, axis: str) -> Panel:
    series = []
    for design, own in table.groupby("design", sort=False):
        colour, ends = _colour(int(own["rollouts_each"].iloc[0])), own[own["last"]]
        series.append(PlotSeries(own[axis], own["value"], MarkStyle(colour, width=0.8, alpha=0.5), design))
        series.append(PlotSeries(ends[axis], ends["value"], dots(colour), design))
    ends = table[table["last"]]
    order = rank_agreement(ends[axis].to_numpy(), ends["value"].to_numpy())
    remarks = (Remark(-np.inf, np.inf, f"Spearman {order:.2f}"),) if np.isfinite(order) else ()
    return Panel(title, PlotAxis(AXES[axis], "log"), PlotAxis("Pass@1"), tuple(series), (), remarks)


def simulated_pairs(root: Path) -> Iterator[RankedPair]:
    """Yield train and test Pass@1 of the study in a results folder, if it has one."""
    if not has_study(root, "sim"):
        return
    study = read_study(root, "sim")
    curves = collect(root, study.points()).curves
    for pair in study.pairs:
        base, noise = simulated_noise(pair)
        for split in SPLITS:
            ranked = ranked_pair("simulator", pair, split, curves[curves["pair"] == pair], noise, PILOT_CELLS)
            yield ranked._replace(base_noise=base.ratios)


def published_pairs() -> Iterator[RankedPair]:
    """Yield the numbers that arXiv 2601.22532 reports, with r and phi of the simulated pair. Its parameters were fitted
    to these very numbers on GSM8K, and to those of the base model and of (32, 1) on MATH. Forecasts know these two."""
    for name in pairs_at("sim"):
        model, dataset = PAIRS[name].model, PAIRS[name].dataset
        base_noise, noise = simulated_noise(name)
        for split in SPLITS:
            reported = {cell: published(model, dataset, split, design) for cell, design in CELLS.items()}
            ends = {cell: value for cell, value in reported.items() if value is not None}
            base = published(model, dataset, split, None)
            if base is not None and RAW in ends:
                yield RankedPair(
                    "published",
                    name,
                    split,
                    (noise.ratios,),
                    tuple(CELLS[cell] for cell in ends),
                    np.array(list(ends.values())),
                    base,
                    noise,
                    base_noise.ratios,
                    (KnownRun(BASELINE, np.array([float(BASELINE.rounds)]), np.array([ends[RAW]])),),
                )


def public_pairs() -> Iterator[RankedPair]:
    """Yield PODS after six hours on GSM8K, means of ten runs a cell: one prompt a round, K the responses trained on. r
    was not measured, and the law does not cover rules that select responses."""
    runs = store.runs()
    rows = store.score_rows(store.of_source("pods", runs, store.curves()), "gsm8k")
    rows = rows[rows["seconds"] == SIX_HOURS].merge(runs, on="run_id")
    trained = rows["trained_rollouts_per_prompt"].fillna(rows["rollouts_per_prompt"])
    table = rows.assign(trained=trained).groupby(without_repeat(rows["run_id"]))[["round", "value", "trained"]].mean()
    group = EXPERIMENTS["batch"].cells[0].estimator
    designs = tuple(
        Design(1, int(row.trained), estimator=group, rounds=round(row.round), eval_every=round(row.round))
        for row in table.itertuples()
    )
    noise = tuple(NoiseRatios(ratio) for ratio in SCANNED)
    yield RankedPair("public", "pods", "test", noise, designs, table["value"].to_numpy())


class LawScore(NamedTuple):
    """Scores of the law for a pair; nan where a number is not available. Correlations are Spearman rank correlations
    with the Pass@1 at the end."""

    noise: NoiseRatios
    """r and phi; where several were tried, those that rank best."""
    law: float
    at_base: float
    """Correlation of the law with r and phi of the base policy."""
    plain: float
    """Correlation of B / (r + 1/K), which ignores baselines."""
    rollouts: float
    """Correlation of the run's rollouts, support included."""
    prompts: float
    """Correlation of the run's prompts."""
    regret: float
    """At equal rollouts a round, Pass@1 of the best design minus that of the design that the law ranks first."""
    held_out: int
    """Number of designs that were forecast."""
    error: float
    """Mean absolute error of the forecasts of designs whose runs were not known."""
    covered: float
    """Share of these designs within the 80% interval."""


def law_times(designs: tuple[Design, ...], noise: NoiseRatios, plain: bool = False) -> np.ndarray:
    """Return tau (n,) at the end of each design."""
    return np.array([design.rounds * time_per_round(design, noise, plain) for design in designs])


def score_law(pair: RankedPair) -> LawScore:
    """Return all scores of the law for a pair."""
    designs, ends, base = pair.designs, pair.ends, pair.base_noise
    ranks = [rank_agreement(law_times(designs, noise), ends) for noise in pair.noise]
    law = max(ranks, key=lambda value: np.nan_to_num(value, nan=-2))
    best = pair.noise[ranks.index(law)]
    return LawScore(
        best,
        law,
        rank_agreement(law_times(designs, base), ends) if base else float("nan"),
        rank_agreement(law_times(designs, best, plain=True), ends),
        rank_agreement(np.array([design.rounds * design.round_rollouts for design in designs]), ends),
        rank_agreement(np.array([design.rounds * design.batch_size for design in designs]), ends),
        regret(pair, best),
        *forecast_errors(pair),
    )


def regret(pair: RankedPair, noise: NoiseRatios) -> float:
    """Return the regret of the law's choice among designs without window or support that spend the most common number
    of rollouts."""
    plain = [i for i, one in enumerate(pair.designs) if one.replay_window == one.support_rollouts == 0]
    spent = np.array([pair.designs[i].round_rollouts for i in plain])
    values, counts = np.unique(spent, return_counts=True)
    if not counts.size or counts.max() < FEWEST:
        return float("nan")
    alike = [i for i, size in zip(plain, spent, strict=True) if size == values[counts.argmax()]]
    chosen = max(alike, key=lambda i: time_per_round(pair.designs[i], noise))
    return float(pair.ends[alike].max() - pair.ends[chosen])


def forecast_errors(pair: RankedPair) -> tuple[int, float, float]:
    """Return the number of designs forecast, the mean absolute error, and the share within the 80% interval, for
    designs without a known run."""
    seen = {label(run.design) for run in pair.known}
    held = [i for i, one in enumerate(pair.designs) if label(one) not in seen]
    if not held or not pair.known or pair.error is None:
        return 0, float("nan"), float("nan")
    predicted = forecast(pair.base, list(pair.known), pair.error, tuple(pair.designs[i] for i in held))
    truth = pair.ends[held]
    inside = (predicted.low <= truth) & (truth <= predicted.high)
    return len(held), float(np.abs(predicted.values - truth).mean()), float(inside.mean())


def show_law_scores(console: Console, scores: Iterable[tuple[RankedPair, LawScore]]) -> None:
    """Print a row for each pair and split, by level."""
    correlations = (Column(name, ".2f") for name in ("phi", "law", "base", "f = 1", "B K", "B"))
    title, regret = "Spearman rank correlation with Pass@1 at the end", Column("regret", ".3f")
    ranks = Table("pair", "n", "r", *correlations, regret, title=title, **NARROW)
    shares = (Column("error", ".3f"), Column("80% covers", ".0%"))
    errors = Table("pair", "held out", *shares, title="forecasts from a few runs", **NARROW)
    level = ""
    for pair, one in scores:
        if pair.level != level:
            level = pair.level
            ranks.add(level, style="italic")
        r = f"{one.noise.between:.4f}" + ("*" if len(pair.noise) > 1 else "")
        name = f"{pair.pair}, {pair.split}"
        ranks.add(name, len(pair.designs), r, one.noise.gain, *one[1:7])
        if one.held_out:
            errors.add(f"{name} ({level})", *one[7:])
    console.print(ranks)
    say(console, "law: tau with B_eff = B / (r + f/K); base: r and phi of the base policy; f = 1: no baselines", "dim")
    text = "B K, B: rollouts, prompts of the run; regret: of the law's choice at equal rollouts"
    say(console, f"{text}; *: nobody measured r, best of six", "dim")
    console.print(errors)


def score_all(console: Console, results: Path, quiet: bool) -> None:
    """Score the law wherever ranks are known, print the scores, and draw them."""
    root = open_store(results)
    scores = []
    with step_progress(console, "pairs", quiet) as step:
        for pair in _all_pairs(root):
            scores.append((pair, score_law(pair)))
            step(len(scores), len(scores) + 1)
    show_law_scores(console, scores)
    if not has_study(root, "sim"):
        say(console, f"no simulated pairs: {root} has no study (rftlab reproduce --results {root})", "yellow")
    folder, drawn = folder_below(root, "law"), _drawn([pair for pair, _ in scores])
    first = list({one.level: one for one in reversed(drawn)}.values())[::-1]
    for name, pairs in (("collapse", drawn), ("overview", first)):
        figure, numbers = collapse(pairs)
        say(console, f"figure: {save_chart(figure, folder, name, numbers)}")


def _all_pairs(root: Path) -> Iterator[RankedPair]:
    yield from language_pairs()
    yield from simulated_pairs(root)
    yield from published_pairs()
    yield from public_pairs()


def _drawn(pairs: list[RankedPair]) -> list[RankedPair]:
    """Return the pairs of the figure: those with the most designs first."""
    measured = sorted((one for one in pairs if one.level == "language model"), key=lambda one: -len(one.designs))
    return measured + [one for one in pairs if SHOWN.get(one.level) == one.pair and one.split == "train"]


if __name__ == "__main__":
    score_all(Console(), Path(sys.argv[1] if len(sys.argv) > 1 else "results"), False)
