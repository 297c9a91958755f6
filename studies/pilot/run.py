"""Measure a pilot: the base model in a process of its own, then a few runs of the grid, which stay in the results
store for the grid to use."""

import json
import math
import multiprocessing
import signal
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn

from rftlab.llm.config import LLMRun, config_of
from rftlab.llm.probe_config import VERSION, ProbeConfig
from rftlab.shared.errors import UserError, check
from rftlab.studies.console.bar import Bar
from rftlab.studies.console.tables import say
from rftlab.studies.paper.pairs import start_at
from rftlab.studies.pilot import store as pilot_store
from rftlab.studies.pilot.grid import CELLS, check_cells
from rftlab.studies.pilot.headroom import (
    TRIES,
    VOTES,
    Headroom,
    RateAt,
    mean_rate,
    silent_share,
    tries_of,
    votes_of,
    within_kind,
    within_question,
)
from rftlab.studies.pilot.noise import analysed
from rftlab.studies.pilot.pilot import (
    EARLY,
    QUANTILES,
    Answers,
    Base,
    Lengths,
    PilotMeasurements,
    PilotRun,
    Spent,
    pilot_from,
    rollouts_of,
)
from rftlab.studies.pilot.ratios import ratios_of
from rftlab.studies.results.rollouts import silent_groups
from rftlab.studies.runs import store
from rftlab.studies.runs.finish import finish_points, threads_of
from rftlab.studies.runs.limits import NEEDS_LLM, Engine, has_llm
from rftlab.studies.runs.points import Point, schedule
from rftlab.studies.runs.runner import collect

if TYPE_CHECKING:
    from rftlab.llm.probe import Probed, SplitAnswers

_PROCESSES = multiprocessing.get_context("spawn")
Stored = TypeVar("Stored", Base, PilotMeasurements)


class Wanted(NamedTuple):
    """What a pilot measures."""

    pair: str
    cells: tuple[str, ...]
    rounds: int | None
    """None: the pair's own, so that the grid has these runs already."""
    probe: ProbeConfig

    def points(self) -> list[Point]:
        """The runs, seed 0, as any study has them."""
        start = start_at(self.pair, "llm")
        total, every = schedule(start.design, self.rounds)
        return [
            Point(self.pair, replace(start, design=replace(CELLS[cell], rounds=total, eval_every=every), seed=0))
            for cell in self.cells
        ]

    def base_config(self) -> dict:
        """All that the measurements of the base model depend on."""
        return _plain({"version": VERSION, "ask": asdict(self.probe), "run": config_of(start_at(self.pair, "llm"))})

    def config(self) -> dict:
        """All that the pilot depends on."""
        return _plain({"base": self.base_config(), "runs": [point.config for point in self.points()]})


def _plain(config: dict) -> dict:
    """As it comes back from a file: tuples are lists."""
    return json.loads(json.dumps(config))


def wanted(pair: str, cells: tuple[str, ...], rounds: int | None, config: ProbeConfig) -> Wanted:
    """A checked request."""
    planned = start_at(pair, "llm").design.rounds
    check_cells(cells)
    check(rounds is None or 1 <= rounds <= planned, f"rounds = {rounds}; allowed: 1 to {planned}, the rounds of {pair}")
    return Wanted(pair, cells, rounds, config)


def pilot(
    console: Console, what: Wanted, root: Path, threads: int, quiet: bool, engine: Engine = "local"
) -> PilotMeasurements:
    """The pilot, from its file where it is there, else measured; what was measured before it was interrupted is not
    measured again."""
    place, config = pilot_store.file_of(store.open_store(root), what.pair), what.config()
    found = _stored(console, place, PilotMeasurements, config)
    if found is None:
        if not quiet:
            say(console, price_of(what), "dim")
        base = base_of(console, what, root, quiet)
        found = pilot_from(_curves(console, what, root, threads, quiet, engine), base, what.cells)
        found = found._replace(
            runs=tuple(with_early(root, *one) for one in zip(found.runs, what.points(), strict=True))
        )
        pilot_store.write(place, found, config)
    elif not quiet:
        say(console, f"{place} has it already")
    return found


def _curves(console: Console, what: Wanted, root: Path, threads: int, quiet: bool, engine: Engine) -> pd.DataFrame:
    """The curves of the runs, from the store or made now."""
    points = what.points()
    if not points:
        return pd.DataFrame(columns=["pair", "cell", "seed"])
    finish_points(console, root, points, threads_of(threads), quiet, engine)
    results = collect(root, points)
    for line in results.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    return results.curves


def price_of(what: Wanted) -> str:
    """What will be sampled at most, before it is."""
    start = start_at(what.pair, "llm")
    sizes, runs = start.task.sizes, what.points()
    base = what.probe.rollouts(start.temperature, sizes.train, sizes.test)
    parts = ", ".join(f"{name} {count:,}" for name, count in base.items())
    trained = sum(rollouts_of(point.run.design) * point.run.design.rounds for point in runs)
    return (
        f"At most {sum(base.values()) + trained:,} rollouts: {sum(base.values()):,} of the base model ({parts}), "
        f"{trained:,} in {len(runs)} runs, whose evaluations come on top. What is there already is not sampled again."
    )


def with_early(root: Path, run: PilotRun, point: Point) -> PilotRun:
    """The run with the share of its groups that had no signal in rounds EARLY, where its curve does not say it and its
    rollouts were kept."""
    if run.early_silent is not None:
        return run
    try:
        silent, groups, size = silent_groups(store.folder_of(root, point), *EARLY)
    except UserError:  # none were kept, or a run of fewer rounds
        return run
    if size < 2:
        return run
    share = silent / groups
    error = math.sqrt(share * (1 - share) / groups)
    return run._replace(early_silent=RateAt(float(size), share, error, groups, size))


def base_of(console: Console, what: Wanted, root: Path, quiet: bool) -> Base:
    """The measurements of the base model, from their file or made now."""
    place, config = pilot_store.file_of(root, what.pair, "base"), what.base_config()
    found = _stored(console, place, Base, config)
    if found is None:
        check(has_llm(), f"a pilot {NEEDS_LLM}")
        found = base_from(what.pair, _probe(console, start_at(what.pair, "llm"), what.probe, quiet))
        pilot_store.write(place, found, config)
    return found


def _stored(console: Console, place: Path, kind: type[Stored], config: dict) -> Stored | None:
    """What a file has, if it is of this configuration and whole; a damaged one is named."""
    try:
        return pilot_store.read(place, kind, config)
    except pilot_store.DamagedPilot as damage:
        console.print(f"damaged, redone: {damage}", style="yellow", markup=False, soft_wrap=True)
        pilot_store.discard(place)
        return None


def base_from(pair: str, found: "Probed") -> Base:
    """What a pilot keeps of a probe."""
    headroom = found.headroom
    spent = {name: _spent(getattr(found, name)) for name in ("train", "test")} | {
        "temperatures, tries": Spent(headroom.rollouts, headroom.tokens, headroom.seconds),
        "gradients": Spent(0, 0, found.seconds),
    }
    available = (found.train.available, found.test.available)
    return Base(
        pair,
        *available,
        answers_of(found.train),
        answers_of(found.test),
        analysed(found.raw),
        analysed(found.centred),
        spent,
        ratios_of(found.raw, found.centred),
        headroom_of(found),
    )


def headroom_of(found: "Probed") -> Headroom:
    """What the base model could already do, from all of its responses: k tries and votes from all test questions
    where they have k responses, else from the few that have many."""
    train, test, headroom = found.train, found.test, found.headroom
    counts, m = train.strict.sum(axis=1), train.strict.shape[1]
    few, many = test.strict.shape[1], headroom.many.shape[1]
    tries, votes = tries_of(test.strict.sum(axis=1), few), votes_of(test.answers, test.strict)
    if many:
        tries += tries_of(headroom.many.sum(axis=1), many, tuple(k for k in TRIES if k > few))
        votes += votes_of(headroom.many_answers, headroom.many, tuple(k for k in VOTES if k > few))
    return Headroom(
        tuple(mean_rate(at, right.mean(axis=1), right.shape[1]) for at, right in headroom.right.items()),
        votes,
        tries,
        within_question(counts, m),
        within_kind(counts, m, train.kinds),
        silent_share(counts, m),
    )


def _spent(answers: "SplitAnswers") -> Spent:
    return Spent(answers.lengths.size, int(answers.lengths.sum()), answers.seconds)


def answers_of(answers: "SplitAnswers") -> Answers:
    """Counts and lengths of the responses to a split."""
    strict, flexible, well_formed = (
        np.asarray(column).sum(axis=1).astype(np.int64)
        for column in (answers.strict, answers.flexible, answers.well_formed)
    )
    lengths, is_right = answers.lengths.astype(np.float64), answers.strict == 1
    right, wrong = (float(lengths[part].mean()) if part.any() else float("nan") for part in (is_right, ~is_right))
    quantiles, cut = np.quantile(lengths, QUANTILES), float(1 - answers.finished.mean())
    spread = Lengths(float(lengths.mean()), float(lengths.std()), quantiles, right, wrong, cut)
    return Answers(lengths.shape[1], strict, flexible, well_formed, spread)


def _probe(console: Console, run: LLMRun, config: ProbeConfig, quiet: bool) -> "Probed":
    """Probe in a process of its own: the runs that follow need the memory of an accelerator. Raises UserError where
    it fails or is killed."""
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_work, args=(run, config, theirs), daemon=False)
    process.start()
    theirs.close()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    try:
        with Bar(console, quiet, *columns) as bar:
            task = bar.add_task("base model", total=None)
            while True:
                kind, value = ours.recv()
                if kind == "done":
                    return value
                if kind == "failed":
                    raise UserError(str(value))
                if kind == "remark":
                    console.print(value, style="yellow", markup=False, soft_wrap=True)
                elif kind == "step":
                    bar.update(
                        task, description="base model: responses and gradients", completed=value[0], total=value[1]
                    )
                else:
                    bar.update(task, description=f"base model, step {value[0]}, validation Pass@1 {value[1]:.3f}")
    except EOFError:
        process.join()
        raise UserError(
            f"measuring the base model ended with status {process.exitcode}; run the same command again"
        ) from None
    finally:
        process.terminate()
        process.join()


def _work(run: LLMRun, config: ProbeConfig, connection: Connection) -> None:
    """What the process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    from rftlab.llm.probe import ProbeCallbacks, probe

    callbacks = ProbeCallbacks(
        step=lambda done, total: connection.send(("step", (done, total))),
        pretraining=lambda step, rate: connection.send(("reading", (step, rate))),
        remark=lambda text: connection.send(("remark", text)),
    )
    try:
        connection.send(("done", probe(run, config, callbacks)))
    except UserError as error:
        connection.send(("failed", error))
    except BrokenPipeError:
        pass  # the parent is gone
