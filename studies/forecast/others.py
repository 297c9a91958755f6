"""The known numbers of pairs that come with rftlab: language models whose whole grids are there, and the numbers that
the paper publishes, rounded to 0.01."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.studies.data.paper.experiments import BASELINE, published
from rftlab.studies.data.paper.pairs import PAIRS, linear_environment, pair, start_at
from rftlab.studies.forecast.evidence import Evidence, Observed, OtherPair
from rftlab.studies.forecast.knobs import LONG, Facts, informed
from rftlab.studies.forecast.law.noise import pilot_noise
from rftlab.studies.forecast.pilot.pilot import CELLS
from rftlab.studies.forecast.pilot.store import shipped_base, shipped_pairs

ROUNDING = 0.01 / np.sqrt(12)
"""Standard deviation of what rounding does to a published number."""


def whole_pairs(curves: pd.DataFrame) -> list[str]:
    """Pairs whose whole grid is there, and whose base model was measured for the package."""
    return [name for name in shipped_pairs() if set(CELLS) <= set(curves.loc[curves["pair"] == name, "cell"])]


def language_others(curves: pd.DataFrame, name: str, pairs: Iterable[str]) -> tuple[OtherPair, ...]:
    """All of `pairs` but the named one, from rows as in `Results.curves`: means over seeds."""
    return tuple(_language(curves[curves["pair"] == other], other) for other in pairs if other != name)


def _language(own: pd.DataFrame, name: str) -> OtherPair:
    tables = [finals(own, name, split) for split in SPLITS]
    rounds = int(own["planned_rounds"].max())
    designs = tuple(replace(CELLS[cell], rounds=rounds, eval_every=rounds) for cell in tables[0].columns)
    start = own[own["round"] == 0]
    base = np.array([start[f"{split}_pass_at_1"].mean() for split in SPLITS])
    ends = np.stack([table.mean().to_numpy() for table in tables], axis=1)
    return OtherPair(base, designs, ends, pilot_noise(shipped_base(name)))


def finals(curves: pd.DataFrame, name: str, split: str = "test") -> pd.DataFrame:
    """Pass@1 after the last planned round: a row per seed, a column per cell; 0 for a run that diverged, nan for one
    that is not there."""
    own = curves[(curves["pair"] == name) & curves["cell"].isin(CELLS)]
    last = own.sort_values("round").groupby(["seed", "cell"]).tail(1).set_index(["seed", "cell"])
    ends = last[f"{split}_pass_at_1"].where(last["round"] == last["planned_rounds"], 0.0).unstack()
    return ends[[cell for cell in CELLS if cell in ends]]


def paper_ends(name: str, split: str) -> pd.Series:
    """Published Pass@1 of the cells of the grid that are reported for a split."""
    one = pair(name)
    known = {cell: published(one.model, one.dataset, split, design) for cell, design in CELLS.items()}
    return pd.Series({cell: value for cell, value in known.items() if value is not None})


def paper_others(name: str) -> tuple[OtherPair, ...]:
    """The other published pairs of the same data set. Nobody measured their r and phi."""
    return tuple(_published(other) for other in paper_pairs() if other != name and alike(other, name))


def alike(first: str, second: str) -> bool:
    """Whether two pairs have the same data set."""
    return pair(first).dataset == pair(second).dataset


def paper_pairs() -> list[str]:
    """Pairs of the paper that are simulated."""
    return [name for name, one in PAIRS.items() if one.sim is not None and len(paper_ends(name, "test")) > 1]


def _published(name: str) -> OtherPair:
    one, columns = pair(name), [paper_ends(name, split) for split in SPLITS]
    base = [published(one.model, one.dataset, split, None) for split in SPLITS]
    cells = columns[SPLITS.index("test")].index
    ends = np.stack([column.reindex(cells).to_numpy(dtype=float) for column in columns], axis=1)
    designs = tuple(CELLS[cell] for cell in cells)
    return OtherPair(np.array([np.nan if value is None else value for value in base]), designs, ends)


def paper_evidence(name: str) -> Evidence:
    """The base model and experiment 1 of a pair; the prior is that of the other pairs with the same data set, whose
    presets were fitted to their own cells."""
    known, run = pair(name), start_at(name, "sim")
    others = [
        other.sim
        for key, other in PAIRS.items()
        if other.sim is not None and other.dataset == known.dataset and key != name
    ]
    values = np.array(
        [[published(known.model, known.dataset, split, design) for split in SPLITS] for design in (None, BASELINE)]
    )
    environment = linear_environment(run)
    questions = np.array([environment.n_train, environment.n_test])
    inner = np.clip(values, 0.01, 0.99)
    errors = np.sqrt(inner * (1 - inner) / questions + ROUNDING**2)
    design = replace(BASELINE, rounds=run.design.rounds, eval_every=run.design.rounds)
    facts = Facts(informed(LONG, others), environment.n_train, environment.n_test)
    return Evidence(facts, (Observed(design, np.array([0, run.design.rounds]), values, errors),))
