"""Score `rftlab diagnose` on runs with known truth: `python -m dev.diagnose_cases [RUNS ..]`.

chosen     linear worlds of the simulator   } thresholds were chosen on these two
worlds     other worlds and estimators      }
held       worlds on which nothing was chosen
second     more of these, of another kind
third      and more, on which the rule of clipped tokens was scored
fourth     and more, on which the rules of step too large were scored as they are
damaged    worlds that break at high rates and after many passes
few        worlds of few training contexts
formats    worlds with a format of which nothing was chosen, with a lenient grade in the log and without
tiny       the shipped runs of small language models
planted    fresh runs of one, with a fault each
noise      made-up runs of few responses a round, at one level all the time
public     public training logs, from a folder with runs.csv and curves.csv, which does not come with the package

Judged are yes and no: a hit is a finding where it is true, a false alarm one where it is not.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from dev import planted_tiny
from dev.known_formats import format_cases, format_worlds
from dev.known_worlds import (
    KnownCase,
    between,
    chosen,
    damaged,
    few,
    fourth,
    held,
    in_order,
    pieces_of,
    run_of,
    second,
    simulated,
    third,
    worlds,
)
from rftlab.studies.analysis.diagnose import CHECKS
from rftlab.studies.analysis.diagnose.alarms import (
    ALARM_CHECKS,
    ALARMS,
    AlarmRule,
    ScoredRun,
    compared_values,
    count_alarms,
    fired_round,
    score_runs,
)
from rftlab.studies.analysis.diagnose.observed import Finding, ObservedRun, observe
from rftlab.studies.data.results import reference
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun, KnownDesign, MetricSeries


class Counts(NamedTuple):
    """Counts of one kind of finding: hits among the true cases, false alarms among the others, and unjudged cases."""

    hits: int
    true: int
    alarms: int
    false: int
    unjudged: int


# --- language models ---


def tiny() -> Iterator[KnownCase]:
    """Yield the shipped runs. Their truth is the mean over the seeds of a cell."""
    shipped = reference.shipped_runs()
    for (pair, cell), runs in shipped.groupby(["pair", "cell"]):
        means = runs.groupby("round")[["test_pass_at_1", "test_flexible"]].mean()
        mean, flexible = (means[name].to_numpy() for name in ("test_pass_at_1", "test_flexible"))
        gain, last = float(mean[-3:].mean() - mean[0]), float(mean[-3:].mean())
        truth = between("collapse", 1 - last / mean.max(), 0.5, 0.2)
        if gain > 0.1:
            share = 1 - float(flexible[-3:].mean() - flexible[0]) / gain
            truth |= {"noise above progress": False, "evaluation too small": False}
            truth |= between("format only", share, 0.7, 0.5)
        rollouts = int(re.split(r"\D", cell)[1])  # rollouts of a cell named 32x8-..
        for seed, curve in runs.groupby("seed"):
            name = f"{pair} {cell} {seed}"
            yield KnownCase(run_of(name, curve.reset_index(drop=True), 500, KnownDesign(rollouts=rollouts)), truth)


def planted() -> Iterator[KnownCase]:
    """Yield fresh runs of `tiny` with a planted fault (`dev.planted_tiny`)."""
    known = {each.name: each for each in planted_tiny.planted_runs()}
    for name, rows in planted_tiny.shipped().groupby("run", sort=False):
        each = known[str(name)]
        design = KnownDesign(each.run.design.batch_size, each.run.design.rollouts)
        yield KnownCase(run_of(str(name), rows.reset_index(drop=True), planted_tiny.QUESTIONS, design), each.truth)


# --- noise ---

SPREAD = 0.6
"""Standard deviation of the logarithm of a gradient norm, as in public runs with few responses."""


def noise() -> Iterator[KnownCase]:
    """Yield runs in which nothing changes: 4 to 64 responses a round, 20 to 200 rounds, three levels."""
    rng = np.random.default_rng(0)
    for level, rounds, responses, seed in product((0.1, 0.45, 0.9), (20, 60, 200), (4, 8, 16, 64), range(20)):
        values = {
            "round": np.arange(1, rounds + 1),
            "reward": rng.binomial(responses, level, rounds) / responses,
            "grad_norm": 0.3 * rng.lognormal(0.0, SPREAD, rounds),
        }
        run = run_of(f"{level} {rounds} {responses} {seed}", pd.DataFrame(values), None, KnownDesign())
        yield KnownCase(run, {"collapse": False, "step too large": False, "plateau": False})


# --- public ---

BROKEN = ("shibuki/lr2e-4", "shibuki/offpolicy-broad-e8-tb256", "shibuki/offpolicy-broad-e16-tb256")
"""Runs that collapsed: the first according to its authors, the others because they end without a right answer."""
STUCK = "shibuki/lr7e-5"
"""A run that ends at 0.21, where smaller rates reach 0.47 to 0.88."""
OPEN = ("shibuki/no-baseline", "shibuki/lr5e-5")
"""Runs without a clear truth: one falls from 0.25 to 0.19, one ends 0.04 below the best rate."""


def public(folder: Path) -> Iterator[KnownCase]:
    """Yield public logs, with a truth from their sources' statements or their last values."""
    about = pd.read_csv(folder / "runs.csv").set_index("run_id")
    for name, rows in pd.read_csv(folder / "curves.csv").groupby("run_id"):
        if name in about.index and rows["round"].nunique() >= 8:
            yield from _public(str(name), rows, about.loc[name])


def _public(name: str, rows: pd.DataFrame, about: pd.Series) -> Iterator[KnownCase]:
    sizes = (about[key] for key in ("prompts_per_round", "rollouts_per_prompt"))
    prompts, rollouts = (None if pd.isna(size) else int(size) for size in sizes)
    run = ImportedRun(name, "public", "", (), KnownDesign(prompts, rollouts), _public_pieces(rows))
    yield KnownCase(run, _said(name))
    cut = int(about["rounds_total"] * 2 / 3)
    truth = _continued(observe(run).lines["test", "pass_at_1"], cut) if not name.startswith("pods") else {}
    if truth:
        yield KnownCase(replace(run, pieces=_public_pieces(rows[rows["round"] <= cut])), truth)


def _public_pieces(rows: pd.DataFrame) -> tuple[MetricSeries, ...]:
    found: list[MetricSeries] = []
    labels = rows.assign(task=rows["task"].fillna("")).groupby(["split", "task", "metric"])
    for (split, task, metric), own in labels:
        found += pieces_of(own, split, task, metric, metric)
    return in_order(found)


def _said(name: str) -> dict[str, bool]:
    """Return the labels of a whole run."""
    if name.startswith("pods"):
        lost = {"collapse": True} if "maxreward" in name else {} if "-n16-" in name else {"collapse": False}
        return lost | {"format only": False}
    if name.startswith("verl"):
        return {"collapse": False, "step too large": False, "format only": True, "noise above progress": False}
    if not name.startswith("shibuki") or name in OPEN:
        return {}
    broken = name in BROKEN
    truth = {"collapse": broken, "step too large": broken or name == STUCK}
    if not broken and name != STUCK and name != "shibuki/lr3e-6":
        truth |= {"format only": False, "noise above progress": False, "evaluation too small": False}
    return truth | ({"no signal": broken} if "offpolicy" in name or name == "shibuki/lr1e-5" else {})


def _continued(line, cut: int) -> dict[str, bool]:
    """Return whether the run was on a plateau at `cut`, from the means of five evaluations before and after; {} where
    there are too few."""
    before, after = line.values[line.rounds <= cut], line.values[line.rounds > cut]
    if len(before) < 20 or len(after) < 8 or before[-5:].mean() - before[0] < 0.1:
        return {}
    more = float(after[-5:].mean() - before[-5:].mean())
    return between("plateau", -more / float(before[-5:].mean() - before[0]), -0.05, -0.1)


# --- tables ---


def score(cases: list[KnownCase]) -> dict[str, Counts]:
    """Return the counts for each kind of finding with known truth. The truth of an alarm is whether the run
    collapses."""
    table = {}
    seen = [(case.truth, observe(case.run)) for case in cases]
    for kind in CHECKS:
        truth = "collapse" if kind in ALARM_CHECKS else kind
        said = [(known[truth], _said_of(run, kind)) for known, run in seen if truth in known]
        judged = [(true, found) for true, found in said if found is not None]
        if said:
            true, false = sum(true for true, _ in said), sum(not true for true, _ in said)
            hits, alarms = sum(t and f for t, f in judged), sum(f and not t for t, f in judged)
            table[kind] = Counts(hits, true, alarms, false, len(said) - len(judged))
    return table


def _said_of(run: ObservedRun, kind: str) -> bool | None:
    said = CHECKS[kind](run)
    return isinstance(said, Finding) if said is None or isinstance(said, Finding) else None


def show(title: str, cases: list[KnownCase]) -> None:
    """Print the counts of one set of cases."""
    print(f"{title}: {len(cases)} runs\n  {'kind':<26}{'hits':>10}{'false alarms':>15}{'not judged':>12}")
    for kind, found in score(cases).items():
        hits, alarms = f"{found.hits}/{found.true}", f"{found.alarms}/{found.false}"
        print(f"  {kind:<26}{hits:>10}{alarms:>15}{found.unjudged:>12}")


# --- alarms with a source left out ---


def chosen_threshold(rule: AlarmRule, scored: list[ScoredRun]) -> float | None:
    """Return the threshold with the largest share of hits minus the share of false alarms, in the middle of equally
    good values; None where no run failed or all did."""
    sign = 1 if rule.above else -1
    extremes: dict[bool, list[float]] = {True: [], False: []}
    for one in scored:
        there = compared_values(rule, one.seen)
        if there is not None:
            furthest = np.max(sign * there[1][np.isfinite(there[1])], initial=-np.inf)
            extremes[one.since is not None].append(float(furthest))
    failed, held = (np.array(extremes[kind]) for kind in (True, False))
    values = np.unique(np.abs([*failed, *held]))
    values = values[np.isfinite(values)]
    if not len(failed) or not len(held) or not len(values):
        return None
    edges = np.concatenate([[values[0] / 2], values, [2 * values[-1]]])
    middles = (edges[1:] + edges[:-1]) / 2
    gain = [float(np.mean(failed > sign * at) - np.mean(held > sign * at)) for at in middles]
    best = np.flatnonzero(np.isclose(gain, max(gain)))
    return float(np.median(middles[best]))


def left_out_rates(runs: list[tuple[str, ImportedRun]]) -> pd.DataFrame:
    """Return the counts for each source with a threshold chosen on all other sources, a row for each alarm and source
    where that is possible."""
    scored, rows = score_runs(runs), []
    for rule in ALARMS:
        for source in sorted({one.source for one in scored}):
            own = [one for one in scored if one.source == source]
            threshold = chosen_threshold(rule, [one for one in scored if one.source != source])
            if threshold is None:
                continue
            counts = count_alarms(own, [fired_round(rule, one, threshold) for one in own])
            if counts["failing"] + counts["healthy"]:
                rows.append({"alarm": rule.kind, "left out": source, "threshold": threshold} | counts)
    return pd.DataFrame(rows)


def main(arguments: list[str]) -> None:
    """Print all tables."""
    for settings in (chosen, worlds, held, second, third, fourth, damaged, few):
        show(settings.__name__, list(simulated(settings(), 2)))
    for graded, name in ((True, "formats, graded leniently too"), (False, "formats, Pass@1 alone")):
        show(name, list(format_cases(format_worlds(), 2, graded)))
    show("tiny", list(tiny()))
    show("planted", list(planted()))
    show("noise", list(noise()))
    if arguments:
        show("public", list(public(Path(arguments[0]))))
        logs = [run for folder in arguments for run in read_logs([Path(folder) / "curves.csv"])]
        print("alarms of a source, by thresholds chosen on the others")
        print(left_out_rates([(run.name.partition("/")[0], run) for run in logs]).to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
