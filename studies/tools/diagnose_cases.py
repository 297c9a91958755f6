"""Score `rftlab diagnose` on runs of which the truth is known: `python -m rftlab.studies.tools.diagnose_cases [RUNS]`.

chosen     linear worlds of the simulator, on which the thresholds were chosen
worlds     other worlds, estimators and optimisers of the simulator
tiny       the shipped runs of small language models
public     public training logs, from a folder with runs.csv and curves.csv, which does not come with the package

A simulated run's log has sampled evaluations; the truth is its exact Pass@1, and what it does when it goes on. A truth
in between is not scored. Judged are yes and no: a hit is a finding where it is true, a false alarm one where it is not.
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

from rftlab.shared.design import Design
from rftlab.sim.config import Environment, Linear, Optimizer, OptimizerKind, Simulation, Tabular
from rftlab.sim.run import simulate
from rftlab.studies.cards import preset
from rftlab.studies.diagnose import CHECKS
from rftlab.studies.diagnose.evaluation import visible
from rftlab.studies.diagnose.finding import Finding
from rftlab.studies.diagnose.observed import observe
from rftlab.studies.diagnose.progress import longer
from rftlab.studies.logs.run import ImportedRun, KnownDesign, Piece
from rftlab.studies.results import reference

METRICS = {
    "test_pass_at_1": ("test", "pass_at_1"),
    "reward": ("train", "reward_mean"),
    "clip_fraction": ("train", "clip_fraction"),
    "zero_signal_fraction": ("train", "zero_signal_fraction"),
    "grad_norm": ("train", "grad_norm"),
    "test_flexible": ("", "test_flexible"),
}


class KnownCase(NamedTuple):
    """A run, what is true of it by kind, and what it gained after its log ends, where that is known."""

    run: ImportedRun
    truth: dict[str, bool]
    later: float | None = None


class Counts(NamedTuple):
    """Of one kind: hits of so many that are true, false alarms of so many that are not, and what was not judged."""

    hits: int
    true: int
    alarms: int
    false: int
    unjudged: int


def run_of(name: str, curve: pd.DataFrame, questions: int | None, design: KnownDesign) -> ImportedRun:
    """A curve of ours as a log: questions behind each evaluation, nan where None."""
    pieces = []
    for column, (split, metric) in METRICS.items():
        if column in curve:
            n = float(questions) if questions and split == "test" else np.nan
            rows = curve.assign(value=curve[column], n=n, source_step=curve["round"])
            pieces += _pieces(rows, split, "", metric, column)
    return ImportedRun(name, "curve", "", (), design, _in_order(pieces))


def _pieces(rows: pd.DataFrame, split: str, task: str, metric: str, source: str) -> list[Piece]:
    """Finite values of one metric, from columns round, value, n and source_step; none where there are none."""
    rows = rows[np.isfinite(rows["value"])].sort_values("round", kind="stable")
    rounds, steps = rows["round"].to_numpy(int), rows["source_step"].fillna(-1).to_numpy(int)
    values, n = (rows[name].to_numpy(float) for name in ("value", "n"))
    return [Piece(split, task, metric, source, rounds, values, n, steps)] if len(rows) else []


def _in_order(pieces: list[Piece]) -> tuple[Piece, ...]:
    return tuple(sorted(pieces, key=lambda piece: (piece.split != "test", *piece[:4])))


# --- simulated ---

FORMLESS = -4.0
"""Mean logit of the format of worlds that have to learn it: 2% of the first answers have it."""
RATES = (2e-4, 1e-3, 5e-3, 2e-2, 1e-1, 5e-1)


class Setting(NamedTuple):
    """What a series of learning rates has in common."""

    environment: Environment
    design: Design
    kind: OptimizerKind = "adam"
    scale: float = 1.0
    """On every rate."""


def designs(rounds: int, *choices: tuple[str, int, int, int]) -> list[Design]:
    """From presets, prompts, rollouts and epochs."""
    return [
        Design(prompts, k, estimator=preset(name), rounds=rounds, eval_every=rounds // 60, epochs=epochs)
        for name, prompts, k, epochs in choices
    ]


def chosen() -> list[Setting]:
    """Linear worlds: usual, mostly unsolvable, half unsolvable, easy; three estimators."""
    small = Linear(n_train=1000, n_test=400, n_features=64)
    worlds = (
        small,
        replace(small, unsolvable=0.9),
        replace(small, unsolvable=0.5, n_test=60),
        replace(small, base_format=3.0, kappa=8.0, align=0.97),
    )
    choices = designs(300, ("grpo", 32, 8, 1), ("grpo", 8, 4, 4), ("minimalist", 32, 1, 1))
    return [Setting(world, design) for world, design in product(worlds, choices)]


def worlds() -> list[Setting]:
    """Other worlds: contexts that share nothing, answers of two tokens, little that generalises; other estimators."""
    linear = Linear(n_train=600, n_test=200, n_features=128, n_answers=4, rho=0.5, kappa=2.0, base_format=-1.0)
    places: tuple[Environment, ...] = (
        Tabular(n_contexts=200, n_arms=8, n_correct=1, base_scale=2.0),
        Tabular(n_contexts=64, n_arms=4, n_correct=0),
        linear,
        replace(linear, n_answers=2, answer_tokens=4, n_styles=1, n_test=50),
        replace(linear, unsolvable=0.8, n_test=1000),
    )
    choices = designs(240, ("rloo", 16, 4, 1), ("dr_grpo", 32, 16, 2), ("paper_text", 16, 8, 6))
    adam = [Setting(place, design) for place, design in product(places, choices)]
    return adam + [Setting(linear, design, "sgd", 30.0) for design in choices]


def simulated(settings: list[Setting], seeds: int) -> Iterator[KnownCase]:
    """Runs of every setting, rate and seed, with what is true of them."""
    for number, setting in enumerate(settings):
        for seed in range(seeds):
            runs = [_run(setting, rate * setting.scale, seed) for rate in RATES]
            ends = [
                float(exact["test_pass_at_1"][exact["round"] <= setting.design.rounds].iloc[-1]) for _, exact in runs
            ]
            for at, (log, exact) in enumerate(runs):
                name = f"{number} rate {RATES[at] * setting.scale:g} seed {seed}"
                yield _case(name, setting, log, exact, ends, at)


def _run(setting: Setting, rate: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The log with sampled evaluations, and the exact curve of half as many rounds again."""
    design = setting.design
    run = Simulation(setting.environment, design, Optimizer(setting.kind, rate), evaluation="sampled", seed=seed)
    more = replace(run, design=replace(design, rounds=design.rounds * 3 // 2), evaluation="exact")
    return simulate(run).curve.to_frame(), simulate(more).curve.to_frame()


def _case(name: str, setting: Setting, log: pd.DataFrame, exact: pd.DataFrame, ends: list[float], at: int) -> KnownCase:
    rounds, design = setting.design.rounds, setting.design
    world = setting.environment
    questions = world.n_test if isinstance(world, Linear) else world.n_contexts
    inside, after = exact[exact["round"] <= rounds], exact[exact["round"] > rounds]
    values, end = inside["test_pass_at_1"].to_numpy(), float(after["test_pass_at_1"].iloc[-1])
    truth = _truth(values, end, questions)
    best_below, best = max(ends[: at + 1]), max(ends)
    truth |= _between("step too large", best_below - ends[at], 0.1, 0.03 if ends[at] >= best - 0.03 else -1.0)
    if design.rollouts > 1:
        truth |= _between("no signal", float(after["zero_signal_fraction"].mean()), 0.8, 0.7)
    if values[-1] - values[0] > 0.1:
        truth["format only"] = isinstance(world, Linear) and world.base_format == FORMLESS
    known = KnownDesign(prompts=design.batch_size, rollouts=design.rollouts)
    return KnownCase(run_of(name, log, questions, known), truth, end - float(values[-1]))


def _truth(values: np.ndarray, end: float, questions: int) -> dict[str, bool]:
    """Of exact Pass@1 at every evaluation of a run, and of the end of a longer one."""
    gain, last, top = float(values[-1] - values[0]), float(values[-1]), float(values.max())
    error = np.sqrt(max(last * (1 - last), 0.5 / questions) / questions)
    truth = _between("collapse", 1 - last / top if top > 0.02 else 0.0, 0.5, 0.2)
    truth |= _between("noise above progress", -abs(gain) / error, -1.0, -4.0)
    middle = float(np.clip((values[0] + last) / 2, 0.5 / questions, 1 - 0.5 / questions))
    truth |= _between("evaluation too small", -abs(gain) / visible(middle, questions), -0.7, -1.4)
    if gain > 4 * error and gain > 0.02:
        truth |= _between("plateau", -(end - last) / gain, -0.05, -0.1)
    return truth


def _between(kind: str, value: float, yes: float, no: float) -> dict[str, bool]:
    """True from `yes` on, false below `no`; neither between."""
    return {kind: True} if value >= yes else {kind: False} if value <= no else {}


# --- language models ---


def tiny() -> Iterator[KnownCase]:
    """The shipped runs; the truth is the mean over the seeds of a cell."""
    shipped = reference.shipped()
    for (pair, cell), runs in shipped.groupby(["pair", "cell"]):
        means = runs.groupby("round")[["test_pass_at_1", "test_flexible"]].mean()
        mean, flexible = (means[name].to_numpy() for name in ("test_pass_at_1", "test_flexible"))
        gain, last = float(mean[-3:].mean() - mean[0]), float(mean[-3:].mean())
        truth = _between("collapse", 1 - last / mean.max(), 0.5, 0.2)
        if gain > 0.1:
            share = 1 - float(flexible[-3:].mean() - flexible[0]) / gain
            truth |= {"noise above progress": False, "evaluation too small": False}
            truth |= _between("format only", share, 0.7, 0.5)
        rollouts = int(re.split(r"\D", cell)[1])  # of 32x8-..
        for seed, curve in runs.groupby("seed"):
            name = f"{pair} {cell} {seed}"
            yield KnownCase(run_of(name, curve.reset_index(drop=True), 500, KnownDesign(rollouts=rollouts)), truth)


# --- public ---

BROKEN = ("shibuki/lr2e-4", "shibuki/offpolicy-broad-e8-tb256", "shibuki/offpolicy-broad-e16-tb256")
"""The first is called collapsed by its authors; the others end with no right answer."""
STUCK = "shibuki/lr7e-5"
"""Ends at 0.21, where smaller rates reach 0.47 to 0.88."""
OPEN = ("shibuki/no-baseline", "shibuki/lr5e-5")
"""Without a plain truth: falls from 0.25 to 0.19; ends 0.04 below the best rate."""


def public(folder: Path) -> Iterator[KnownCase]:
    """Public logs, with what their sources say of them or their last values show."""
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


def _public_pieces(rows: pd.DataFrame) -> tuple[Piece, ...]:
    found: list[Piece] = []
    labels = rows.assign(task=rows["task"].fillna("")).groupby(["split", "task", "metric"])
    for (split, task, metric), own in labels:
        found += _pieces(own, split, task, metric, metric)
    return _in_order(found)


def _said(name: str) -> dict[str, bool]:
    """Labels of whole runs."""
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
    """Plateau at `cut`, by what came after: means of five evaluations; nothing where they are few."""
    before, after = line.values[line.rounds <= cut], line.values[line.rounds > cut]
    if len(before) < 20 or len(after) < 8 or before[-5:].mean() - before[0] < 0.1:
        return {}
    more = float(after[-5:].mean() - before[-5:].mean())
    return _between("plateau", -more / float(before[-5:].mean() - before[0]), -0.05, -0.1)


# --- tables ---


def score(cases: list[KnownCase]) -> dict[str, Counts]:
    """Counts by kind, of the kinds of which something is known."""
    table = {}
    for kind in CHECKS:
        said = [(case.truth[kind], _said_of(case.run, kind)) for case in cases if kind in case.truth]
        judged = [(true, found) for true, found in said if found is not None]
        if said:
            true, false = sum(true for true, _ in said), sum(not true for true, _ in said)
            hits, alarms = sum(t and f for t, f in judged), sum(f and not t for t, f in judged)
            table[kind] = Counts(hits, true, alarms, false, len(said) - len(judged))
    return table


def _said_of(run: ImportedRun, kind: str) -> bool | None:
    said = CHECKS[kind](observe(run))
    return isinstance(said, Finding) if said is None or isinstance(said, Finding) else None


def coverage(cases: list[KnownCase]) -> tuple[int, int, int]:
    """Of what a longer run is worth: gains inside the interval, gains at most its upper end, cases."""
    found = [
        (longer(line), case.later) for case in cases if case.later is not None and (line := _tested(case)) is not None
    ]
    inside = sum(more.low <= later <= more.high for more, later in found)
    return inside, sum(later <= more.high for more, later in found), len(found)


def _tested(case: KnownCase):
    line = observe(case.run).first(("test", "pass_at_1"), least=24)
    return line if line is not None and np.ptp(line.tail(0.5).values) > 0 else None


def show(title: str, cases: list[KnownCase]) -> None:
    """Print one set."""
    print(f"{title}: {len(cases)} runs\n  {'kind':<26}{'hits':>10}{'false alarms':>15}{'not judged':>12}")
    for kind, found in score(cases).items():
        hits, alarms = f"{found.hits}/{found.true}", f"{found.alarms}/{found.false}"
        print(f"  {kind:<26}{hits:>10}{alarms:>15}{found.unjudged:>12}")
    inside, below, count = coverage(cases)
    if count:
        print(f"  gain of a longer run inside its interval {inside}/{count}, at most its upper end {below}/{count}")


def main(arguments: list[str]) -> None:
    """Print the tables."""
    show("chosen", list(simulated(chosen(), 2)))
    show("worlds", list(simulated(worlds(), 2)))
    show("tiny", list(tiny()))
    if arguments:
        show("public", list(public(Path(arguments[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
