"""Apply three rules to the first cheap runs on a pair, and count how often they are wrong where more runs are known.

A rule looks at one difference of test Pass@1 between cheap runs, and says whether to go on to designs that it has not
seen. It is right to go on where the best of these is above the design at hand by more than the rule's threshold. The
rules are claims of arXiv 2601.22532: a pair that the baseline does not move is moved by at most 0.04 by anything else
(claim 9), rollouts buy Pass@1 (claim 3), and the best split of 256 rollouts is near (32, 8), with (256, 1) below it
(claim 5). The best of several designs is overestimated because it was picked, so going on looks right somewhat too
often.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rftlab.studies.analysis.public.store import runs
from rftlab.studies.console.table import Table
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, label
from rftlab.studies.data.paper.pairs import pairs_at
from rftlab.studies.data.results.claims import SAME, SLIGHT, short_label
from rftlab.studies.data.results.endpoints import Measured, measure_pair, reported_by_paper
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.results.stats import interval
from rftlab.studies.data.results.verdicts import Part, measure
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.study import has_study, read_study

_RAW, _K8 = label(BASELINE), label(EXPERIMENTS["batch"].cells[0])
*_SPLITS, _K1 = (label(cell) for cell in EXPERIMENTS["tradeoff"].cells if not cell.replay_window)
_EDGE = 1e-9
"""Slack for differences of published decimals, which floating point does not represent exactly."""


class FirstRule(NamedTuple):
    """Rule that answers `above` where one run exceeds another by more than a threshold, and `below` otherwise."""

    name: str
    after: str
    before: str
    threshold: float
    above: str
    below: str
    unseen: tuple[str, ...]
    """Designs that the rule is tested on; if empty, every known design but `after`."""
    kept: tuple[str, str]
    """Designs that one keeps after the answers `above` and `below`."""
    goes: bool = True
    """Whether the answer `above` means to go on to unseen designs."""


RULES = (
    FirstRule(
        "1 baseline",
        _RAW,
        "base",
        SLIGHT,
        "go on: the baseline moves the model",
        "stop: nothing else is said to move it by more than 0.04",
        (),
        ("base", "base"),
    ),
    FirstRule(
        "2 rollouts",
        _K8,
        _RAW,
        SAME,
        "go on: 16 to 64 rollouts should pay too",
        "stop: more than 8 rollouts should not pay",
        tuple(label(cell) for cell in EXPERIMENTS["rollouts"].cells[2:]),
        (_K8, _K8),
    ),
    FirstRule(
        "3 split",
        _K1,
        _K8,
        SAME,
        "take (256, 1): no other split of 256 should be ahead of it by 0.02",
        "take (32, 8): no other split of 256 should be ahead of it by 0.02",
        tuple(cell for cell in _SPLITS if cell != _K8),
        (_K1, _K8),
        goes=False,
    ),
)


class Decision(NamedTuple):
    """Answer of a rule for a pair, from means over seeds."""

    difference: Part
    """Difference that the rule looks at, with the range in which the rule answers `below`. The verdict is open where
    the interval contains the threshold."""
    above: bool
    answer: str
    best: str
    """Label of the best unseen design."""
    missed: float
    """Gain of `best` over the design that the answer keeps; nan where no unseen design is known."""
    pays: bool | None
    """Whether `missed` is above the threshold; None where it is not known."""


def decide(rule: FirstRule, ends: Measured) -> Decision | None:
    """Return the answer of a rule; None where the runs that it needs are missing."""
    values, line = ends.gain(rule.after, rule.before), rule.threshold + _EDGE
    if not np.isfinite(values).any():
        return None
    difference = measure(f"{short_label(rule.after)} - {short_label(rule.before)}", values, -np.inf, rule.threshold)
    above = bool(difference.measured.value > line)
    best, gained = ends.best(rule.unseen or [cell for cell in ends.designs if cell != rule.after])
    kept = ends.of(rule.kept[0 if above else 1])
    missed = interval(gained).value - interval(kept).value if gained.size else np.nan
    pays = bool(missed > line) if np.isfinite(missed) else None
    return Decision(difference, above, rule.above if above else rule.below, best, missed, pays)


def known_ends(root: Path) -> dict[str, Measured]:
    """Return test Pass@1 after training by `source:pair`: that of the runs and published numbers that come with rftlab,
    and that of a finished study of the simulator in a results folder."""
    curves = {"llm": shipped_runs()}
    points = read_study(root, "sim").points() if has_study(root, "sim") else []
    if points and all(store.is_there(root, point) for point in points):
        curves["sim"] = collect(root, points).curves
    paper = {f"published:{name}": reported_by_paper(name) for name in pairs_at("sim")}
    return {name: ends for name, ends in paper.items() if ends is not None} | {
        f"{kind}:{name}": measure_pair(own, name) for kind, own in curves.items() for name in own["pair"].unique()
    }


def rule_table(ends: Measured) -> Table:
    """Return a table of the answers of the rules for one pair's runs."""
    table = Table("rule", "difference", "measured", "threshold", "what it says", align="left")
    for rule in RULES:
        said = decide(rule, ends)
        if said is not None:
            measured, open_end = said.difference.measured, bool(said.difference.code == 0)
            words = said.answer + " (open: more seeds would tell)" * open_end
            bounds = f" [{measured.low:+.3f}, {measured.high:+.3f}]" if np.isfinite(measured.low) else ""
            table.add(rule.name, said.difference.name, f"{measured.value:+.3f}{bounds}", f"{rule.threshold:.2f}", words)
    return table


def rule_errors(known: dict[str, Measured]) -> tuple[Table, list[str]]:
    """Count how often each rule is wrong, by source, beside the errors of always going on and of always stopping.
    Returns the table, and a line for each mistake and for each kind of source that was not counted."""
    table = Table("rule", "source", "pairs", "wrong", "always on: wrong", "always stop: wrong")
    lines = []
    for rule in RULES:
        counts: dict[str, Counter[str]] = {}
        for name, ends in known.items():
            said, source = decide(rule, ends), name.partition(":")[0]
            if said is None or said.pays is None:
                continue
            goes = said.above and rule.goes
            wrong = goes != said.pays
            own = counts.setdefault(source, Counter())
            own.update({"pairs": 1, "wrong": wrong, "on": not said.pays, "stop": said.pays})
            if wrong:
                lines.append(
                    f"{rule.name}: wrong on {name}. {said.difference.name} is {said.difference.measured.value:+.3f} "
                    f"({said.answer.partition(':')[0]}), and {short_label(said.best)} gains {said.missed:+.3f} more."
                )
        for source, own in counts.items():
            table.add(rule.name, source, *(own[key] for key in ("pairs", "wrong", "on", "stop")))
    if not any(name.startswith("sim:") for name in known):
        lines.append("sim: not counted, because this results folder has no finished study of rftlab reproduce.")
    fewest = runs()["rollouts_per_prompt"].min()
    return table, [*lines, f"public: no source has the runs (the fewest rollouts to a prompt are {fewest:.0f})."]
