"""Watch runs for alarms, early signs of failure, and count how often each alarm was right.

An alarm at a round rests on that round and earlier ones alone, so unfinished runs are judged like finished ones.

Alarms are scored by hits on runs that failed and by false alarms on runs that did not. A run failed where Pass@1,
reward or format rate fell below half of its best level and stayed there, or where Pass@1 ended near zero. It did not
fail where its end is at least half of the median end of those runs of its source that did not fall. Other runs, which
never rose or are too short to judge, are not counted.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.studies.analysis.diagnose.observed import (
    PROGRESS,
    SILENT,
    Finding,
    Line,
    ObservedRun,
    Unjudged,
    is_narrow,
    limit,
    observe,
    smooth,
    start_length,
    start_level,
    without_idle,
)
from rftlab.studies.analysis.diagnose.stability import LEVELS, lasting_fall
from rftlab.studies.console.table import Column, Table, put
from rftlab.studies.readers.names import translate_metric
from rftlab.studies.readers.run import ImportedRun, KnownDesign

RATES = files("rftlab.studies") / "assets" / "alarms.csv"
WINDOW = 5
"""Number of values under the running median that is compared: the last ones up to a round."""
EARLY = 10
"""Number of first values of a gradient norm whose highest running median is its (noisy) early level."""


class AlarmRule(NamedTuple):
    """Rule of an alarm: a quantity and the threshold from which it is a sign of failure."""

    kind: str
    metric: str
    """Metric of training, or of the test set where training does not log it."""
    measure: Callable[[np.ndarray, KnownDesign], np.ndarray | None]
    """Function of the metric's values (n,) and the design that returns the compared values (n,): nan where nothing is
    compared yet, and None in place of the array where what is known of the run does not allow the alarm."""
    threshold: str
    """Name of the threshold in `THRESHOLDS`."""
    says: str
    """Words for the compared quantity, printed after its value."""
    above: bool = True
    """Whether values above the threshold are a sign; otherwise values below it are."""
    needs: str = ""
    """Facts that must be known beside the metric, in words."""


class FiredAlarm(NamedTuple):
    """First round at which an alarm fired."""

    rule: AlarmRule
    round: int
    value: float
    """Value that was compared with the threshold."""


def _running(values: np.ndarray) -> np.ndarray:
    """Return the median (n,) of the last WINDOW values; nan where there are fewer."""
    return pd.Series(values).rolling(WINDOW).median().to_numpy()


def _over(values: np.ndarray, level: float) -> np.ndarray:
    """Return the running median in multiples of a level; nan where the level is not positive."""
    return _running(values) / (level if level > 0 else np.nan)


def _length(values: np.ndarray, design: KnownDesign) -> np.ndarray:
    return _over(values, start_length(values))


def _near_limit(values: np.ndarray, design: KnownDesign) -> np.ndarray | None:
    most = design.response_limit
    return None if not most or start_length(values) >= limit("alarm_long") * most else _over(values, most)


def _gradient(values: np.ndarray, design: KnownDesign) -> np.ndarray:
    return np.where(np.arange(len(values)) < EARLY, np.nan, _over(values, float(np.nanmax(_running(values[:EARLY])))))


def _clipped(values: np.ndarray, design: KnownDesign) -> np.ndarray | None:
    return None if is_narrow(design.loss or "") else _running(values)


def _entropy(values: np.ndarray, design: KnownDesign) -> np.ndarray:
    return np.where(_running(values) > limit("alarm_entropy_least"), _over(values, start_level(values)), np.nan)


_LIMIT = ", and a response limit above the first lengths"
_RANGE = f", of a range of {limit('clip_range'):g} or more"
_ENTROPY = f"of its first values, above {limit('alarm_entropy_least'):g}"
ALARMS = (
    AlarmRule("alarm: short responses", "response_length", _length, "length_left", "of its first values", above=False),
    AlarmRule("alarm: long responses", "response_length", _near_limit, "alarm_long", "of its limit", needs=_LIMIT),
    AlarmRule("alarm: gradient norm", "grad_norm", _gradient, "alarm_gradient", f"of its first {EARLY} values"),
    AlarmRule("alarm: clipped tokens", "clip_fraction", _clipped, "clip_fraction", "of the tokens", needs=_RANGE),
    AlarmRule("alarm: entropy", "entropy", _entropy, "alarm_entropy", _ENTROPY),
)
_WATCHED = (*dict.fromkeys(rule.metric for rule in ALARMS), SILENT[1])
"""Metrics that alarms look at."""


def compared_values(rule: AlarmRule, seen: ObservedRun) -> tuple[Line, np.ndarray] | None:
    """Return the line of a rule's metric and the values that the rule compares (n,); None where the log does not allow
    it."""
    line = seen.first(("train", rule.metric), ("test", rule.metric), least=EARLY + 1)
    values = None if line is None else rule.measure(line.values, seen.design)
    return None if line is None or values is None else (line, values)


def first_fired(rule: AlarmRule, seen: ObservedRun, threshold: float | None = None) -> FiredAlarm | Unjudged | None:
    """Return the first firing of an alarm, by its own threshold where None is given; None where it did not fire."""
    there = compared_values(rule, seen)
    if there is None:
        return Unjudged(rule.kind, f"{rule.metric} at more than {EARLY} rounds{rule.needs}")
    line, values = there
    threshold = limit(rule.threshold) if threshold is None else threshold
    at = np.flatnonzero(values > threshold if rule.above else values < threshold)
    return FiredAlarm(rule, int(line.rounds[at[0]]), float(values[at[0]])) if len(at) else None


def alarms_so_far(
    rounds: Sequence[Mapping[str, float]], design: KnownDesign | None = None
) -> tuple[FiredAlarm | Unjudged, ...]:
    """Return the alarms that fired so far in a run, and those that its metrics do not allow.

    rounds: metrics that each finished round logged, by rftlab's names (response_length, grad_norm, clip_fraction,
    entropy, zero_signal_fraction) and, where rounds are not 1, 2 .., `round`. design: its response limit and its loss,
    where they are known. An alarm that has fired stays, so a caller who keeps the earlier kinds sees which are new.
    """
    lines = {}
    for metric in _WATCHED:
        pairs = [(row.get("round", at), row[metric]) for at, row in enumerate(rounds, start=1) if metric in row]
        at, values = np.array([pair for pair in pairs if np.isfinite(pair[1])], dtype=float).reshape(-1, 2).T
        lines["train", metric] = Line(metric, at.astype(int), values, np.full(len(at), np.nan))
    seen = ObservedRun("", design or KnownDesign(), without_idle(lines))
    said = (first_fired(rule, seen) for rule in ALARMS)
    return tuple(each for each in said if each is not None)


class AlarmWatch:
    """Watch over an unfinished run that reports each alarm once, at the round where it fires."""

    def __init__(self, design: KnownDesign, rounds: Sequence[Mapping[str, float]] = ()):
        """Begin a watch. rounds: metrics already logged, each with its `round`; their alarms count as reported."""
        self.design, self.rounds = design, list(rounds)
        self.told = {alarm.rule.kind for alarm in self._fired()}

    def _fired(self) -> list[FiredAlarm]:
        return [alarm for alarm in alarms_so_far(self.rounds, self.design) if isinstance(alarm, FiredAlarm)]

    def news(self, measured: Mapping[str, float]) -> list[str]:
        """Add a round's measurements, including `round`, and return new alarms in words. Earlier records of that round
        and later ones, which a killed run left, are dropped."""
        self.rounds = [row for row in self.rounds if row["round"] < measured["round"]] + [measured]
        new = [alarm for alarm in self._fired() if alarm.rule.kind not in self.told]
        self.told |= {alarm.rule.kind for alarm in new}
        return [
            f"{alarm.rule.kind}, round {alarm.round}: {alarm.value:.2f} {alarm.rule.says}; "
            f"{describe_rates(alarm.rule.kind)}"
            for alarm in new
        ]


def watched_metrics(logged: Mapping[str, object]) -> dict[str, float]:
    """Return the training metrics in a trainer's log that alarms look at, by rftlab's names."""
    metrics = dict[str, float]()
    for source, value in logged.items():
        name = translate_metric(source)
        if name and name.split == "train" and name.metric in _WATCHED and isinstance(value, int | float):
            metrics.setdefault(name.metric, float(value))
    return metrics


def _check(rule: AlarmRule, seen: ObservedRun) -> Finding | Unjudged | None:
    fired = first_fired(rule, seen)
    if not isinstance(fired, FiredAlarm):
        return fired
    return Finding(
        rule.kind,
        "note",
        "some runs that failed showed this sign",
        (f"{rule.metric} at {fired.value:.2f} {rule.says}, round {fired.round}", describe_rates(rule.kind)),
        f"{'above' if rule.above else 'below'} {limit(rule.threshold):g}, median of {WINDOW} values",
        "read responses of that round; before it goes further a lower learning rate or fewer passes over a batch",
    )


ALARM_CHECKS = {rule.kind: partial(_check, rule) for rule in ALARMS}
"""Alarms as checks of a diagnosis, by kind."""


@cache
def _rates() -> dict[str, dict[str, float]]:
    with RATES.open("rb") as file:
        return pd.read_csv(file).set_index("alarm").to_dict("index")


def describe_rates(kind: str) -> str:
    """Return a sentence about how often an alarm was right on public runs, by the shipped table of `rftlab dev
    score`."""
    counts = {name: f"{value:g}" for name, value in _rates()[kind].items()}
    lead = ", {early} of them {rounds_before} rounds before the fall (median)" if _rates()[kind]["early"] else ""
    sentence = (
        f"public runs: fired on {{hits}} of {{failing}} that failed{lead}, on {{alarms}} of {{healthy}} that did not"
    )
    return sentence.format(**counts)


POOR = 0.5
"""Fraction of the median end of a source's runs below which a run that did not fall is not counted."""

NEVER = np.inf
"""Round of an alarm that did not fire."""
ANY = "any alarm"


class ScoredRun(NamedTuple):
    """Run with the round at which it failed, for scoring alarms."""

    source: str
    seen: ObservedRun
    since: int | None
    """First round after the fall; None where the run did not fail."""
    end: float
    """Median of the curve over the last fifth of the rounds."""


def failing_since(seen: ObservedRun) -> int | None:
    """Return the first round from which the run stays below half of its best level or near zero; None where there is
    none."""
    since = []
    for key in LEVELS:
        line = seen.enough(key)
        fall = lasting_fall(line)
        if fall and fall.share >= limit("fall"):
            since.append(fall.since)
        elif line is not None and line.metric == "pass_at_1" and line.end(0.2) <= limit("start"):
            above = np.flatnonzero(line.values > limit("start"))
            untrained = line.values[0] if line.rounds[0] == 0 else 0.0
            # a run that was near zero throughout, also before training, did not fall
            if max(untrained, smooth(line.values, 0.0).max()) > limit("start"):
                since.append(int(line.rounds[min(above[-1] + 1, len(line) - 1)]))
    return min(since, default=None)


def score_runs(runs: Sequence[tuple[str, ImportedRun]]) -> list[ScoredRun]:
    """Return the runs that are counted in the scores of alarms. runs: each with the name of its source."""
    kept = []
    for source, run in runs:
        seen = observe(run)
        line = seen.enough(*PROGRESS)
        if line is not None:
            kept.append(ScoredRun(source, seen, failing_since(seen), line.end(0.2)))
    held: dict[str, list[float]] = {}
    for one in kept:
        if one.since is None:
            held.setdefault(one.source, []).append(one.end)
    least = {source: max(POOR * float(np.median(ends)), limit("start")) for source, ends in held.items()}
    return [one for one in kept if one.since is not None or one.end >= least[one.source]]


def fired_round(rule: AlarmRule, one: ScoredRun, threshold: float | None = None) -> float | None:
    """Return the round at which an alarm first fired, NEVER if it did not, and None if the log does not allow it."""
    said = first_fired(rule, one.seen, threshold)
    return None if isinstance(said, Unjudged) else said.round if said else NEVER


def count_alarms(scored: list[ScoredRun], fired: Sequence[float | None]) -> dict[str, Any]:
    """Count failing runs, hits, hits before the fall and by how many rounds (median), runs that did not fail, and false
    alarms, over the runs whose logs allow the alarm."""
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
    """Return a table of `count_alarms` with a row for each alarm, and one for the first alarm of any kind. runs: each
    with the name of its source."""
    scored = score_runs(runs)
    fired = {rule.kind: [fired_round(rule, one) for one in scored] for rule in ALARMS}
    rounds_of_runs = zip(*fired.values(), strict=True)
    fired[ANY] = [min((at for at in rounds if at is not None), default=None) for rounds in rounds_of_runs]
    return pd.DataFrame([{"alarm": kind} | count_alarms(scored, at) for kind, at in fired.items()])


def show_rates(console: Console, rates: pd.DataFrame) -> None:
    """Print the table that `alarm_rates` returns."""
    table = Table("alarm", "hits of failing", "before the fall", Column("rounds before", "g"), "false alarms")
    for kind, failing, hits, early, before, healthy, alarms in rates.itertuples(index=False):
        table.add(kind, f"{hits}/{failing}", str(early), before, f"{alarms}/{healthy}")
    put(console, "alarms of diagnose on finished runs", table)
