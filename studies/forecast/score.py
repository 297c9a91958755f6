"""How good forecasts are, on everything that is known. Nothing is fitted to the cells it is scored on.

A case is a pair with a pilot's part and a held-out part, and `Case.evidence` is made from the first alone: `split` is
the only place where the two are told apart, and what it returns is written beside the scores. Other pairs enter whole:
for the plain baseline of mean gains, and where the prior is that of other pairs (published numbers).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from rftlab.shared.callbacks import noop
from rftlab.shared.design import Design
from rftlab.shared.errors import check
from rftlab.studies.forecast import plain
from rftlab.studies.forecast.calibrate import Progress
from rftlab.studies.forecast.evidence import Evidence, evidence_of
from rftlab.studies.forecast.paper import paper_evidence, paper_truth
from rftlab.studies.forecast.posterior import calibrated
from rftlab.studies.forecast.predict import predict
from rftlab.studies.paper.experiments import BASELINE, label
from rftlab.studies.paper.pairs import linear_of, start_at
from rftlab.studies.pilot.grid import CELLS, PILOT_CELLS
from rftlab.studies.pilot.pilot import pilot_from
from rftlab.studies.pilot.store import shipped_base, shipped_pairs

RAW = label(BASELINE)
LEVEL = 0.8
"""Of the intervals that are scored."""
RESAMPLES = 4000


class Case(NamedTuple):
    """A pair to score on."""

    pair: str
    evidence: Evidence
    known: tuple[str, ...]
    """Cells that the evidence comes from."""
    held_out: tuple[str, ...]
    truth: pd.DataFrame
    """Test Pass@1 after training: a row per seed, a column per cell of the grid that is known."""
    others: tuple[pd.Series, ...]
    """Test Pass@1 of the cells of each other pair, means over seeds."""
    questions: int
    """Of the test set, one response to each."""
    rounds: int


def finals(curves: pd.DataFrame, pair: str) -> pd.DataFrame:
    """Test Pass@1 after the last planned round: a row per seed, a column per cell; 0 for a run that diverged."""
    own = curves[(curves["pair"] == pair) & curves["cell"].isin(CELLS)]
    last = own[own["round"] == own["planned_rounds"]].pivot(index="seed", columns="cell", values="test_pass_at_1")
    return last.reindex(
        index=sorted(own["seed"].unique()), columns=[cell for cell in CELLS if cell in set(own["cell"])]
    ).fillna(0.0)


def split(curves: pd.DataFrame, pair: str, known: tuple[str, ...]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows that a pilot may see, those of its cells with seed 0, and all rows of the cells that it may not."""
    own = curves[curves["pair"] == pair]
    return own[own["cell"].isin(known) & (own["seed"] == 0)], own[~own["cell"].isin(known)]


def language_case(curves: pd.DataFrame, pair: str, pairs: list[str], known: tuple[str, ...] = PILOT_CELLS) -> Case:
    """A pair of language-model runs. curves: rows as in `Results.curves`, of all `pairs`."""
    seen, hidden = split(curves, pair, known)
    evidence = evidence_of(pilot_from(seen, shipped_base(pair), known))
    truth = finals(hidden, pair)
    others = tuple(finals(curves, other).mean() for other in pairs if other != pair)
    run = start_at(pair, "llm")
    return Case(pair, evidence, known, tuple(truth.columns), truth, others, evidence.facts.n_test, run.design.rounds)


def language_cases(curves: pd.DataFrame) -> list[Case]:
    """A case for every pair whose grid and base model come with the package."""
    pairs = whole_pairs(curves)
    return [language_case(curves, pair, pairs) for pair in pairs]


def partial_cases(curves: pd.DataFrame) -> list[Case]:
    """A case for every pair of which some designs and the base model come with the package: known is the baseline,
    held out is the rest."""
    whole = whole_pairs(curves)
    return [language_case(curves, pair, whole, (RAW,)) for pair in shipped_pairs() if pair not in whole]


def whole_pairs(curves: pd.DataFrame) -> list[str]:
    """Pairs whose whole grid is there, and whose base model was measured for the package."""
    return [pair for pair in shipped_pairs() if set(CELLS) <= set(curves.loc[curves["pair"] == pair, "cell"])]


def paper_cases() -> list[Case]:
    """A case for every GSM8K pair of the paper: known are the base model and experiment 1."""
    truths = {pair: paper_truth(pair) for pair in ("qwen-gsm8k", "llama-gsm8k", "olmo-gsm8k")}
    cases = []
    for pair, truth in truths.items():
        others = tuple(other for name, other in truths.items() if name != pair)
        held_out = tuple(cell for cell in truth.index if cell != RAW)
        run = start_at(pair, "sim")
        cases.append(
            Case(
                pair,
                paper_evidence(pair),
                (RAW,),
                held_out,
                truth[list(held_out)].to_frame().T,
                others,
                linear_of(run).n_test,
                run.design.rounds,
            )
        )
    return cases


def score(
    root: Path, case: Case, seed: int, threads: int, progress: Progress = noop, remark: Callable[[str], None] = print
) -> pd.DataFrame:
    """A row per held-out cell: truth (mean over seeds), simulated, forecast, low, high, covered (share of seeds
    within), and each plain forecast.

    The calibration is kept in the results folder `root`, as that of any pair.
    """
    check_split(case)
    posterior = calibrated(root, case.pair, case.evidence, seed, threads, progress, remark)
    designs = tuple(replace(CELLS[cell], rounds=case.rounds, eval_every=case.rounds) for cell in case.held_out)
    forecast = predict(posterior, designs, case.questions, seed, threads)
    low, high = forecast.interval(LEVEL)
    truth = case.truth[list(case.held_out)]
    table = pd.DataFrame(
        {
            "pair": case.pair,
            "cell": case.held_out,
            "truth": truth.mean().to_numpy(),
            "simulated": forecast.simulated.mean(axis=0),
        }
    )
    table = table.assign(
        forecast=forecast.mean, low=low, high=high, covered=((truth >= low) & (truth <= high)).mean().to_numpy()
    )
    return table.assign(**plain_forecasts(case, designs))


def check_split(case: Case) -> None:
    """Raise UserError where the evidence comes from a cell that is held out."""
    leaked = {label(run.design) for run in case.evidence.runs} & set(case.held_out)
    check(not leaked, f"{case.pair}: {', '.join(sorted(leaked))} is held out, and the evidence knows it")
    check(not set(case.truth.columns) - set(case.held_out), f"{case.pair}: truths beyond the held-out cells")


def plain_forecasts(case: Case, designs: tuple[Design, ...]) -> dict[str, np.ndarray]:
    """Each plain baseline's forecast of the held-out cells."""
    ends = [run.values[-1, 1] for run in case.evidence.runs if label(run.design) == RAW]
    others = [(float(other[RAW]), other[list(case.held_out)].to_numpy()) for other in case.others]
    return {
        "still": plain.still(case.evidence, designs),
        "gain": plain.gain(float(ends[0]), others),
        "sigmoid": plain.sigmoid(case.evidence, designs),
    }


def rank_agreement(forecast: pd.Series, truth: pd.Series) -> float:
    """Spearman's rank correlation; 0 for a forecast that is the same for all cells, nan for fewer than three."""
    if len(truth) < 3:
        return float("nan")
    return 0.0 if forecast.nunique() == 1 else float(stats.spearmanr(forecast, truth).statistic)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row per forecast (forecast, simulated, each plain one): mae, spearman, regret, and by how much its error
    exceeds the forecast's (95%).

    regret: of the cell that it recommends, what the best cell has more; means over pairs. Intervals resample cells
    within pairs; nan where no pair has two.
    """
    rng = np.random.Generator(np.random.Philox(0))
    groups = [own.reset_index(drop=True) for _, own in table.groupby("pair", sort=False)]
    rows = []
    for name in ("forecast", "simulated", *(name for name in plain.PLAIN if table[name].notna().all())):
        errors = [(own[name] - own["truth"]).abs().to_numpy() for own in groups]
        more = [
            error - (own["forecast"] - own["truth"]).abs().to_numpy() for error, own in zip(errors, groups, strict=True)
        ]
        drawn = np.mean(
            [part[rng.integers(0, len(part), (RESAMPLES, len(part)))].mean(axis=1) for part in more], axis=0
        )
        low, high = np.quantile(drawn, [0.025, 0.975]) if max(map(len, groups)) > 1 else (np.nan, np.nan)
        ranks = [rank_agreement(own[name], own["truth"]) for own in groups]
        regrets = [own["truth"].max() - own["truth"][own[name].idxmax()] for own in groups]
        rows.append(
            (
                name,
                np.mean([e.mean() for e in errors]),
                np.mean(ranks),
                np.mean(regrets),
                np.mean([m.mean() for m in more]),
                low,
                high,
            )
        )
    return pd.DataFrame(rows, columns=["forecast", "mae", "spearman", "regret", "excess", "excess_low", "excess_high"])
