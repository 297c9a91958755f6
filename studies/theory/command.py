"""Run theory checks or their mutants, and print expected beside measured numbers (`rftlab theory`)."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check as require
from rftlab.studies.console.table import Table
from rftlab.studies.data.runs.progress import Bar
from rftlab.studies.theory import GROUPS
from rftlab.studies.theory.check import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    Check,
    MeasuredValue,
    untouched,
    verdict_on_mutant,
    worst_verdict,
)

COLOURS = {PASS: "green", FAIL: "red", INCONCLUSIVE: "yellow"}
CAUGHT = {FAIL: "green", PASS: "red", INCONCLUSIVE: "red"}
"""Colours of the verdict on a mutant, which should be FAIL."""
SLOW = 8
"""Duration of a slow check in that of a fast one, roughly."""


class Result(NamedTuple):
    """Result of a check or of one of its mutants."""

    check: Check
    comparisons: list[MeasuredValue]
    verdict: str
    """Verdict; of a mutant it is FAIL where every claim that it must break fails."""
    seconds: float
    mutant: int = 0
    """Number of the check's mutant that ran, from 1; 0 is the check itself."""

    @property
    def named(self) -> list[MeasuredValue]:
        """Comparisons that decide: all of a check's, or those that a mutant must break."""
        return self.check.mutants[self.mutant - 1].named(self.comparisons) if self.mutant else self.comparisons


def run_check(check: Check, mutant: int = 0) -> Result:
    """Run a check, or its n-th mutant."""
    began = time.perf_counter()
    comparisons = check.experiment(mutant)
    verdict = verdict_on_mutant(check.mutants[mutant - 1], comparisons) if mutant else worst_verdict(comparisons)
    return Result(check, comparisons, verdict, time.perf_counter() - began, mutant)


def run_all(
    checks: Iterable[Check], mutants: bool = False, tell: Callable[[Check, bool], object] = noop
) -> list[Result]:
    """Run checks, or all their mutants, in order; `tell` is called before and after each check."""
    results = []
    for check in checks:
        tell(check, False)
        results += [run_check(check, number) for number in (range(1, len(check.mutants) + 1) if mutants else (0,))]
        tell(check, True)
    return results


def selected_checks(ids: tuple[str, ...], tier: Literal["fast", "slow", "all"] = "all") -> list[Check]:
    """Return the checks with these ids (none: all) and of this tier. Raises UserError for unknown ids or no check."""
    known = {check.id: check for group in GROUPS.values() for check in group}
    wanted = [name.upper() for name in ids]
    for name, given in zip(wanted, ids, strict=True):
        require(name in known, f"check = {given!r} is unknown; allowed: {', '.join(known)}")
    chosen = [check for check in known.values() if (not ids or check.id in wanted) and tier in (check.tier, "all")]
    require(
        bool(chosen),
        f"tier = {tier!r} with {', '.join(wanted)} leaves no check; allowed: all, "
        f"{', '.join(sorted({known[name].tier for name in wanted}))}",
    )
    return chosen


def grouped(results: list[Result]) -> dict[str, list[Result]]:
    """Return results by the title of their group, in the order of the groups; empty groups are left out."""
    groups = {
        title: [result for check in checks for result in results if result.check.id == check.id]
        for title, checks in GROUPS.items()
    }
    return {title: members for title, members in groups.items() if members}


def headline(result: Result) -> MeasuredValue | None:
    """Return the first comparison with the verdict of the whole result."""
    return next((c for c in result.named if c.verdict == result.verdict), None)


def count_line(results: list[Result]) -> str:
    """Return the line that counts checks and verdicts, with the time they took."""
    counts = Counter(result.verdict for result in results)
    return (
        f"{len(results)} checks: {', '.join(f'{counts[v]} {v}' for v in COLOURS)} in "
        f"{sum(r.seconds for r in results):.1f} s"
    )


def _table(*columns: str) -> Table:
    return Table(*columns, align="left", box=SIMPLE, padding=(0, 2, 0, 0), pad_edge=False)


def _show_check(console: Console, result: Result, whole: bool) -> None:
    """Print a check: verdict, statement and formula, then its comparisons (all of them, or the one that decides)."""
    check, shown = result.check, result.comparisons if whole else [c for c in [headline(result)] if c]
    verdict, seconds = (f"{result.verdict}  ", COLOURS[result.verdict]), (f"  {result.seconds:.2f} s", "dim")
    console.print(Text.assemble((f"{check.id:<4}", "bold"), verdict, check.statement, seconds))
    lines = [Text(check.formula, style="cyan")]
    if check.corrects:
        lines.append(Text(f"corrects the literature: {check.corrects}", style="magenta"))
    if whole:
        mutants = "; ".join(mutant.text for mutant in check.mutants)
        lines.append(Text(f"{check.source}; {check.kind}, {check.tier}; mutants: {mutants}", style="dim"))
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 4)))
    table = _table("compared", "expected", "measured", "95% interval", "verdict")
    for c in shown:
        coloured = Text(c.verdict, style=COLOURS[c.verdict])
        table.add(c.name, c.expected_text, c.measured_text, Text(c.interval_text, style="dim"), coloured)
    if len(shown) < len(result.comparisons):
        table.add(Text(f"and {len(result.comparisons) - len(shown)} more", style="dim"))
    console.print(Padding(table, (0, 0, 0, 4)))


def _mutant_table(results: list[Result]) -> Table:
    """Return a table with a row per mutant and the comparison that reveals it."""
    table = _table("id", "mutant", "given away by", "expected", "measured", "verdict")
    for result in results:
        c = headline(result)
        numbers = (Text(c.name), c.expected_text, c.measured_text) if c else ("", "", "")
        text = Text(result.check.mutants[result.mutant - 1].text)
        table.add(result.check.id, text, *numbers, Text(result.verdict, style=CAUGHT[result.verdict]))
    return table


def theory(
    console: Console, ids: tuple[str, ...], tier: Literal["fast", "slow", "all"], mutants: bool, quiet: bool
) -> int:
    """Run checks and print them. Returns status 1 where a check FAILs, or with `mutants` where a mutant does not break
    a claim that it must break, or no mutant breaks a claim. Named checks show every comparison."""
    checks = selected_checks(ids, tier)
    with Bar(console, quiet) as bar:
        task = bar.add_task("starting", total=sum(SLOW if check.tier == "slow" else 1 for check in checks))

        def tell(check: Check, done: bool) -> None:
            name = f"{'mutants of ' if mutants else ''}{check.id}"
            bar.update(task, description=name, advance=(SLOW if check.tier == "slow" else 1) * done)

        results = run_all(checks, mutants, tell)
    for title, members in grouped(results).items():
        console.print(Text(title, style="bold underline"))
        if mutants:
            console.print(_mutant_table(members))
        else:
            for result in members:
                _show_check(console, result, whole=bool(ids))
    if mutants:
        missed = [result.check.id for result in results if result.verdict != FAIL]
        line = f"{len(results)} mutants: {len(results) - len(missed)} FAIL as they must" + (
            f", not so {', '.join(missed)}" if missed else ""
        )
        runs: dict[str, list[list[MeasuredValue]]] = {}
        for result in results:
            runs.setdefault(result.check.id, []).append(result.comparisons)
        left = [f"{name}: {claim}" for name, of_check in runs.items() for claim in untouched(of_check)]
        line += f"; claims that no mutant breaks: {', '.join(left) or 'none'}"
        missed += left
    else:
        missed, line = [result.check.id for result in results if result.verdict == FAIL], count_line(results)
    console.print(line, style="red" if missed else "green", markup=False, highlight=False)
    return 1 if missed else 0
