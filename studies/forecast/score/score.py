"""How good forecasts are, on everything that is known. Nothing is fitted to the cells it is scored on.

A case is a pair with a pilot's part and a held-out part, and `Case.evidence` is made from the first alone: `split` is
the only place where the two are told apart, and what it returns is written beside the scores. Other pairs enter whole:
for the plain baseline of mean gains, for the medians of the law's prior, and where the simulator's prior is that of
other pairs (published numbers).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import linear_of, start_at
from rftlab.studies.forecast.calibrate import Progress, calibrated
from rftlab.studies.forecast.combine import halfway, outside, recommended
from rftlab.studies.forecast.evidence import Evidence, evidence_of
from rftlab.studies.forecast.forecasters import QUICK, RAW, forecast_columns, forecasts_at
from rftlab.studies.forecast.law.curve import bare
from rftlab.studies.forecast.law.score import rank_agreement
from rftlab.studies.forecast.others import (
    finals,
    language_others,
    paper_ends,
    paper_evidence,
    paper_others,
    paper_pairs,
    whole_pairs,
)
from rftlab.studies.forecast.pilot.grid import CELLS, PILOT_CELLS
from rftlab.studies.forecast.pilot.pilot import pilot_from
from rftlab.studies.forecast.pilot.store import shipped_base, shipped_pairs
from rftlab.studies.forecast.predict import Forecast, forecast_from, simulated_ends

RESAMPLES = 4000
SOURCES = ("forecast", "simulator", "halfway", *QUICK)
"""What is scored: the recommended forecast first, then each."""
INTERVALS = ("forecast", "simulator", "law")
"""Those with intervals."""


class Case(NamedTuple):
    """A pair to score on."""

    pair: str
    evidence: Evidence
    known: tuple[str, ...]
    """Cells that the evidence comes from."""
    cells: dict[str, Design]
    """Those that are held out, with their rounds."""
    truth: dict[str, pd.DataFrame]
    """By split, Pass@1 after training: a row per seed, a column per held-out cell; nan where a seed was not run."""
    questions: tuple[int, int]
    """Of the train and of the test set, one response to each."""
    simulated: bool = True
    """Whether the simulator is calibrated too."""
    rates: tuple[float | None, ...] = ()
    """Learning rates of the held-out cells; those of the known runs where left out or None."""
    seed: int = 0
    """Of the runs that the evidence comes from."""
    remarks: tuple[str, ...] = ()
    """What was guessed, in words."""

    @property
    def held_out(self) -> tuple[str, ...]:
        """Names of the held-out cells."""
        return tuple(self.cells)


def split(curves: pd.DataFrame, pair: str, known: tuple[str, ...], seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows that a pilot may see, those of its cells with that seed, and all rows of the cells that it may not."""
    own = curves[curves["pair"] == pair]
    return own[own["cell"].isin(known) & (own["seed"] == seed)], own[~own["cell"].isin(known)]


def language_case(
    curves: pd.DataFrame, pair: str, pairs: list[str], known: tuple[str, ...] = PILOT_CELLS, seed: int = 0
) -> Case:
    """A pair of language-model runs, of which those of `known` with one seed are known. curves: rows as in
    `Results.curves`, of all `pairs`."""
    seen, hidden = split(curves, pair, known, seed)
    evidence = evidence_of(pilot_from(seen, shipped_base(pair), known, seed))
    evidence = evidence._replace(others=language_others(curves, pair, pairs))
    truth, facts = finals(hidden, pair), evidence.facts
    cells = at_rounds(tuple(truth.columns), start_at(pair, "llm").design.rounds)
    return Case(pair, evidence, known, cells, {"test": truth}, (facts.n_train, facts.n_test), seed=seed)


def at_rounds(names: tuple[str, ...], rounds: int) -> dict[str, Design]:
    """Cells of the grid, each a run of so many rounds."""
    return {name: replace(CELLS[name], rounds=rounds, eval_every=rounds) for name in names}


def language_cases(curves: pd.DataFrame) -> list[Case]:
    """A case for every pair whose grid and base model come with the package."""
    pairs = whole_pairs(curves)
    return [language_case(curves, pair, pairs) for pair in pairs]


def partial_cases(curves: pd.DataFrame) -> list[Case]:
    """For every pair of which some designs and the base model come with the package: known is the baseline, held out
    is the rest. A case for each seed of the baseline, because a forecast from one run is as good as that run."""
    whole = whole_pairs(curves)
    known = curves[(curves["cell"] == RAW) & curves["pair"].isin(set(shipped_pairs()) - set(whole))]
    runs = sorted(set(zip(known["pair"], known["seed"].tolist(), strict=True)))
    return [
        language_case(curves, pair, whole, (RAW,), seed)._replace(pair=f"{pair} seed {seed}") for pair, seed in runs
    ]


def paper_cases() -> list[Case]:
    """A case for every pair of the paper, train and test: known are the base model and experiment 1."""
    cases = []
    for pair in paper_pairs():
        evidence = paper_evidence(pair)._replace(others=paper_others(pair))
        truth = {part: paper_ends(pair, part).drop(RAW).to_frame().T for part in SPLITS}
        run = start_at(pair, "sim")
        cells = at_rounds(tuple(truth["test"].columns), run.design.rounds)
        questions = linear_of(run).n_train, linear_of(run).n_test
        cases.append(Case(pair, evidence, (RAW,), cells, truth, questions))
    return cases


def score(
    root: Path, case: Case, seed: int, threads: int, progress: Progress = noop, remark: Callable[[str], None] = print
) -> pd.DataFrame:
    """A row per split and held-out cell: truth (mean over seeds), source (whose forecast is recommended), each of
    SOURCES, NAME_low, NAME_high and NAME_covered (share of seeds within) of INTERVALS.

    The calibration is kept in the results folder `root`, as that of any pair.
    """
    check_split(case)
    simulated = _simulated(root, case, seed, threads, progress, remark) if case.simulated else {}
    return pd.concat([_scored(case, part, simulated.get(part)) for part in case.truth], ignore_index=True)


def _simulated(
    root: Path, case: Case, seed: int, threads: int, progress: Progress, remark: Callable[[str], None]
) -> dict[str, Forecast]:
    posterior = calibrated(root, case.pair, case.evidence, seed, threads, progress, remark)
    cells = tuple(case.cells.values())
    ends = simulated_ends(posterior, cells, threads)
    sizes = dict(zip(SPLITS, case.questions, strict=True))
    return {part: forecast_from(posterior, cells, ends, sizes[part], seed, part) for part in case.truth}


def _scored(case: Case, part: str, simulated: Forecast | None) -> pd.DataFrame:
    truth, cells = case.truth[part][list(case.cells)], tuple(case.cells.values())
    rates = case.rates or (None,) * len(cells)
    forecasts = forecasts_at(case.evidence, cells, rates, part)
    far = outside(case.evidence, cells, rates, part)
    chosen = recommended(simulated, forecasts["law"], far)
    nothing = bare(np.full(len(cells), np.nan))
    ours = {"forecast": chosen.forecast, "simulator": simulated.forecast if simulated else nothing}
    forecasts = ours | {"halfway": halfway(simulated, forecasts["law"])} | forecasts
    table = pd.DataFrame({"pair": case.pair, "split": part, "cell": list(case.cells), "source": chosen.source})
    table["outside"] = far
    table = table.assign(truth=truth.mean().to_numpy(), **forecast_columns(forecasts))
    for name in INTERVALS:
        low, high = forecasts[name].low, forecasts[name].high
        inside = ((truth >= low) & (truth <= high)).where(truth.notna()).astype(float).mean().to_numpy()
        table[f"{name}_covered"] = np.where(np.isnan(low), np.nan, inside)
    return table


def check_split(case: Case) -> None:
    """Raise UserError where the evidence comes from a cell that is held out."""
    leaked = ({label(run.design) for run in case.evidence.runs} | set(case.known)) & set(case.cells)
    check(not leaked, f"{case.pair}: {', '.join(sorted(leaked))} is held out, and the evidence knows it")
    beyond = {name for table in case.truth.values() for name in table.columns} - set(case.cells)
    check(not beyond, f"{case.pair}: truths beyond the held-out cells")


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row per split and forecast of SOURCES that is there for all cells: mae, covered, spearman, regret, and by how
    much its error exceeds the recommended forecast's (95%).

    regret: of the cell that it recommends, what the best cell has more; means over pairs. Intervals resample cells
    within pairs; nan where no pair has two.
    """
    rows = []
    for part, whole in table.groupby("split", sort=False):
        groups = [own.reset_index(drop=True) for _, own in whole.groupby("pair", sort=False)]
        rng = np.random.Generator(np.random.Philox(0))
        names = [name for name in SOURCES if whole[name].notna().all()]
        rows += [{"split": part, "forecast": name} | _summed(groups, name, rng) for name in names]
    return pd.DataFrame(rows)


def _summed(groups: list[pd.DataFrame], name: str, rng: np.random.Generator) -> dict[str, float]:
    errors = [(own[name] - own["truth"]).abs().to_numpy() for own in groups]
    more = [
        error - (own["forecast"] - own["truth"]).abs().to_numpy() for error, own in zip(errors, groups, strict=True)
    ]
    drawn = np.mean([part[rng.integers(0, len(part), (RESAMPLES, len(part)))].mean(axis=1) for part in more], axis=0)
    low, high = np.quantile(drawn, [0.025, 0.975]) if max(map(len, groups)) > 1 else (np.nan, np.nan)
    covered = [own[f"{name}_covered"].mean() if name in INTERVALS else np.nan for own in groups]
    return {
        "mae": float(np.mean([error.mean() for error in errors])),
        "covered": float(np.mean(covered)),
        "spearman": float(np.mean([rank_agreement(own[name], own["truth"]) for own in groups])),
        "regret": float(np.mean([own["truth"].max() - own["truth"][own[name].idxmax()] for own in groups])),
        "excess": float(np.mean([part.mean() for part in more])),
        "excess_low": float(low),
        "excess_high": float(high),
    }
