"""The actions of `rftlab run first` and `rftlab run next_checks`."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.shared.plumbing.errors import UserError
from rftlab.sim.config import Simulation
from rftlab.studies.analysis.followup.first import known_ends, rule_errors, rule_table
from rftlab.studies.analysis.followup.next_checks import (
    CHECKS,
    Section,
    check_points,
    check_section,
    count_words,
    judge_check,
    measured_ends,
    write_study_page,
)
from rftlab.studies.cli.execute.study import cell_points
from rftlab.studies.data.paper.experiments import FOLLOW_UPS, Experiment, label
from rftlab.studies.data.results.endpoints import endpoint_table
from rftlab.studies.data.results.measured import measure_pair
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.about import commit, machine, provenance
from rftlab.studies.data.runs.finish import count_threads, finish_points
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.report.figures import tradeoff

if TYPE_CHECKING:
    from rftlab.studies.cli.simulate import StudyCommand


def show_first(
    console: Console, command: "StudyCommand", chosen: Experiment, curves: pd.DataFrame, changed: list[str]
) -> None:
    """Show the answers of the rules for the runs of study `first`, and how often they are wrong."""
    counts, lines = rule_errors(known_ends(command.results))
    names = dict(zip(map(label, chosen.cells), map(label, FOLLOW_UPS["first"].cells), strict=True))
    ends = measure_pair(curves.assign(cell=curves["cell"].map(names)), command.pair)
    endpoints = endpoint_table(curves, [chosen], [command.pair])
    figure = tradeoff(chosen, endpoints.assign(published=np.nan) if changed else endpoints, [command.pair])
    sections = [
        Section("first", f"Three runs: {command.pair}", chosen.question, [rule_table(ends)], figure=figure),
        Section(
            "record",
            "How often these rules are wrong",
            "Each rule on every pair whose other designs are known, by means over seeds, beside always going on and "
            "always stopping. A rule that is wrong as often as one of these tells nothing.",
            [counts],
            tuple(lines),
        ),
    ]
    points = cell_points(command, chosen, command.start())
    write_study_page(console, command.results, "first", chosen.title, sections, _about(command, points, changed))


def run_next_checks(
    console: Console, command: "StudyCommand", chosen: Experiment, start: Simulation | LLMRun, changed: list[str]
) -> None:
    """Run the checks, judge their claims, write the page. Raises UserError for a language model."""
    if not isinstance(start, Simulation):
        raise UserError(f"study {chosen.name} with level llm; allowed: with --level sim")
    root = store.open_store(command.results)
    points = [check_points(check, command.pair, start, chosen, command.seeds) for check in CHECKS]
    every = list(dict.fromkeys(point for rows in points for row in rows for point in row))
    finish_points(console, root, every, count_threads(command.threads), command.quiet)
    sections, findings = [], []
    for check, rows in zip(CHECKS, points, strict=True):
        ends = measured_ends(root, check, rows)
        judged = judge_check(check, command.pair, ends["test"])
        sections.append(check_section(check, ends, judged))
        findings += judged
    count = Section("count", "How many claims hold", "Over all checks of this pair.", [], (count_words(findings),))
    write_study_page(console, root, chosen.name, chosen.title, [*sections, count], _about(command, every, changed))


def _about(command: "StudyCommand", points: list[RunSpec], changed: list[str]) -> dict[str, str]:
    asked = {"pair": command.pair, "seeds": f"0 to {command.seeds - 1}", "rounds": f"{command.design.rounds}"}
    asked |= {"changed from the pair's own": ", ".join(changed)} if changed else {}
    return asked | provenance(command.results, points) | {"report": f"by commit {commit()} on {machine()}"}
