"""Run what the facts compare in each simulated world, and print the verdicts (`rftlab theory facts`)."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.errors import check_choice
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import Table, put, say, write_numbers
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.results.stats import NONE, Estimate, interval
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.finish import finish_points
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.runner import long_form
from rftlab.studies.theory.facts.facts import FACTS, Fact
from rftlab.studies.theory.facts.numbers import Measured, RunChange, Runs

YES, NO, OPPOSITE, UNMEASURED, NOT_RUN = "yes", "no", "opposite", "not measurable", "not run"


class FactVerdict(NamedTuple):
    """Verdict of a simulated world, or of `tiny`, on a fact."""

    verdict: str
    measured: Estimate = NONE
    runs: int = 0
    """Number of values behind the measured number; 0 where the measure itself gives the interval."""
    is_sure: bool = True
    """Whether the whole interval has this verdict."""

    @property
    def is_known(self) -> bool:
        """Whether there is a measured number."""
        return bool(np.isfinite(self.measured.value))


def judge_fact(fact: Fact, measured: Measured | None) -> FactVerdict:
    """Return the verdict on a fact: yes where the interval lies in the fact's range; opposite where it lies as far on
    the other side of the value without an effect; else no, which is sure where the interval lies outside the range."""
    if measured is None:
        return FactVerdict(NOT_RUN)
    values = np.empty(0) if isinstance(measured, Estimate) else np.asarray(measured)[np.isfinite(measured)]
    number = measured if isinstance(measured, Estimate) else interval(values) if values.size else NONE
    if not np.isfinite(number.value):
        return FactVerdict(UNMEASURED)
    inside = fact.low <= number.low and number.high <= fact.high
    outside = number.high < fact.low or number.low > fact.high
    below = fact.none <= fact.low and number.high <= 2 * fact.none - fact.low
    above = fact.none >= fact.high and number.low >= 2 * fact.none - fact.high
    verdict = YES if inside else OPPOSITE if below or above else NO
    return FactVerdict(verdict, number, values.size, inside or outside)


WORLDS = {
    "GSM8K": "qwen-gsm8k",
    "MATH": "qwen-math",
    "real GSM8K": "qwen-gsm8k-fragile",
    "real MATH": "qwen-math-fragile",
}
"""Pair of each simulated world, by the world's name."""
TINY = "tiny"
SEEDS = 64
LEGEND = "?: the interval has a bound within; -: not measurable in that world; empty: no such runs."


class JudgedFact(NamedTuple):
    """Fact with the verdict of each simulated world and of language models."""

    fact: Fact
    verdicts: dict[str, FactVerdict]

    def shown(self, world: str) -> str:
        """Return a world's verdict and number in a few characters, which LEGEND explains."""
        said = self.verdicts[world]
        if not said.is_known:
            return "-" if said.verdict == UNMEASURED else ""
        return f"{said.verdict}{'' if said.is_sure else '?'} {round(said.measured.value, 3):.4g}"


def chosen_facts(names: Iterable[str]) -> list[Fact]:
    """Return the facts of these names, or all facts without names. Raises UserError where a name is unknown."""
    for name in names:
        check_choice("fact", name, tuple(fact.name for fact in FACTS))
    return [fact for fact in FACTS if not names or fact.name in names]


def fact_points(facts: list[Fact]) -> dict[tuple[str, RunChange], list[RunSpec]]:
    """Return the runs that facts compare, by world and setting, one per seed."""
    settings = dict.fromkeys(setting for fact in facts for setting in fact.settings.values())
    starts = {world: start_at(pair, "sim") for world, pair in WORLDS.items()}
    return {
        (world, setting): [RunSpec(WORLDS[world], setting.run(start, seed)) for seed in range(SEEDS)]
        for world, start in starts.items()
        for setting in settings
    }


def judge_facts(root: Path, facts: list[Fact]) -> list[JudgedFact] | None:
    """Return the verdicts from finished runs of a results folder; None where a run is missing. Raises DamagedPoint."""
    curves: dict[tuple[str, RunChange], Runs] = {}
    for place, points in fact_points(facts).items():
        outcomes = [store.read(root, point) for point in points]
        curves[place] = [
            long_form(point.pair, point.run.design, outcome.curve, outcome.metrics)
            for point, outcome in zip(points, outcomes, strict=True)
            if outcome is not None
        ]
        if len(curves[place]) < len(points):
            return None
    judged = []
    for fact in facts:
        verdicts = {}
        for world in WORLDS:
            runs = {name: curves[world, setting] for name, setting in fact.settings.items()}
            verdicts[world] = judge_fact(fact, fact.measure(runs))
        verdicts[TINY] = judge_fact(fact, fact.tiny() if fact.tiny else None)
        judged.append(JudgedFact(fact, verdicts))
    return judged


def stored_facts(root: Path) -> list[JudgedFact] | None:
    """Return the verdicts on all facts; None where a run is missing or damaged."""
    try:
        return judge_facts(root, list(FACTS))
    except store.DamagedPoint:
        return None


def fact_count_line(judged: list[JudgedFact]) -> str:
    """Return a line with the number of facts that each world shows, of those that it can measure."""
    counts = []
    for world in (*WORLDS, TINY):
        known = [one.verdicts[world].verdict for one in judged if one.verdicts[world].is_known]
        counts.append(f"{world} {known.count(YES)} of {len(known)}")
    return f"facts that are shown, of those that can be measured: {', '.join(counts)}"


def fact_table(judged: list[JudgedFact]) -> Table:
    """Return the table of verdicts for the terminal."""
    table = Table("fact", *WORLDS, TINY, align="left", wrap="never")
    for one in judged:
        table.add(one.fact.name, *map(one.shown, one.verdicts))
    return table


def fact_rows(judged: list[JudgedFact]) -> list[str]:
    """Return the verdicts as rows of a Markdown table."""
    heading = ("name", "fact", "source", "number and what is wanted", *WORLDS, TINY)
    rows = [heading, ("---",) * len(heading)]
    for one in judged:
        name, statement, source, quantity = one.fact[:4]
        wanted = f"{quantity}: {one.fact.wanted}"
        rows.append((f"`{name}`", statement, source, wanted, *map(one.shown, one.verdicts)))
    return [f"| {' | '.join(row)} |" for row in rows]


def fact_frame(judged: list[JudgedFact]) -> pd.DataFrame:
    """Return a row for each fact and world: the expected range, and the measured number with its interval."""
    return pd.DataFrame(
        {name: getattr(fact, name) for name in ("name", "statement", "source", "quantity", "low", "high")}
        | {"command": f"rftlab theory facts {fact.name}", "world": world, "verdict": said.verdict, "sure": said.is_sure}
        | {f"measured_{name}": value for name, value in said.measured._asdict().items()}
        for fact, verdicts in judged
        for world, said in verdicts.items()
    )


def theory_facts(console: Console, names: tuple[str, ...], root: Path, threads: int, quiet: bool) -> int:
    """Run what is missing, print the verdicts, and write all facts to RESULTS/facts. Returns the exit status 0."""
    facts = chosen_facts(names)
    points = [point for of_setting in fact_points(facts).values() for point in of_setting]
    finish_points(console, store.open_store(root), points, threads, quiet)
    judged = judge_facts(root, facts) or []
    put(console, "Facts of published studies and public runs: verdict and number", fact_table(judged))
    for one in judged if names else []:
        name, statement, source, quantity = one.fact[:4]
        say(console, f"{name}: {statement} ({source}) Measured: {quantity}; wanted: {one.fact.wanted}.")
        for world, said in one.verdicts.items():
            value, low, high = said.measured
            if said.is_known:
                say(console, f"  {world}: {value:.4g} [{low:.4g}, {high:.4g}]{f', {said.runs} runs' * (said.runs > 0)}")
    say(console, LEGEND)
    say(console, fact_count_line(judged))
    if not names:
        folder = folder_below(root, "facts")
        folder.mkdir(exist_ok=True)
        write_numbers(folder / "facts.csv", fact_frame(judged))
        write_file(folder / "facts.md", "\n".join(fact_rows(judged)).encode() + b"\n")
        say(console, f"numbers, intervals and sources: {folder / 'facts.csv'}, as a table {folder / 'facts.md'}")
    return 0
