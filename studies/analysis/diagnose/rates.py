"""How often alarms are right: hits on runs that failed, false alarms on runs that did not.

A run failed where Pass@1, reward or format rate fell below half of its best level and stayed there, or where Pass@1
ended near zero. It did not where it ended at half of what the runs of its source that did not fall usually reach, or
above. Others, those that never rose and those that are too short to tell, are not counted.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.studies.analysis.diagnose.alarms import ALARMS, AlarmRule, compared_values
from rftlab.studies.analysis.diagnose.finding import limit
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun, observe, smooth
from rftlab.studies.analysis.diagnose.stability import LEVELS, lasting_fall
from rftlab.studies.console.table import Column, Table, put
from rftlab.studies.readers.run import ImportedRun

POOR = 0.5
"""Share of the median end of a source's runs below which a run that did not fall is not counted."""

NEVER = -1
"""In place of a round, of an alarm that did not fire."""
ANY = "any alarm"


class ScoredRun(NamedTuple):
    """A run, and when it failed."""

    source: str
    seen: ObservedRun
    since: int | None
    """First round after the fall; None where the run did not fail."""


def failing_since(seen: ObservedRun) -> int | None:
    """The first round of those that stay below half of the best level, or near zero; None where there is none."""
    since = []
    for key in LEVELS:
        line = seen.first(key, least=int(limit("few_points")))
        fall = lasting_fall(line)
        if fall and fall.share >= limit("fall"):
            since.append(fall.since)
        elif line is not None and line.metric == "pass_at_1" and np.median(line.last(0.2)) <= limit("start"):
            above = np.flatnonzero(line.values > limit("start"))
            since += [int(line.rounds[min(above[-1] + 1, len(line) - 1)])] if _rose(line) else []
    return min(since, default=None)


def _rose(line: Line) -> bool:
    """Whether Pass@1 was more than almost nothing: of the untrained model, or for some rounds."""
    return bool(max(line.values[0] if line.rounds[0] == 0 else 0.0, smooth(line.values, 0.0).max()) > limit("start"))


def score_runs(runs: Sequence[tuple[str, ImportedRun]]) -> list[ScoredRun]:
    """The runs that are counted. runs: each with the name of its source."""
    kept = []
    for source, run in runs:
        seen = observe(run)
        if seen.progress(int(limit("few_points"))) is not None:
            kept.append(ScoredRun(source, seen, failing_since(seen)))
    held: dict[str, list[float]] = {}
    for one in kept:
        held.setdefault(one.source, []).extend([_end(one.seen)] if one.since is None else [])
    least = {source: max(POOR * float(np.median(ends)), limit("start")) for source, ends in held.items() if ends}
    return [one for one in kept if one.since is not None or _end(one.seen) >= least[one.source]]


def _end(seen: ObservedRun) -> float:
    line = seen.progress(int(limit("few_points")))
    return np.nan if line is None else float(np.median(line.last(0.2)))


def fired_round(rule: AlarmRule, one: ScoredRun, threshold: float | None = None) -> int | None:
    """The first round beyond a threshold, the rule's own where None, and NEVER where there is none; None where the log
    does not allow the alarm."""
    there = compared_values(rule, one.seen)
    if there is None:
        return None
    at = rule.beyond(there[1], threshold)
    return int(there[0].rounds[at[0]]) if len(at) else NEVER


def count_alarms(scored: list[ScoredRun], fired: Sequence[int | None]) -> dict[str, Any]:
    """Failing runs, hits, those of them before the fall and by how many rounds (median), runs that did not fail, false
    alarms: of the runs whose logs allow the alarm."""
    pairs = [(one.since, at) for one, at in zip(scored, fired, strict=True) if at is not None]
    leads = [since - at for since, at in pairs if since is not None and at != NEVER]
    early = [lead for lead in leads if lead > 0]
    healthy = [at for since, at in pairs if since is None]
    return {
        "failing": len(pairs) - len(healthy),
        "hits": len(leads),
        "early": len(early),
        "rounds_before": float(np.median(early)) if early else np.nan,
        "healthy": len(healthy),
        "alarms": sum(at != NEVER for at in healthy),
    }


def alarm_rates(runs: Sequence[tuple[str, ImportedRun]]) -> pd.DataFrame:
    """A row an alarm, and one for the first alarm of any kind: how many runs failed, hits, hits before the fall and by
    how many rounds (median); how many did not fail, and false alarms among them. runs: each with its source."""
    scored = score_runs(runs)
    fired = {rule.kind: [fired_round(rule, one) for one in scored] for rule in ALARMS}
    fired[ANY] = [_earliest(column) for column in zip(*fired.values(), strict=True)]
    return pd.DataFrame([{"alarm": kind} | count_alarms(scored, at) for kind, at in fired.items()])


def _earliest(fired: tuple[int | None, ...]) -> int | None:
    rounds = [at for at in fired if at is not None]
    return min((at for at in rounds if at != NEVER), default=NEVER) if rounds else None


def show_rates(console: Console, rates: pd.DataFrame) -> None:
    """Print the counts of `alarm_rates`."""
    table = Table("alarm", "hits of failing", "before the fall", Column("rounds before", "g"), "false alarms")
    for kind, failing, hits, early, before, healthy, alarms in rates.itertuples(index=False):
        table.add(kind, f"{hits}/{failing}", str(early), before, f"{alarms}/{healthy}")
    put(console, "alarms of diagnose on finished runs", table)
