"""Show how far the studies of a results folder and the runs of `rftlab train` are, from the files that are there.
Nothing is written, no lock is waited for, no table is read.

    done          its done.json is there and whole; its tables are checked when a study goes on or reports
    running       a language model's folder that a process holds; unfinished simulations leave no trace
    interrupted   a language model's folder that nobody holds; it goes on from its last checkpoint
    to do         the rest, with what is damaged and will be redone, which is named

Time left is that of finished runs of the same pair, in proportion to what a run costs; without one it is unknown. A run
of `rftlab train` is done where its last checkpoint is that of its last round.
"""

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console

from rftlab.llm.stored import CHECKPOINTS, LOCK, held, stored_run, trained_in
from rftlab.llm.tracking import read_rounds
from rftlab.shared.plumbing.errors import UserError, check, plain
from rftlab.shared.plumbing.folders import FILE, FOLDER, folders_in, numbered, path_kind
from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.paper.pairs import LEVELS
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.progress import live_line
from rftlab.studies.data.runs.study import has_study, read_study

State = Literal["done", "running", "interrupted", "to do"]
UNKNOWN = "unknown"
PAUSE = 2.0
"""Seconds between two looks at runs that are followed."""


class RunStatus(NamedTuple):
    """State of a run of a study as its folder shows it."""

    point: RunSpec
    state: State
    round: int | None
    """Round of the last checkpoint of a run that is running or interrupted: 0 after the first evaluation, None
    before."""
    seconds: float | None
    """Time that a finished run took."""
    damage: str = ""
    """Damage of the stored files, in words; "" for none."""

    @property
    def left(self) -> float:
        """Cost of the part of the run that is still to be done."""
        return 0.0 if self.state == "done" else self.point.cost * (1 - (self.round or 0) / self.point.run.design.rounds)


def show_status(console: Console, root: Path) -> None:
    """Print a table of each study, and one of the runs of `rftlab train`. Raises UserError where the folder is not
    rftlab's, or holds neither."""
    trained = _show_trained(console, root)
    if trained and not store.is_marked(root):
        return
    store.check_format(root)
    levels = [level for level in LEVELS if has_study(root, level)]
    check(
        bool(levels) or trained, f"{root} holds no study; `rftlab reproduce --results {root}` starts one. {_runs(root)}"
    )
    for level in levels:
        runs = [run_status(root, point) for point in read_study(root, level).points()]
        console.print(_table(level, runs))
        for run in runs:
            if run.state in ("running", "interrupted"):
                done = UNKNOWN if run.round is None else run.round
                text = f"{run.state}: {run.point.name}, round {done} of {run.point.run.design.rounds}"
                console.print(text, markup=False, highlight=False)
            if run.damage:
                say(console, f"damaged, `rftlab reproduce` redoes it: {run.damage}", "yellow")
        console.print(_prospect(runs), highlight=False)


def follow_rounds(console: Console, root: Path) -> None:
    """Print a line for each round that ends in a language model's run of the folder, until none runs."""
    folders = trained_in(root)
    if store.is_marked(root) and has_study(root, "llm"):
        folders += [store.point_folder(root, point) for point in read_study(root, "llm").points()]
    told = {folder: len(read_rounds(folder)) for folder in folders}
    while True:
        running = [folder for folder in folders if _is_running(folder)]
        for folder in folders:
            for measured in read_rounds(folder)[told[folder] :]:
                say(console, f"{folder.name}: round {measured['round']}, {live_line(measured)}")
                told[folder] += 1
        if not running:
            return
        time.sleep(PAUSE)


def _runs(root: Path) -> str:
    """Say how many runs of a folder without a study are finished; those of `rftlab run` belong to no study."""
    runs = {level: [run for pair in folders_in(root / level) for run in folders_in(pair)] for level in LEVELS}
    counts = {
        level: [sum(path_kind(run / name) == FILE for run in own) for name in ("done.json", "config.json")]
        for level, own in runs.items()
    }
    finished = [f"{done} of {there} at level {level}" for level, (done, there) in counts.items() if there]
    return f"Runs that are finished: {', '.join(finished)}" if finished else "There are no runs either"


def _show_trained(console: Console, root: Path) -> bool:
    """Print a table of the runs in a folder, or of the run that it is, and return whether there are any."""
    folders = trained_in(root)
    if not folders:
        return False
    rounds = (Column(name, align="right") for name in ("round", "of"))
    table = Table("run", "state", *rounds, "model", "task", "rewards", title="runs of rftlab train", align="left")
    for folder in folders:
        table.add(*(plain(cell) for cell in _trained_row(folder, root)))
    console.print(table)
    return True


def _trained_row(folder: Path, root: Path) -> list[str]:
    name = folder.name if folder != root else str(folder)
    try:
        run = stored_run(folder)
        config, rewards = run.config, run.config.get("rewards")
        model, task = str(config["model"]["source"]), str(config["task"]["name"])
    except (UserError, KeyError, TypeError):
        return [name, "damaged", "", "", "", "", ""]
    done = _round(folder) or 0
    state = "running" if _is_running(folder) else "done" if done >= run.rounds else "interrupted"
    named = ", ".join(rewards) if isinstance(rewards, dict) else ""
    return [name, state, str(done), str(run.rounds), model, task, named]


def run_status(root: Path, point: RunSpec) -> RunStatus:
    """Return the state of a run from its folder, without reading its tables."""
    folder, damage = store.point_folder(root, point), ""
    try:
        facts = store.read_facts(root, point)
        if facts is not None:
            return RunStatus(point, "done", None, facts["seconds"])
    except store.DamagedPoint as error:
        damage = str(error)
    if point.level == "sim" or path_kind(folder) != FOLDER:
        return RunStatus(point, "to do", None, None, damage)
    return RunStatus(point, "running" if _is_running(folder) else "interrupted", _round(folder), None, damage)


def _is_running(folder: Path) -> bool:
    return path_kind(folder / LOCK) == FILE and held(folder)


def _round(folder: Path) -> int | None:
    """Return the round from which a run would go on; None before its first evaluation."""
    checkpoints = numbered(folder / CHECKPOINTS)
    return int(checkpoints[-1].name) if checkpoints else 0 if path_kind(folder / "curve.parquet") else None


def seconds_left(runs: list[RunStatus], side_by_side: int = 1) -> float | None:
    """Return the seconds of what is left with so many runs side by side, at least those of its longest run; None where
    a pair has no finished run to estimate from."""
    seconds: defaultdict[str, float] = defaultdict(float)
    costs: defaultdict[str, float] = defaultdict(float)
    for run in runs:
        if run.seconds is not None:
            seconds[run.point.pair] += run.seconds
            costs[run.point.pair] += run.point.cost
    ahead = [run for run in runs if run.left > 0]
    if any(run.point.pair not in costs for run in ahead):
        return None
    each = [seconds[run.point.pair] / costs[run.point.pair] * run.left for run in ahead]
    return max(sum(each) / side_by_side, *each, 0.0)


def _table(level: str, runs: list[RunStatus]) -> Table:
    columns = ("pair", "done", "running", "interrupted", "to do", "time left, one run at a time")
    table = Table(*columns, title=f"study of level {level}")
    pairs = {
        pair: [run for run in runs if run.point.pair == pair] for pair in dict.fromkeys(run.point.pair for run in runs)
    }
    for name, own in (pairs | ({"all": runs} if len(pairs) > 1 else {})).items():
        states: Counter[str] = Counter(run.state for run in own)
        table.add(name, *(states[state] for state in columns[1:5]), duration(seconds_left(own)))
    return table


def _prospect(runs: list[RunStatus]) -> str:
    """Return a line on the time left at the present pace."""
    running = sum(run.state == "running" for run in runs)
    if all(run.state == "done" for run in runs):
        return "finished"
    if not running:
        return "time left as it runs now: unknown, no language model is running (simulations that run are not seen)"
    return f"time left as it runs now, {running} side by side: {duration(seconds_left(runs, running))}"


def duration(seconds: float | None) -> str:
    """Return a time in words."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
