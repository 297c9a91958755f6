"""Three runs to make first, the rules that read them, and how often these rules are wrong where more runs are known.

Each rule takes a difference d of test Pass@1 between runs that are cheap, and says whether to go on: where d is above a
threshold. It is right where going on pays, that is where the best of the designs that the rule has not seen is above
those that it has seen by more than the same threshold. Claims of arXiv 2601.22532 say that it should be: a pair that
the baseline does not move is moved by at most 0.04 by anything else (claim 9), rollouts buy Pass@1 (claim 3), and the
best split of 256 rollouts is near (32, 8), with (256, 1) below it (claim 5). The best of several is overestimated by
having been picked, so going on is called right somewhat too often.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rftlab.studies.analysis.public.store import runs
from rftlab.studies.console.table import Column, Table
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, label
from rftlab.studies.data.paper.pairs import pairs_at
from rftlab.studies.data.results.claims import SAME, SLIGHT, short
from rftlab.studies.data.results.measured import Measured, measure_pair, reported_by_paper
from rftlab.studies.data.results.reference import shipped
from rftlab.studies.data.results.stats import Estimate, interval
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.study import has_study, read_study

_RAW, _K8 = label(BASELINE), label(EXPERIMENTS["batch"].cells[0])
_SPLITS = tuple(label(cell) for cell in EXPERIMENTS["tradeoff"].cells if not cell.replay_window)
_MORE = tuple(label(cell) for cell in EXPERIMENTS["rollouts"].cells[2:])
_EDGE = 1e-9
"""Published numbers are decimals; their differences are not, quite."""


class Rule(NamedTuple):
    """Goes on where `after` is above `before` by more than `threshold`, which is right where the best of `unseen` is
    above the best of `seen` by more than that."""

    name: str
    after: str
    before: str
    threshold: float
    seen: tuple[str, ...]
    unseen: tuple[str, ...] | None
    """None: every design but `after`."""
    go: str
    stop: str


RULES = (
    Rule(
        "1 baseline",
        _RAW,
        "base",
        SLIGHT,
        ("base",),
        None,
        "the baseline moves the model: go on",
        "stop: nothing else is said to move it by more than 0.04",
    ),
    Rule(
        "2 rollouts",
        _K8,
        _RAW,
        SAME,
        (_K8,),
        _MORE,
        "rollouts pay: try 16 to 64",
        "8 rollouts do not beat 1 by 0.02: stay with few",
    ),
    Rule(
        "3 split",
        _SPLITS[-1],
        _K8,
        SAME,
        (_K8, _SPLITS[-1]),
        tuple(cell for cell in _SPLITS if cell not in (_K8, _SPLITS[-1])),
        "(256, 1) is ahead: try other splits of 256",
        "take (32, 8): no other split of 256 is said to beat it by 0.02",
    ),
)


class Decision(NamedTuple):
    """What a rule says of a pair."""

    measured: Estimate
    """The difference that it looks at, over seeds."""
    goes: bool
    """Whether it goes on, by the mean."""
    sure: bool
    """Whether the interval is on one side of the threshold."""
    missed: float
    """What the best unseen design gains over the best seen one; nan where no unseen one is known."""
    best: str
    """That design."""
    right: bool | None
    """Whether going on, or stopping, was right; None where nobody knows."""


def decide(rule: Rule, ends: Measured) -> Decision | None:
    """What a rule says; None where the runs that it needs are not there."""
    values = ends.gain(rule.after, rule.before)
    if not np.isfinite(values).any():
        return None
    measured, line = interval(values), rule.threshold + _EDGE
    goes = bool(measured.value > line)
    others = [cell for cell in ends.designs if cell != rule.after] if rule.unseen is None else rule.unseen
    best, unseen = ends.best(others)
    missed = interval(unseen).value - interval(ends.best(rule.seen)[1]).value if unseen.size else np.nan
    sure = bool(measured.low > line or measured.high < line)
    return Decision(measured, goes, sure, missed, best, (missed > line) == goes if np.isfinite(missed) else None)


def known_ends(root: Path) -> dict[str, Measured]:
    """Test Pass@1 of all that comes with rftlab, and of the finished study of the simulator in a results folder, by
    `source:pair`."""
    paper = {f"published:{name}": reported_by_paper(name) for name in pairs_at("sim")}
    known = {name: ends for name, ends in paper.items() if ends is not None}
    curves = shipped()
    known |= {f"llm:{name}": measure_pair(curves, name) for name in dict.fromkeys(curves["pair"])}
    points = read_study(root, "sim").points() if has_study(root, "sim") else []
    if points and all(store.is_there(root, point) for point in points):
        curves = collect(root, points).curves
        known |= {f"sim:{name}": measure_pair(curves, name) for name in dict.fromkeys(curves["pair"])}
    return known


def rule_table(ends: Measured) -> Table:
    """What the rules say of runs."""
    table = Table("rule", "difference", "measured", "threshold", "it says", align="left")
    for rule in RULES:
        said = decide(rule, ends)
        if said is not None:
            measured, bounds = said.measured, "one seed: no interval"
            if np.isfinite(measured.low):
                bounds = f"{measured.low:+.3f} to {measured.high:+.3f}"
            words = (rule.go if said.goes else rule.stop) + ("" if said.sure else " (open: more seeds would tell)")
            name = f"{short(rule.after)} - {short(rule.before)}"
            table.add(rule.name, name, f"{measured.value:+.3f} ({bounds})", f"{rule.threshold:.2f}", words)
    return table


def record_table(known: dict[str, Measured]) -> Table:
    """How often each rule is wrong, by kind of source, beside what going on and stopping always would be."""
    columns = ("wrong", "it stops wrongly", "it goes on wrongly", "always on: wrong", "never on: wrong")
    table = Table("rule", "runs", "pairs", *(Column(name) for name in columns))
    for rule in RULES:
        for kind in ("published", "llm", "sim"):
            told = [decide(rule, ends) for name, ends in known.items() if name.startswith(f"{kind}:")]
            counts = Counter((said.goes, said.right) for said in told if said is not None and said.right is not None)
            stops, goes = counts[False, False], counts[True, False]
            pays = counts[True, True] + stops
            if sum(counts.values()):
                table.add(rule.name, kind, counts.total(), stops + goes, stops, goes, counts.total() - pays, pays)
    return table


def mistakes(known: dict[str, Measured]) -> list[str]:
    """A line for each wrong answer, then what could not be tested."""
    lines = []
    for rule in RULES:
        for name, ends in known.items():
            said = decide(rule, ends)
            if said is not None and said.right is False:
                verb = "goes on" if said.goes else "stops"
                lines.append(
                    f"{rule.name} {verb} on {name} at {said.measured.value:+.3f}, and {short(said.best)} gains "
                    f"{said.missed:+.3f}"
                )
    if not any(name.startswith("sim:") for name in known):
        lines.append("The six simulated pairs are not counted: `rftlab reproduce` makes their runs.")
    fewest = int(runs()["rollouts_per_prompt"].min())
    public = "have the designs" if fewest == 1 else f"have {fewest} rollouts to a prompt or more, so none tests a rule"
    return [*lines, f"The public runs that come with rftlab {public}."]
