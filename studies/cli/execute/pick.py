"""Choose the runs for `rftlab reproduce --level llm --hours N`: those that decide most verdicts on the paper's claims
within the hours.

The expected results of a pair's runs come from its fitted simulation (studies/data/paper/pairs.py), or from the
reference runs of a language model where it has none. A claim is decided by the fewest seeds n at which the interval of
each of its differences,

    d +- t(n-1) sqrt(v / n),    v = variance over seeds + sum over its designs of p (1 - p) / questions,

lies inside its range, or one of them outside. Claims are taken in the order of the hours that they add: runs that
several share are paid once.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.files import write_file
from rftlab.studies.cli.common import PlanFlags
from rftlab.studies.cli.execute.plan import planned
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.paper.pairs import pairs_at
from rftlab.studies.data.paper.questions import count_questions
from rftlab.studies.data.results.claims import CLAIMS, short_label
from rftlab.studies.data.results.endpoints import Measured, measure_pair
from rftlab.studies.data.results.reference import reference
from rftlab.studies.data.results.stats import mean, t_errors
from rftlab.studies.data.results.verdicts import FAILS, HOLDS, Claim, Part, joint_verdict
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.about import commit, machine
from rftlab.studies.data.runs.finish import finish_points
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.study import Study, checked_study

PAPERS = tuple(claim for claim in CLAIMS if claim.source)
"""Claims of the paper. Those of rftlab's own hypothesis have no source and do not count."""
SIMULATED = 5
"""Seeds of the simulations that predict a pair's runs: those of `make study`, so that finished ones are used."""
VERDICTS = "verdicts-llm.md"
"""Name of the file in the results folder with the verdict on each claim."""


class Pick(NamedTuple):
    """Claim about a pair, and the runs and hours that deciding it takes."""

    pair: str
    claim: Claim
    cells: tuple[str, ...]
    seeds: int
    verdict: str
    """Predicted verdict."""
    new: tuple[tuple[str, str, int], ...] = ()
    """Runs that no earlier pick has: pair, cell and seed."""
    hours: float = 0.0
    """Hours of the device for these new runs."""

    @property
    def runs(self) -> list[tuple[str, str, int]]:
        """Pair, cell and seed of each run, seed by seed."""
        return [(self.pair, cell, seed) for seed in range(self.seeds) for cell in self.cells]


def forecast_curves(console: Console, root: Path, pair: str, threads: int, quiet: bool) -> pd.DataFrame:
    """Return runs that predict those of a pair: simulated ones, from the store or run now, or the reference runs."""
    if pair in pairs_at("sim"):
        points = checked_study("sim", [pair], SIMULATED, None).points()
        finish_points(console, store.open_store(root), points, threads, quiet)
        return collect(root, points).curves
    curves = reference().curves
    known = [*pairs_at("sim"), *curves["pair"].unique()]
    check(pair in known, f"hours: nothing predicts {pair}; allowed: {', '.join(known)}")
    return curves


def seeds_to_decide(parts: list[Part], measured: Measured, questions: int, most: int) -> tuple[int, str] | None:
    """Return the fewest seeds that decide a claim, and its verdict; None where `most` do not, or it does not apply."""
    if not parts or not all(np.all(part.applies) and np.isfinite(part.measured.value) for part in parts):
        return None
    values, spreads = [], []
    for part in parts:
        chances = np.array([np.nanmean(measured.of(cell)) for cell in part.cells])
        own = mean(part.values)
        counted = np.isfinite(part.values).sum()
        spread = own.error**2 * counted if np.isfinite(own.error) else 0.0
        values.append(own.value)
        spreads.append(spread + float((chances * (1 - chances)).sum()) / questions)
    for seeds in range(2, most + 1):
        half = t_errors(seeds - 1) * np.sqrt(np.array(spreads) / seeds)
        low, high = np.array(values) - half, np.array(values) + half
        within = (low >= [part.low for part in parts]) & (high <= [part.high for part in parts])
        beyond = (high < [part.low for part in parts]) | (low > [part.high for part in parts])
        if beyond.any() or within.all():
            return seeds, FAILS if beyond.any() else HOLDS
    return None


def wanted_claims(pair: str, curves: pd.DataFrame, questions: int, most: int) -> list[Pick]:
    """Return the claims that forecasts say can be decided on a pair, with the runs that each takes."""
    measured, wishes = measure_pair(curves, pair), []
    for claim in PAPERS:
        parts = claim.parts(measured)
        needed = seeds_to_decide(parts, measured, questions, most)
        if needed is not None:
            named = dict.fromkeys(cell for part in parts for cell in (*part.cells, *part.among) if cell != "base")
            whole = any(not part.cells for part in parts)
            wishes.append(Pick(pair, claim, measured.designs if whole or not named else tuple(named), *needed))
    return wishes


def choose(wishes: list[Pick], costs: dict[tuple[str, str], float], hours: float) -> list[Pick]:
    """Return claims in the order of the hours that each adds, as long as they fit. costs: hours of a run by pair and
    cell. Finished runs count like others, so that the same hours choose the same runs again."""
    left, taken, picks = list(wishes), set[tuple[str, str, int]](), list[Pick]()
    while left:
        new = [[run for run in wish.runs if run not in taken] for wish in left]
        added = [sum(costs[run[:2]] for run in runs) for runs in new]
        first = int(np.argmin(added))
        if added[first] > hours:
            break
        picks.append(left.pop(first)._replace(new=tuple(new[first]), hours=added[first]))
        hours -= added[first]
        taken |= set(new[first])
    return picks


def reproduce_within(
    console: Console, study: Study, root: Path, hours: float, flags: PlanFlags, threads: int, quiet: bool
) -> bool:
    """Choose the runs, print them in order, and run them unless it is a dry run. Return whether the hours pay for
    any."""
    folder = store.open_store(root)
    points = {(point.pair, point.cell, point.run.seed): point for point in study.points()}
    wishes: list[Pick] = []
    costs: dict[tuple[str, str], float] = {}
    for pair in study.pairs:
        mine = {cell: point for (name, cell, seed), point in points.items() if name == pair and seed == 0}
        costs |= {(pair, cell): planned(point.llm_run, flags).duration.seconds / 3600 for cell, point in mine.items()}
        curves = forecast_curves(console, root, pair, threads, quiet)
        questions = count_questions(next(iter(mine.values())).llm_run)["test"].evaluated
        wishes += wanted_claims(pair, curves, questions, study.seeds)
    picks = choose(wishes, costs, hours)
    claims = len(PAPERS) * len(study.pairs)
    _show(console, picks, points, folder)
    total = sum(pick.hours for pick in picks)
    say(console, f"{len(picks)} of {claims} verdicts decided, {total:.1f} of {hours:g} hours, by forecasts", "bold")
    if not picks:
        hourly = [sum(costs[run[:2]] for run in wish.runs) for wish in wishes]
        why = f"the cheapest takes {min(hourly):.1f}" if hourly else f"{study.seeds} seeds decide none, by forecasts"
        say(console, f"no verdict can be had for {hours:g} hours; {why}", "red")
        return False
    if flags.dry_run:
        return True
    said = [f"# Verdicts that {hours:g} hours decide", f"rftlab {commit()} on {machine()}; 95% intervals over seeds."]
    for pick in picks:
        asked = [points[run] for run in pick.runs]
        finish_points(console, folder, asked, threads, quiet)
        parts = pick.claim.parts(measure_pair(collect(folder, asked).curves, pick.pair))
        verdict = f"{pick.pair}, {pick.claim.name}: {joint_verdict(parts)}"
        say(console, verdict)
        shown = [f"- {part.name}: {part.measured.value:.3f} ({part.measured.low:.3f} to {part.measured.high:.3f}), "
                 f"claimed {part.low:g} to {part.high:g}" for part in parts]  # fmt: skip
        said += [f"## {verdict}", f"{pick.claim.statement} {pick.seeds} seeds; {pick.verdict} was predicted.", *shown]
        write_file(root / VERDICTS, ("\n\n".join(said) + "\n").encode())
    say(console, f"verdicts: {root / VERDICTS}")
    return True


def _show(console: Console, picks: list[Pick], points: dict[tuple[str, str, int], RunSpec], folder: Path) -> None:
    """Print the claims in their order, with their runs."""
    numbers = Column("hours", ".1f"), Column("in all", ".1f")
    table, total = Table("", "pair", "claim", "predicted", "seeds", "new runs", "done", *numbers, wrap="words"), 0.0
    for number, pick in enumerate(picks, start=1):
        total += pick.hours
        done = f"{sum(store.read(folder, points[run]) is not None for run in pick.runs)} of {len(pick.runs)}"
        cells = list(dict.fromkeys(short_label(cell) for _, cell, _ in pick.new))
        named = ", ".join(cells) if len(cells) <= 4 else f"{len(pick.new)}, of {len(cells)} designs"
        table.add(number, pick.pair, pick.claim.name, pick.verdict, pick.seeds, named, done, pick.hours, total)
    put(console, "runs in their order", table)
