"""Run the league, and show and write what came out."""

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.text import Text

from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import Table, write_numbers
from rftlab.studies.data.runs.finish import count_threads, finish_points
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.estimators.league.league import (
    REFERENCES,
    league_findings,
    league_points,
    league_table,
    league_verdict,
    scores,
)
from rftlab.studies.estimators.league.rules import Rules

FOLDER = "league"
_COLOURS = {"better": "green", "worse": "red"}


def run_league(console: Console, rules: Rules, root: Path, threads: int, quiet: bool) -> Path:
    """Finish the league's runs in the store `root`, print the table and the findings, write them to root/league;
    returns that folder."""
    from rftlab.studies.estimators.league.figure import league
    from rftlab.studies.report.draw import save

    points, folder = league_points(rules), folder_below(open_store(root), FOLDER)
    finish_points(console, root, points, count_threads(threads), quiet)
    results = collect(root, points)
    scored = scores(rules, results.curves)
    ranked = league_table(scored)
    figure, numbers = league(ranked)
    save(figure, folder, "league", numbers)
    write_numbers(folder / "scores.csv", scored)
    text = "\n\n".join(league_findings(ranked))
    write_file(folder / "findings.txt", (text + "\n").encode())
    _show(console, ranked)
    console.print(text, markup=False, highlight=False)
    for line in results.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    console.print(f"league: {folder}", markup=False, soft_wrap=True)
    return folder


def _show(console: Console, ranked: pd.DataFrame) -> None:
    """One table, in the order at equal rollouts."""
    columns = ("entrant", "equal rollouts", *(f"minus {r}" for r in REFERENCES), "equal rounds: minus grpo")
    title = "Test Pass@1 and differences, with 95% intervals corrected for the number of entrants"
    shown = Table(*columns, title=title, align="left")
    by_rounds = ranked[ranked["budget"] == "rounds"].set_index("entrant", drop=False)
    for row in ranked[ranked["budget"] == "rollouts"].itertuples():
        rounds = next(by_rounds.loc[[row.entrant]].itertuples())
        shown.add(
            row.entrant,
            f"{row.value:.3f}",
            *(_difference(row, reference) for reference in REFERENCES),
            _difference(rounds, "grpo"),
        )
    console.print(shown)


def _difference(row, reference: str) -> Text:
    kind = league_verdict(row, reference)
    if kind in ("", "same"):
        return Text(kind)
    middle = getattr(row, f"vs_{reference}")
    text = f"{middle:+.3f} ±{getattr(row, f'vs_{reference}_high') - middle:.3f}"
    return Text(text, _COLOURS.get(kind, ""))
